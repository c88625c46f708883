//! Lets the dependents of an object go, and then the object itself.

use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};

use super::act::{Failure, ORPHAN, Place};
use super::identity::Identity;
use super::uid::Uid;
use super::{Collector, Next};

/// How many dependents are let go at once.
const AT_ONCE: usize = 32;

/// Takes one object after the other, until the queue is shut down and empty.
pub async fn work(collector: Arc<Collector>) {
    while let Some(item) = collector.to_orphan.get().await {
        let uid = item.key().clone();
        match collector.orphan(&uid).await {
            Ok(Next::Done) => collector.to_orphan.forget(&uid),
            Ok(Next::Again) => collector.to_orphan.add_rate_limited(uid),
            Err(failure) => {
                tracing::debug!(%failure, %uid, "dependents could not be let go and will be tried again");
                collector.to_orphan.add_rate_limited(uid);
            }
        }
        item.done();
    }
}

impl Collector {
    async fn orphan(&self, uid: &Uid) -> Result<Next, Failure> {
        let (item, dependents) = {
            let graph = self.graph();
            (graph.item(uid), graph.dependents_of(uid))
        };
        let Some(owner) = item.filter(|item| item.facts.is_orphaning()) else { return Ok(Next::Done) };
        let owners = [uid.to_string()];
        let letting_go: Vec<_> = dependents.iter().map(|dependent| self.let_go(dependent, &owners)).collect();
        stream::iter(letting_go).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
        let served = self.served();
        let place = Place::of(&self.client, &served, &owner.identity)?;
        place.remove_finalizer(ORPHAN, &self.chance).await?;
        Ok(Next::Done)
    }

    async fn let_go(&self, dependent: &Identity, owners: &[String]) -> Result<(), Failure> {
        let served = self.served();
        let place = Place::of(&self.client, &served, dependent)?;
        Ok(place.let_go(owners).await?)
    }
}
