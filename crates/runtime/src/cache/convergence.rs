//! Whatever the server and the network do, a cache ends equal to the server, and what handlers were told adds up to it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use proptest::prelude::{Just, Strategy, any, prop_oneof};

use super::{Cached, Event, Informer, InformerOptions, Target};
use crate::clock::Chance;
use crate::fake_api::{FakeApi, config_map};

const PLURAL: &str = "configmaps";

#[derive(Clone, Debug)]
enum Step {
    Put(u8, u8),
    Delete(u8),
    Hide,
    Cut,
    Compact,
    Fail(u16),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0..6_u8, any::<u8>()).prop_map(|(name, value)| Step::Put(name, value)),
        3 => (0..6_u8).prop_map(Step::Delete),
        1 => Just(Step::Hide),
        2 => Just(Step::Cut),
        1 => Just(Step::Compact),
        1 => prop_oneof![Just(410_u16), Just(429), Just(500), Just(503)].prop_map(Step::Fail),
        3 => (0..3000_u64).prop_map(Step::Wait),
    ]
}

fn value(map: &ConfigMap) -> String {
    map.data.as_ref().map(|data| data["value"].clone()).unwrap_or_default()
}

/// What a handler was told, added up; a telling that doesn't fit what came before is a failure.
#[derive(Clone, Default)]
struct Sum(Arc<Mutex<BTreeMap<String, String>>>);

impl Sum {
    fn add(&self, event: &Event<ConfigMap>) -> Result<(), String> {
        let mut sum = self.0.lock().unwrap();
        let (key, new) = (event.object().key().to_string(), value(event.object()));
        let (known, fits) = match event {
            Event::Added { .. } => (sum.insert(key.clone(), new), None),
            Event::Updated { old, .. } => (sum.insert(key.clone(), new), Some(value(old))),
            Event::Deleted { .. } => (sum.remove(&key), sum.get(&key).cloned()),
        };
        let right = match event {
            Event::Added { .. } => known.is_none(),
            Event::Updated { .. } => known == fits,
            Event::Deleted { .. } => known.is_some(),
        };
        if right { Ok(()) } else { Err(format!("{:?} of {key} after {known:?}", event.what())) }
    }
}

async fn run(steps: Vec<Step>, streaming: bool) {
    let api = FakeApi::default();
    if !streaming {
        api.refuse_streaming();
    }
    let target = Target::of::<ConfigMap>(&(), None);
    let options = InformerOptions { page_size: 2, ..InformerOptions::default() };
    let informer = Informer::<ConfigMap>::new(api.client(), target, options, &Chance::seeded(5));
    let (sum, wrong): (Sum, Arc<Mutex<Vec<String>>>) = Default::default();
    let (log, failures) = (sum.clone(), wrong.clone());
    let handler = move |event: &Event<ConfigMap>| failures.lock().unwrap().extend(log.add(event).err());
    informer.add_handler(Box::new(handler), None).keep();
    let running = informer.clone();
    tokio::spawn(async move { running.run_until(std::future::pending()).await });
    for step in steps {
        match step {
            Step::Put(name, value) => drop(api.put(PLURAL, config_map(&format!("m{name}"), &value.to_string()))),
            Step::Delete(name) => api.delete(PLURAL, &format!("default/m{name}")),
            Step::Hide => api.hide_events(1),
            Step::Cut => api.cut_watches(),
            Step::Compact => api.compact(),
            Step::Fail(code) => api.fail_next("configmaps", code, if code == 410 { "Expired" } else { "Failed" }),
            Step::Wait(millis) => tokio::time::sleep(Duration::from_millis(millis)).await,
        }
    }
    // A hidden event is found only by a list, and a list comes when the window has moved on.
    api.hide_events(0);
    api.cut_watches();
    let version = api.put(PLURAL, config_map("last", "1"));
    api.compact();
    informer.progress().wait_for(|progress| *progress.resource_version == *version.to_string()).await.unwrap();
    let snapshot = informer.lister().snapshot();
    let cached: BTreeMap<_, _> = snapshot.iter().map(|map| (map.key().to_string(), value(map))).collect();
    assert_eq!(cached, api.all(PLURAL), "the cache is equal to the server");
    assert_eq!(*sum.0.lock().unwrap(), cached, "what was told adds up to the cache");
    assert_eq!(*wrong.lock().unwrap(), Vec::<String>::new());
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { cases: 64, max_shrink_iters: 100, ..Default::default() })]
    #[test]
    fn a_cache_ends_equal_to_the_server(steps in proptest::collection::vec(step(), 0..60), streaming in any::<bool>()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(run(steps, streaming));
    }
}
