//! Managers in virtual time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::fake_api::{FakeApi, Fault};

/// What happened, in order.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn say(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// Is ready after a while, takes a while to drain.
struct Part {
    name: &'static str,
    log: Log,
    ready_after: Duration,
    drains_for: Duration,
    fails: bool,
}

fn part(name: &'static str, log: &Log) -> Part {
    let second = Duration::from_secs(1);
    Part { name, log: log.clone(), ready_after: second, drains_for: second, fails: false }
}

impl Runnable for Part {
    fn name(&self) -> &str {
        self.name
    }

    fn run(self: Box<Self>, lifecycle: Lifecycle) -> BoxFuture<'static, Result<(), RunError>> {
        Box::pin(async move {
            let Part { name, log, .. } = *self;
            log.say(format!("{name} starts"));
            sleep(self.ready_after).await;
            lifecycle.ready();
            if self.fails {
                return Err("out of luck".into());
            }
            lifecycle.draining().await;
            log.say(format!("{name} drains"));
            tokio::select! {
                () = sleep(self.drains_for) => log.say(format!("{name} ends")),
                () = lifecycle.stopping() => log.say(format!("{name} stops")),
            }
            Ok(())
        })
    }
}

fn manager(api: &FakeApi, options: ManagerOptions, seed: u64) -> Manager {
    let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
    Manager::new(api.client(), clock, Chance::seeded(seed), options).unwrap()
}

fn start(manager: &Manager) -> (CancellationToken, JoinHandle<Result<(), ManagerError>>) {
    let (stop, manager) = (CancellationToken::new(), manager.clone());
    let stopping = stop.clone();
    (stop, tokio::spawn(async move { manager.run(stopping.cancelled()).await }))
}

#[tokio::test(start_paused = true)]
async fn parts_start_when_what_they_need_is_ready_and_end_before_it() {
    let (log, manager) = (Log::default(), manager(&FakeApi::default(), ManagerOptions::default(), 1));
    manager.add(part("a", &log)).unwrap();
    manager.add_after(&["a"], part("b", &log)).unwrap();
    let (stop, running) = start(&manager);
    sleep(Duration::from_millis(500)).await;
    assert_eq!(log.take(), ["a starts"]);
    assert_eq!(manager.ready().one("a"), Some(Err("not ready yet".to_owned())));
    sleep(Duration::from_secs(2)).await;
    assert_eq!(log.take(), ["b starts"]);
    assert!(manager.ready().report(&[]).0, "{}", manager.ready().report(&[]).1);
    stop.cancel();
    running.await.unwrap().unwrap();
    assert_eq!(log.take(), ["b drains", "b ends", "a drains", "a ends"]);
    assert!(matches!(manager.run(async {}).await, Err(ManagerError::AlreadyRun)));
}

#[tokio::test(start_paused = true)]
async fn draining_has_a_limit_and_what_ignores_even_stop_is_aborted() {
    let options = ManagerOptions { drain_limit: Duration::from_secs(3), ..ManagerOptions::default() };
    let (log, manager) = (Log::default(), manager(&FakeApi::default(), options, 1));
    manager.add(Part { drains_for: Duration::from_secs(3600), ..part("slow", &log) }).unwrap();
    manager.add(Part { ready_after: Duration::from_secs(3600), ..part("deaf", &log) }).unwrap();
    let (stop, running) = start(&manager);
    sleep(Duration::from_secs(2)).await;
    stop.cancel();
    let asked = Instant::now();
    running.await.unwrap().unwrap();
    assert_eq!(log.take(), ["slow starts", "deaf starts", "slow drains", "slow stops"]);
    assert_eq!(asked.elapsed(), Duration::from_secs(8));
}

#[tokio::test(start_paused = true)]
async fn a_part_that_fails_ends_all_in_order() {
    let (log, manager) = (Log::default(), manager(&FakeApi::default(), ManagerOptions::default(), 1));
    manager.add(part("a", &log)).unwrap();
    manager.add_after(&["a"], Part { fails: true, ..part("b", &log) }).unwrap();
    let (_stop, running) = start(&manager);
    let error = running.await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "b failed: out of luck");
    assert_eq!(log.take(), ["a starts", "b starts", "a drains", "a ends"]);
}

#[tokio::test(start_paused = true)]
async fn parts_come_and_go_while_it_runs() {
    let (log, manager) = (Log::default(), manager(&FakeApi::default(), ManagerOptions::default(), 1));
    let (stop, running) = start(&manager);
    manager.add(part("a", &log)).unwrap();
    manager.add_after(&["a"], part("b", &log)).unwrap();
    sleep(Duration::from_secs(3)).await;
    let refused = |answer: Result<(), ManagerError>| answer.unwrap_err().to_string();
    assert_eq!(refused(manager.add(part("a", &log))), "a was added already");
    assert_eq!(refused(manager.add_after(&["z"], part("c", &log))), "there is no z");
    assert_eq!(refused(manager.remove("a").await), "b depends on a");
    manager.remove("b").await.unwrap();
    manager.remove("a").await.unwrap();
    assert_eq!(log.take(), ["a starts", "b starts", "b drains", "b ends", "a drains", "a ends"]);
    assert_eq!(manager.ready().one("a"), None);
    manager.add(part("a", &log)).unwrap();
    sleep(Duration::from_secs(2)).await;
    assert_eq!(log.take(), ["a starts"]);
    stop.cancel();
    running.await.unwrap().unwrap();
}

fn elected(name: &str) -> ManagerOptions {
    let election = Some(ElectionConfig::new("kube-system", "managers", name));
    ManagerOptions { election, ..ManagerOptions::default() }
}

#[tokio::test(start_paused = true)]
async fn of_two_managers_one_works_and_the_other_takes_over_when_it_leaves() {
    let (api, log) = (FakeApi::default(), Log::default());
    let (one, two) = (manager(&api, elected("one"), 1), manager(&api, elected("two"), 2));
    one.add(part("one's", &log)).unwrap();
    two.add(part("two's", &log)).unwrap();
    let (stop_one, running_one) = start(&one);
    sleep(Duration::from_secs(1)).await;
    let (stop_two, running_two) = start(&two);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(log.take(), ["one's starts"]);
    assert!(two.ready().one("two's").unwrap().is_ok(), "a standby is ready");
    stop_one.cancel();
    running_one.await.unwrap().unwrap();
    sleep(Duration::from_secs(5)).await;
    assert_eq!(log.take(), ["one's drains", "one's ends", "two's starts"]);
    stop_two.cancel();
    running_two.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn who_loses_the_lease_stops_at_once() {
    let (api, log) = (FakeApi::default(), Log::default());
    let one = manager(&api, elected("one"), 1);
    one.add(part("one's", &log)).unwrap();
    let (_stop, running) = start(&one);
    sleep(Duration::from_secs(5)).await;
    api.plan(|call| if call.path.contains("/leases") { Fault::LoseRequest } else { Fault::None });
    let error = running.await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "leadership lost");
    assert_eq!(log.take(), ["one's starts", "one's drains", "one's stops"]);
    let maps: kube::Api<k8s_openapi::api::core::v1::ConfigMap> = kube::Api::default_namespaced(one.client().clone());
    let patch = kube::api::Patch::Merge(json!({}));
    let refused = maps.patch("a", &kube::api::PatchParams::default(), &patch).await.unwrap_err();
    assert!(refused.to_string().contains("another may be the leader by now"), "{refused}");
}
