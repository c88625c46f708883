//! Follows the objects of one target and hands them on. Nothing is kept here, so a sink keeps as little as it needs.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kube::Client;
use tokio::sync::watch;

use super::Cached;
use super::figures::Figures;
use super::measure::Measured;
use super::reflector::{self, Destination, PAGE_SIZE, Pace};
use super::wire::Target;
use crate::clock::Chance;

/// How long one page of a list may take.
const LIST_TIMEOUT: Duration = Duration::from_secs(60);

/// Takes what a [`Feed`] is told, in order, one call at a time. Calls must be quick.
///
/// ```
/// use std::collections::BTreeSet;
/// use std::sync::Mutex;
/// use k8s_openapi::api::core::v1::Pod;
/// use setpoint_runtime::Key;
/// use setpoint_runtime::cache::{Cached, Sink};
///
/// /// Keeps the names of pods and nothing else of them.
/// #[derive(Default)]
/// struct Names {
///     known: Mutex<BTreeSet<Key>>,
///     listed: Mutex<BTreeSet<Key>>,
/// }
///
/// impl Sink for Names {
///     type Object = Pod;
///
///     fn listing(&self) {
///         self.listed.lock().unwrap().clear();
///     }
///
///     fn seen(&self, pod: Pod) {
///         self.known.lock().unwrap().insert(pod.key());
///         self.listed.lock().unwrap().insert(pod.key());
///     }
///
///     fn gone(&self, pod: Pod) {
///         self.known.lock().unwrap().remove(&pod.key());
///         self.listed.lock().unwrap().remove(&pod.key());
///     }
///
///     fn listed(&self) {
///         *self.known.lock().unwrap() = std::mem::take(&mut *self.listed.lock().unwrap());
///     }
/// }
///
/// let names = Names::default();
/// names.seen(serde_json::from_value(serde_json::json!({"metadata": {"namespace": "shop", "name": "a"}})).unwrap());
/// assert!(names.known.lock().unwrap().contains("shop/a"));
/// ```
pub trait Sink: Send + Sync + 'static {
    /// What it reads of an object.
    type Object: Cached;

    /// A list begins. If it isn't followed by [`listed`](Sink::listed) before the next one, it failed.
    fn listing(&self);

    /// An object is there: new, changed, or as it was.
    fn seen(&self, object: Self::Object);

    /// An object is gone.
    fn gone(&self, object: Self::Object);

    /// The list is complete: what was not seen since it began is gone.
    fn listed(&self);
}

/// Follows the objects of one target like an [`Informer`](super::Informer), without keeping them.
pub struct Feed<S> {
    client: Client,
    target: Target,
    chance: Chance,
    sink: S,
    version: Mutex<Arc<str>>,
    synced: watch::Sender<bool>,
    figures: Figures,
}

impl<S: Sink> Feed<S> {
    /// A feed that has not started.
    #[must_use]
    pub fn new(client: Client, target: Target, chance: &Chance, sink: S) -> Self {
        let chance = chance.fork(&format!("feed {}", target.path));
        Self {
            client,
            target,
            chance,
            sink,
            version: Mutex::new("".into()),
            synced: watch::Sender::new(false),
            figures: Figures::default(),
        }
    }

    /// Whether the first list is complete, and every step from here.
    #[must_use]
    pub fn synced(&self) -> watch::Receiver<bool> {
        self.synced.subscribe()
    }

    /// Follows the API server for ever.
    pub async fn run(&self) {
        reflector::follow(self).await;
    }

    fn reach(&self, version: &str) {
        *self.version.lock().unwrap_or_else(PoisonError::into_inner) = version.into();
    }
}

impl<S: Sink> Destination for Feed<S> {
    type Object = S::Object;
    type Batch = ();

    fn client(&self) -> &Client {
        &self.client
    }

    fn target(&self) -> &Target {
        &self.target
    }

    fn chance(&self) -> &Chance {
        &self.chance
    }

    fn pace(&self) -> Pace {
        Pace { page_size: PAGE_SIZE, list_timeout: LIST_TIMEOUT, streaming_lists: true }
    }

    fn resource_version(&self) -> Arc<str> {
        self.version.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn begin(&self) {
        self.sink.listing();
    }

    fn put(&self, (): &mut (), decoded: Measured<S::Object>) {
        self.sink.seen(decoded.value);
    }

    fn take(&self, (): &mut (), decoded: Measured<S::Object>) {
        self.sink.gone(decoded.value);
    }

    fn replace(&self, (): (), resource_version: &str) {
        self.sink.listed();
        self.reach(resource_version);
        self.synced.send_replace(true);
    }

    fn upsert(&self, decoded: Measured<S::Object>) {
        self.reach(decoded.value.resource_version());
        self.sink.seen(decoded.value);
    }

    fn delete(&self, decoded: Measured<S::Object>) {
        self.reach(decoded.value.resource_version());
        self.sink.gone(decoded.value);
    }

    fn bookmark(&self, version: &str) {
        self.reach(version);
    }

    fn figures(&self) -> &Figures {
        &self.figures
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;
    use crate::fake_api::{FakeApi, config_map, pass};

    const PLURAL: &str = "configmaps";

    /// What it was told, in short.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<String>>>);

    impl Log {
        fn note(&self, line: String) {
            self.0.lock().unwrap().push(line);
        }

        fn take(&self) -> Vec<String> {
            std::mem::take(&mut self.0.lock().unwrap())
        }
    }

    impl Sink for Log {
        type Object = ConfigMap;

        fn listing(&self) {
            self.note("listing".to_owned());
        }

        fn seen(&self, object: ConfigMap) {
            self.note(format!("seen {}", object.key()));
        }

        fn gone(&self, object: ConfigMap) {
            self.note(format!("gone {}", object.key()));
        }

        fn listed(&self) {
            self.note("listed".to_owned());
        }
    }

    async fn check(api: FakeApi) {
        api.put(PLURAL, config_map("a", "1"));
        let log = Log::default();
        let target = Target::of::<ConfigMap>(&(), None);
        let feed = Arc::new(Feed::new(api.client(), target, &Chance::seeded(1), log.clone()));
        let running = feed.clone();
        tokio::spawn(async move { running.run().await });
        // The sender lives as long as the feed.
        let _ = feed.synced().wait_for(|synced| *synced).await;
        assert_eq!(log.take(), ["listing", "seen default/a", "listed"]);
        api.put(PLURAL, config_map("b", "1"));
        api.delete(PLURAL, "default/a");
        pass(Duration::from_secs(1)).await;
        assert_eq!(log.take(), ["seen default/b", "gone default/a"]);
        api.hide_events(1);
        api.put(PLURAL, config_map("c", "1"));
        api.compact();
        api.cut_watches();
        pass(Duration::from_secs(60)).await;
        assert_eq!(log.take(), ["listing", "seen default/b", "seen default/c", "listed"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_sink_is_told_what_lists_and_watches_say() {
        check(FakeApi::default()).await;
        let old = FakeApi::default();
        old.refuse_streaming();
        check(old).await;
    }
}
