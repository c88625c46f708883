//! One monitor for each kind that the server has.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use setpoint_runtime::cache::Feed;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use super::Collector;
use super::identity::TypeName;
use super::monitor::Monitor;
use crate::served::Resource;

/// A kind that is gone is followed for so long: the ends of its objects may still be under way.
const LEAVE_AFTER: Duration = Duration::from_secs(30);

/// What an object needs to be collected: without being seen it is unknown, and without a delete it stays.
const VERBS: [&str; 3] = ["delete", "list", "watch"];

/// The monitors of all kinds.
pub struct Monitors {
    collector: Arc<Collector>,
    tasks: JoinSet<()>,
    running: BTreeMap<Arc<Resource>, Running>,
}

struct Running {
    task: AbortHandle,
    synced: watch::Receiver<bool>,
    kind: Arc<TypeName>,
    /// When it ends, if its kind is gone.
    leaves: Option<Instant>,
}

impl Monitors {
    pub fn new(collector: &Arc<Collector>) -> Monitors {
        Monitors { collector: collector.clone(), tasks: JoinSet::new(), running: BTreeMap::new() }
    }

    /// Starts monitors for kinds that came, and ends those of kinds that have been gone for a while.
    pub fn settle(&mut self) {
        while self.tasks.try_join_next().is_some() {}
        let served = self.collector.served();
        let now = Instant::now();
        for resource in served.preferred.iter().filter(|resource| is_collected(resource)) {
            match self.running.get_mut(resource) {
                Some(running) => running.leaves = None,
                None => self.start(resource),
            }
        }
        for (resource, running) in &mut self.running {
            let is_served = served.preferred.contains(resource) || served.stale.contains(&resource.api_version());
            if !is_served && running.leaves.is_none() {
                running.leaves = Some(now + LEAVE_AFTER);
            }
        }
        let collector = &self.collector;
        self.running.retain(|_, running| {
            let stays = running.leaves.is_none_or(|moment| moment > now);
            if !stays {
                running.task.abort();
                collector.graph().forget_kind(&running.kind);
            }
            stays
        });
    }

    /// When the next monitor ends.
    pub fn next_leave(&self) -> Option<Instant> {
        self.running.values().filter_map(|running| running.leaves).min()
    }

    /// Waits until all kinds of this moment were seen.
    pub async fn synced(&self) {
        for running in self.running.values() {
            // An error means that the monitor has ended: its kind is gone.
            let _ = running.synced.clone().wait_for(|synced| *synced).await;
        }
    }

    /// Ends all.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
    }

    fn start(&mut self, resource: &Arc<Resource>) {
        let monitor = Monitor::new(&self.collector, resource);
        let kind = monitor.kind.clone();
        let (client, chance) = (self.collector.client.clone(), &self.collector.chance);
        let feed = Feed::new(client, Monitor::target(resource), chance, monitor);
        let synced = feed.synced();
        let task = self.tasks.spawn(async move { feed.run().await });
        self.running.insert(resource.clone(), Running { task, synced, kind, leaves: None });
    }
}

/// Events are many, own nothing, and go by themselves.
fn is_collected(resource: &Resource) -> bool {
    let is_event = matches!((&*resource.group, &*resource.plural), ("" | "events.k8s.io", "events"));
    resource.can(&VERBS) && !is_event
}
