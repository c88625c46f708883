//! Facts about controllers, against a small API server, in virtual time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    Action, Builder, Context, Controller, ControllerHandle, ControllerOptions, Error, HOT_RUNS, Next, Outcome, Phases,
    Predicate, Reconciler,
};
use crate::Key;
use crate::cache::{Informer, Informers};
use crate::clock::{Chance, Clock};
use crate::fake_api::{FakeApi, config_map, pass};
use crate::manager::{Lifecycle, Runnable};
use crate::queue::What;

const MAPS: &str = "configmaps";

struct Bench {
    api: FakeApi,
    informers: Informers,
    maps: Informer<ConfigMap>,
    secrets: Informer<Secret>,
    lifecycle: Lifecycle,
}

impl Bench {
    fn new() -> Self {
        let api = FakeApi::default();
        let informers = Informers::new(api.client(), &Chance::seeded(3));
        let (maps, secrets) = (informers.all(), informers.all());
        tokio::spawn(Box::new(informers.clone()).run(Lifecycle::new()));
        Self { api, informers, maps, secrets, lifecycle: Lifecycle::new() }
    }

    fn builder(&self) -> Builder<ConfigMap> {
        let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
        Controller::builder("test", self.api.client(), clock, &self.maps)
    }

    async fn start(&self, builder: Builder<ConfigMap>, reconciler: impl Reconciler) -> ControllerHandle {
        let controller = builder.build(reconciler);
        let handle = controller.handle();
        tokio::spawn(Box::new(controller).run(self.lifecycle.clone()));
        self.lifecycle.until_ready().await;
        handle
    }

    /// Runs until nothing happens any more for a while.
    async fn settle(&self) {
        pass(Duration::from_millis(10)).await;
    }
}

/// Notes each run.
#[derive(Clone, Default)]
struct Runs(Arc<Mutex<Vec<Run>>>);

/// A key and the causes of its run.
type Run = (String, Vec<String>);

impl Runs {
    fn note(&self, context: &Context, key: &Key) {
        let causes = context.causes().first.iter().map(ToString::to_string).collect();
        self.0.lock().unwrap().push((key.to_string(), causes));
    }

    fn take(&self) -> Vec<Run> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    fn keys(&self) -> Vec<String> {
        self.take().into_iter().map(|(key, _)| key).collect()
    }

    /// A reconciler that only notes.
    fn reconciler(&self) -> impl Reconciler {
        let runs = self.clone();
        move |context: Context, key: Key| {
            runs.note(&context, &key);
            async { Ok(Action::done()) }
        }
    }
}

fn owned_secret(name: &str, owner: &str) -> Value {
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": "u", "controller": true});
    json!({"metadata": {"namespace": "default", "name": name, "ownerReferences": [owner]}})
}

#[tokio::test(start_paused = true)]
async fn objects_and_their_changes_wake_their_keys_with_causes() {
    let bench = Bench::new();
    bench.api.put(MAPS, config_map("a", "1"));
    let runs = Runs::default();
    let _handle = bench.start(bench.builder(), runs.reconciler()).await;
    bench.settle().await;
    assert_eq!(runs.take(), [("default/a".to_owned(), vec!["Added ConfigMap default/a@1".to_owned()])]);
    bench.api.put(MAPS, config_map("a", "2"));
    bench.api.put(MAPS, config_map("a", "3"));
    bench.api.delete(MAPS, "default/a");
    bench.settle().await;
    let all = runs.take().remove(0);
    let expected = ["Updated ConfigMap default/a@2", "Updated ConfigMap default/a@3", "Deleted ConfigMap default/a@4"];
    assert_eq!(all.1, expected, "one run, all causes");
}

#[tokio::test(start_paused = true)]
async fn owned_objects_wake_their_owner_and_others_nobody() {
    let bench = Bench::new();
    bench.api.put(MAPS, config_map("a", "1"));
    let runs = Runs::default();
    let builder = bench.builder().owns(&bench.secrets);
    let _handle = bench.start(builder, runs.reconciler()).await;
    bench.settle().await;
    runs.take();
    bench.api.put("secrets", owned_secret("s", "a"));
    bench.settle().await;
    assert_eq!(runs.take(), [("default/a".to_owned(), vec!["Added Secret default/s@2".to_owned()])]);
    bench.api.put("secrets", owned_secret("s", "b"));
    bench.settle().await;
    assert_eq!(runs.keys(), ["default/a", "default/b"], "the old owner and the new one");
    bench.api.put("secrets", json!({"metadata": {"namespace": "default", "name": "free"}}));
    bench.settle().await;
    assert_eq!(runs.keys(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn other_objects_wake_the_keys_that_a_mapper_gives() {
    let bench = Bench::new();
    let runs = Runs::default();
    let builder = bench.builder().watches(&bench.secrets, |_| vec![Key::cluster("x"), Key::cluster("y")]);
    let _handle = bench.start(builder, runs.reconciler()).await;
    bench.api.put("secrets", json!({"metadata": {"namespace": "default", "name": "free"}}));
    bench.settle().await;
    assert_eq!(runs.keys(), ["x", "y"]);
}

#[tokio::test(start_paused = true)]
async fn predicates_pass_over_changes_but_never_deletions() {
    let bench = Bench::new();
    let runs = Runs::default();
    let nothing =
        Predicate::generation_changed().or(Predicate::labels_changed()).not().and(Predicate::new(|_, _| false));
    let _handle = bench.start(bench.builder().predicate(nothing), runs.reconciler()).await;
    bench.api.put(MAPS, config_map("a", "1"));
    bench.api.put(MAPS, config_map("a", "2"));
    bench.settle().await;
    assert_eq!(runs.keys(), Vec::<String>::new());
    let mut deleting = config_map("a", "2");
    deleting["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    bench.api.put(MAPS, deleting);
    bench.settle().await;
    assert_eq!(runs.keys(), ["default/a"], "the beginning of a deletion");
    bench.api.delete(MAPS, "default/a");
    bench.settle().await;
    assert_eq!(runs.keys(), ["default/a"], "the deletion");
}

#[tokio::test(start_paused = true)]
async fn what_changed_is_judged_by_each_predicate() {
    let map = |generation: i64, label: &str, annotation: &str| -> ConfigMap {
        let meta =
            json!({"name": "a", "generation": generation, "labels": {"l": label}, "annotations": {"a": annotation}});
        serde_json::from_value(json!({"metadata": meta})).unwrap()
    };
    let base = map(1, "x", "x");
    let judge = |predicate: Predicate<ConfigMap>| {
        [map(2, "x", "x"), map(1, "y", "x"), map(1, "x", "y")].map(|new| predicate.passes(Some(&base), &new))
    };
    assert_eq!(judge(Predicate::generation_changed()), [true, false, false]);
    assert_eq!(judge(Predicate::labels_changed()), [false, true, false]);
    assert_eq!(judge(Predicate::annotations_changed()), [false, false, true]);
    assert_eq!(judge(Predicate::generation_changed().or(Predicate::annotations_changed())), [true, false, true]);
    assert_eq!(judge(Predicate::generation_changed().not()), [false, true, true]);
    assert!(Predicate::generation_changed().passes(None, &base), "an object that appeared");
}

/// How often a key runs, and when, for one answer.
async fn times(answer: fn(u32) -> Result<Action, Error>, max_retries: Option<u32>) -> (Vec<u128>, ControllerHandle) {
    let bench = Bench::new();
    bench.api.put(MAPS, config_map("a", "1"));
    let seen: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let log = seen.clone();
    let options = ControllerOptions { max_retries, reconcile_timeout: Duration::from_secs(1), ..Default::default() };
    let reconcile = move |_: Context, _: Key| {
        let mut seen = log.lock().unwrap();
        seen.push(Instant::now());
        let run = u32::try_from(seen.len()).unwrap();
        async move { answer(run) }
    };
    let handle = bench.start(bench.builder().options(options), reconcile).await;
    pass(Duration::from_millis(100)).await;
    let seen = seen.lock().unwrap();
    (seen.iter().map(|at| at.duration_since(seen[0]).as_millis()).collect(), handle)
}

#[tokio::test(start_paused = true)]
async fn answers_decide_when_a_key_runs_again() {
    let (runs, _) = times(|_| Ok(Action::done()), None).await;
    assert_eq!(runs, [0]);
    let (runs, handle) = times(|_| Ok(Action::requeue_after(Duration::from_millis(40))), None).await;
    assert_eq!((runs, handle.stats().requeue_after), (vec![0, 40, 80], 3));
    let (runs, handle) = times(|_| Err(Error::transient("no")), None).await;
    assert_eq!((runs, handle.stats().errors), (vec![0, 5, 15, 35, 75], 5));
    let (runs, handle) = times(|_| Err(Error::terminal("no")), None).await;
    assert_eq!((runs, handle.stats().terminal_errors), (vec![0], 1));
    let (runs, handle) = times(|_| Err(Error::conflict("lost")), None).await;
    assert_eq!((runs.len(), handle.stats().errors, handle.stats().requeue), (5, 0, 5));
    let (runs, handle) = times(|_| Err(Error::transient("no")), Some(2)).await;
    assert_eq!((runs, handle.stats().given_up), (vec![0, 5, 15], 1));
    let (runs, _) = times(|run| if run < 3 { Err(Error::transient("no")) } else { Ok(Action::done()) }, None).await;
    assert_eq!(runs, [0, 5, 15]);
    let (runs, handle) = times(|run| if run == 1 { panic!("on purpose") } else { Ok(Action::done()) }, None).await;
    assert_eq!((runs, handle.stats().panics), (vec![0, 5], 1));
    assert_eq!(handle.traces().all()[0].outcome, Outcome::Panicked("on purpose".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_takes_too_long_is_stopped_and_tried_again() {
    let bench = Bench::new();
    bench.api.put(MAPS, config_map("a", "1"));
    let options = ControllerOptions { reconcile_timeout: Duration::from_secs(1), ..ControllerOptions::default() };
    let handle = bench.start(bench.builder().options(options), |_: Context, _: Key| std::future::pending()).await;
    pass(Duration::from_millis(2020)).await;
    assert_eq!(handle.stats().timeouts, 2);
    assert_eq!(handle.stats().active_workers, 1);
}

#[test]
fn errors_of_the_api_are_sorted() {
    let sort = |code, reason: &str| {
        let status = kube::core::Status::failure("x", reason).with_code(code);
        match Error::from(kube::Error::Api(status.boxed())) {
            Error::Conflict(_) => "conflict",
            Error::Transient(_) => "transient",
            Error::Terminal(_) => "terminal",
        }
    };
    assert_eq!(sort(409, "Conflict"), "conflict");
    assert_eq!(sort(409, "AlreadyExists"), "transient");
    assert_eq!(sort(500, "InternalError"), "transient");
}

/// Counts up `status.count` of what it reads from the cache: wrong as soon as the cache is behind.
async fn count_up(context: Context, maps: Informer<ConfigMap>, key: Key) -> Result<Action, Error> {
    let Some(map) = context.read(&maps, &key) else { return Ok(Action::done()) };
    let count: u32 = map.data.as_ref().unwrap()["value"].parse().unwrap();
    if count >= 5 {
        return Ok(Action::done());
    }
    let api: Api<ConfigMap> = Api::namespaced(context.client().clone(), "default");
    let patch = json!({"data": {"value": (count + 1).to_string()}});
    api.patch(key.name(), &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(Action::requeue_after(Duration::from_millis(1)))
}

#[tokio::test(start_paused = true)]
async fn a_run_waits_until_the_cache_has_its_own_writes() {
    let bench = Bench::new();
    bench.api.put(MAPS, config_map("a", "4"));
    let maps = bench.maps.clone();
    let reconcile = move |context: Context, key: Key| count_up(context, maps.clone(), key);
    // The event of the write comes late.
    bench.maps.until_synced().await;
    bench.api.hide_events(1);
    let handle = bench.start(bench.builder(), reconcile).await;
    pass(Duration::from_millis(500)).await;
    assert_eq!(handle.stats().requeue_after, 1, "the second run waits");
    pass(Duration::from_millis(1000)).await;
    assert_eq!(handle.stats().stale, 1, "and is put off, so that other keys run");
    bench.api.cut_watches();
    pass(Duration::from_secs(5)).await;
    assert_eq!(bench.api.get(MAPS, "default/a").unwrap()["data"]["value"], "5");
    assert_eq!(bench.api.requests("PATCH").len(), 1, "nothing was decided from a stale cache");
    assert!(handle.stats().success >= 1);
}

#[tokio::test(start_paused = true)]
async fn creates_and_deletes_are_waited_for_too() {
    let bench = Bench::new();
    bench.api.put(MAPS, config_map("a", "1"));
    bench.secrets.until_synced().await;
    let (secrets, made) = (bench.secrets.clone(), Arc::new(Mutex::new(0)));
    let count = made.clone();
    let reconcile = move |context: Context, key: Key| {
        let (secrets, count) = (secrets.clone(), count.clone());
        async move {
            let api: Api<Secret> = Api::namespaced(context.client().clone(), "default");
            let child = Key::namespaced("default", "child");
            if context.read(&secrets, &child).is_none() && *count.lock().unwrap() < 4 {
                *count.lock().unwrap() += 1;
                let secret: Secret = serde_json::from_value(owned_secret("child", key.name())).unwrap();
                api.create(&PostParams::default(), &secret).await?;
            } else if *count.lock().unwrap() < 4 {
                *count.lock().unwrap() += 1;
                api.delete("child", &Default::default()).await?;
            }
            Ok(Action::requeue_after(Duration::from_millis(1)))
        }
    };
    let handle = bench.start(bench.builder().owns(&bench.secrets), reconcile).await;
    pass(Duration::from_millis(50)).await;
    assert_eq!(*made.lock().unwrap(), 4);
    assert_eq!(handle.stats().errors, 0, "never 'already exists', never 'not found'");
}

#[tokio::test(start_paused = true)]
async fn a_trace_tells_causes_versions_writes_result_and_next_run() {
    let bench = Bench::new();
    bench.api.put(MAPS, config_map("a", "4"));
    let maps = bench.maps.clone();
    let reconcile = move |context: Context, key: Key| count_up(context, maps.clone(), key);
    let handle = bench.start(bench.builder(), reconcile).await;
    bench.settle().await;
    let traces = handle.traces().of("test", "default/a");
    let first = serde_json::to_value(&traces[0]).unwrap();
    assert_eq!(
        first,
        json!({
            "controller": "test",
            "key": "default/a",
            "started": "2026-01-01T00:00:00Z",
            "tookSeconds": 0.0,
            "causes": {"first": [{"what": "added", "source": "ConfigMap default/a", "resourceVersion": "1"}]},
            "attempt": 0,
            "caches": [["ConfigMap", "1"]],
            "objectVersion": "1",
            "reads": [{"verb": "get", "group": "", "plural": "configmaps", "key": "default/a", "code": 200, "resourceVersion": "1"}],
            "writes": [{"verb": "patch", "group": "", "plural": "configmaps", "key": "default/a", "code": 200, "resourceVersion": "2"}],
            "outcome": {"result": "requeueAfter"},
            "nextRunSeconds": 0.001,
        })
    );
    assert_eq!(traces.last().unwrap().outcome, Outcome::Done);
    assert_eq!(handle.traces().json().as_array().unwrap().len(), traces.len());
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_wakes_itself_is_found_with_the_fields_that_flap() {
    let bench = Bench::new();
    bench.api.put(MAPS, config_map("a", "x"));
    let maps = bench.maps.clone();
    let reconcile = move |context: Context, key: Key| {
        let maps = maps.clone();
        async move {
            let Some(map) = context.read(&maps, &key) else { return Ok(Action::done()) };
            let version = map.metadata.resource_version.clone().unwrap();
            if version.parse::<u32>().unwrap() > 30 {
                return Ok(Action::done());
            }
            let api: Api<ConfigMap> = Api::namespaced(context.client().clone(), "default");
            let patch = json!({"data": {"seen": version, "other": "same"}});
            api.patch(key.name(), &PatchParams::default(), &Patch::Merge(patch)).await?;
            Ok(Action::done())
        }
    };
    let handle = bench.start(bench.builder(), reconcile).await;
    bench.settle().await;
    let found: Vec<_> = handle.traces().all().into_iter().filter_map(|trace| trace.hot_loop).collect();
    assert_eq!(found.iter().map(|found| found.runs).collect::<Vec<_>>(), [HOT_RUNS, 2 * HOT_RUNS, 4 * HOT_RUNS]);
    assert_eq!((found[0].object.as_str(), &*found[0].fields), ("configmaps default/a", &[".data.seen".to_owned()][..]));
    assert_eq!(handle.stats().hot_loops, 3);
}

#[tokio::test(start_paused = true)]
async fn a_machine_does_one_phase_per_run_and_writes_it_down() {
    let bench = Bench::new();
    bench.api.put(MAPS, json!({"metadata": {"namespace": "default", "name": "a"}}));
    let done: Arc<Mutex<Vec<&'static str>>> = Arc::default();
    let phase = |name: &'static str, next: Next| {
        let done = done.clone();
        move |_: Context, _: Arc<ConfigMap>| {
            done.lock().unwrap().push(name);
            async move { Ok(next) }
        }
    };
    let phases = Phases::new("Pending", |map: &ConfigMap| map.data.as_ref()?.get("phase").cloned())
        .phase("Pending", phase("Pending", Next::Go("Provisioning")))
        .phase("Provisioning", phase("Provisioning", Next::Go("Running")))
        .phase("Running", phase("Running", Next::Stay(Action::done())))
        .record(|context, map, phase| async move {
            let api: Api<ConfigMap> = Api::namespaced(context.client().clone(), "default");
            let patch = json!({"data": BTreeMap::from([("phase", phase)])});
            api.patch(map.metadata.name.as_deref().unwrap(), &PatchParams::default(), &Patch::Merge(patch)).await?;
            Ok(())
        });
    let (phases, maps) = (Arc::new(phases), bench.maps.clone());
    let reconcile = move |context: Context, key: Key| {
        let (phases, maps) = (phases.clone(), maps.clone());
        async move {
            match context.read(&maps, &key) {
                Some(map) => phases.run(context, map).await,
                None => Ok(Action::done()),
            }
        }
    };
    let handle = bench.start(bench.builder(), reconcile).await;
    bench.settle().await;
    assert_eq!(*done.lock().unwrap(), ["Pending", "Provisioning", "Running"]);
    let mut lost = config_map("b", "1");
    lost["data"] = json!({"phase": "Lost"});
    bench.api.put(MAPS, lost);
    bench.settle().await;
    assert_eq!(
        handle.traces().of("test", "default/b")[0].outcome,
        Outcome::Terminal("there is no phase \"Lost\"".to_owned())
    );
}

#[tokio::test(start_paused = true)]
async fn a_resync_wakes_all_keys_in_its_period() {
    let bench = Bench::new();
    bench.api.put(MAPS, config_map("a", "1"));
    let runs = Runs::default();
    let _handle = bench.start(bench.builder().resync(Duration::from_secs(60)), runs.reconciler()).await;
    pass(Duration::from_secs(150)).await;
    assert_eq!(runs.keys(), ["default/a", "default/a", "default/a"]);
}

#[tokio::test(start_paused = true)]
async fn draining_finishes_what_is_queued_and_takes_no_new_events() {
    let bench = Bench::new();
    for name in ["a", "b", "c"] {
        bench.api.put(MAPS, config_map(name, "1"));
    }
    let runs = Runs::default();
    let log = runs.clone();
    let reconcile = move |context: Context, key: Key| {
        log.note(&context, &key);
        async {
            pass(Duration::from_secs(1)).await;
            Ok(Action::requeue_after(Duration::from_secs(1)))
        }
    };
    bench.informers.until_synced().await;
    let controller = bench.builder().build(reconcile);
    let running = tokio::spawn(Box::new(controller).run(bench.lifecycle.clone()));
    bench.lifecycle.until_ready().await;
    bench.settle().await;
    bench.lifecycle.drain();
    tokio::task::yield_now().await;
    bench.api.put(MAPS, config_map("late", "1"));
    let start = Instant::now();
    running.await.unwrap().unwrap();
    assert_eq!(runs.keys(), ["default/a", "default/b", "default/c"]);
    assert!(start.elapsed() <= Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn stopping_does_not_wait() {
    let bench = Bench::new();
    bench.api.put(MAPS, config_map("a", "1"));
    let controller = bench.builder().build(|_: Context, _: Key| std::future::pending());
    let running = tokio::spawn(Box::new(controller).run(bench.lifecycle.clone()));
    bench.lifecycle.until_ready().await;
    bench.settle().await;
    let start = Instant::now();
    bench.lifecycle.stop();
    running.await.unwrap().unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn thousands_of_objects_and_a_thousand_changes_a_second_lose_no_key_and_run_none_twice_at_once() {
    let bench = Bench::new();
    for name in 0..3_000 {
        bench.api.put(MAPS, config_map(&format!("m{name}"), "0"));
    }
    let held: Arc<Mutex<Vec<Key>>> = Arc::default();
    let last: Arc<Mutex<BTreeMap<Key, String>>> = Arc::default();
    let (inside, seen, maps) = (held.clone(), last.clone(), bench.maps.clone());
    let reconcile = move |context: Context, key: Key| {
        let (inside, seen, maps) = (inside.clone(), seen.clone(), maps.clone());
        async move {
            assert!(!inside.lock().unwrap().contains(&key), "{key} runs twice at once");
            inside.lock().unwrap().push(key.clone());
            let map = context.read(&maps, &key).unwrap();
            pass(Duration::from_millis(2)).await;
            seen.lock().unwrap().insert(key.clone(), map.data.as_ref().unwrap()["value"].clone());
            inside.lock().unwrap().retain(|held| *held != key);
            Ok(Action::done())
        }
    };
    let options = ControllerOptions { workers: 8, ..ControllerOptions::default() };
    let handle = bench.start(bench.builder().options(options), reconcile).await;
    let chance = Chance::seeded(9);
    let mut expected: BTreeMap<Key, String> =
        (0..3_000).map(|name| (Key::namespaced("default", &format!("m{name}")), "0".to_owned())).collect();
    for change in 0..3_000_u32 {
        let name = format!("m{}", chance.below(3_000));
        bench.api.put(MAPS, config_map(&name, &change.to_string()));
        expected.insert(Key::namespaced("default", &name), change.to_string());
        pass(Duration::from_millis(1)).await;
    }
    pass(Duration::from_secs(10)).await;
    assert!(*last.lock().unwrap() == expected, "each key's last run saw its last state");
    let stats = handle.queue().stats();
    assert_eq!((stats.depth, stats.processing, handle.stats().errors), ([0; 3], 0, 0));
    assert!(handle.traces().all().len() <= 1000);
    assert!(handle.traces().all().iter().all(|trace| trace.causes.first.iter().all(|cause| cause.what != What::Retry)));
}
