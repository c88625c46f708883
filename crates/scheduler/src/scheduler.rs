//! The loop: takes the next pod, finds its node, and tells the API server. Bindings are on their way while the next pod is
//! looked at.

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use kube::Client;
use setpoint_runtime::clock::{Chance, Clock};
use setpoint_runtime::events::Recorder;
use setpoint_runtime::manager::{Lifecycle, RunError, Runnable};
use tokio::time::Instant;

use crate::DEFAULT;
use crate::acts::{Acts, Done};
use crate::feeds::Feeds;
use crate::profile::Profile;
use crate::sinks::Shared;

/// How many answers of the API server are waited for at once.
const ON_THE_WAY_MAX: usize = 128;

/// Pods to nodes, as a part of a manager.
pub struct Scheduler {
    client: Client,
    chance: Chance,
    acts: Acts,
    shared: Shared,
}

impl Scheduler {
    pub fn new(client: Client, clock: Clock, chance: Chance, recorder: Recorder, profiles: Vec<Profile>) -> Scheduler {
        let acts = Acts { client: client.clone(), clock, recorder };
        Scheduler { client, chance, acts, shared: Shared::new(profiles) }
    }

    /// Schedules for ever.
    async fn schedule(&self) {
        let mut on_the_way = FuturesUnordered::new();
        loop {
            while on_the_way.len() < ON_THE_WAY_MAX {
                let Some(next) = self.shared.with(|cluster| cluster.next(Instant::now())) else { break };
                on_the_way.push(self.acts.act(next));
            }
            let alarm = self.shared.with(|cluster| cluster.queue.next_alarm());
            tokio::select! {
                biased;
                Some(done) = on_the_way.next(), if !on_the_way.is_empty() => self.finish(done),
                () = self.shared.told(), if on_the_way.len() < ON_THE_WAY_MAX => {}
                () = sleep_until(alarm), if alarm.is_some() && on_the_way.len() < ON_THE_WAY_MAX => {}
            }
        }
    }

    fn finish(&self, done: Done) {
        self.shared.with(|cluster| match done {
            Done::Bound(pod) => cluster.bound(&pod.uid),
            Done::NotBound(pod) => cluster.not_bound(&pod.uid, Instant::now()),
            Done::NotPrepared(pod, steps) => cluster.not_prepared(&pod.uid, &steps, Instant::now()),
            Done::Told => {}
        });
    }
}

async fn sleep_until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

impl Runnable for Scheduler {
    fn name(&self) -> &str {
        DEFAULT
    }

    fn run(self: Box<Self>, lifecycle: Lifecycle) -> BoxFuture<'static, Result<(), RunError>> {
        Box::pin(async move {
            let feeds = Feeds::new(&self.client, &self.chance, &self.shared);
            let synced = feeds.synced();
            let schedule = async {
                // Before all pods are known, a node may seem to have room that it hasn't.
                for mut synced in synced {
                    // An error means that the feed is gone, and with it this task.
                    let _ = synced.wait_for(|it| *it).await;
                }
                lifecycle.ready();
                self.schedule().await;
            };
            tokio::select! {
                biased;
                () = lifecycle.draining() => {}
                () = feeds.run() => {}
                () = schedule => {}
            }
            Ok(())
        })
    }
}
