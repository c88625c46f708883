//! Looks at one object: is it still owned, and if not, away with it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use setpoint_runtime::retry;

use super::act::{FOREGROUND, Failure, ORPHAN, Place};
use super::graph::{Item, Reference};
use super::identity::Identity;
use super::node::Facts;
use super::plan::{self, Situation, Standing, Verdict};
use super::uid::Uid;
use super::{Collector, Next};

/// Takes one object after the other, until the queue is shut down and empty.
pub async fn work(collector: Arc<Collector>) {
    while let Some(item) = collector.to_judge.get().await {
        let uid = item.key().clone();
        let turn = AssertUnwindSafe(collector.judge(&uid)).catch_unwind().await;
        match turn {
            Ok(Ok(Next::Done)) => collector.to_judge.forget(&uid),
            // It can't be judged, and trying again doesn't help.
            Ok(Err(Failure::NoNamespace)) => collector.to_judge.forget(&uid),
            Ok(Ok(Next::Again)) => collector.to_judge.add_rate_limited(uid),
            Ok(Err(failure)) => {
                tracing::debug!(%failure, %uid, "an object could not be looked at and will be again");
                collector.to_judge.add_rate_limited(uid);
            }
            Err(_) => {
                tracing::error!(%uid, "the garbage collector panicked over an object");
                collector.to_judge.add_rate_limited(uid);
            }
        }
        item.done();
    }
}

impl Collector {
    async fn judge(&self, uid: &Uid) -> Result<Next, Failure> {
        if self.delete_unowned(uid).await? {
            return Ok(Next::Done);
        }
        let Some(item) = self.graph().item(uid) else { return Ok(Next::Done) };
        if item.facts.deleting && !item.facts.is_waiting() {
            // Nothing stops it any more; its dependents are looked at when it is gone.
            return Ok(Next::Done);
        }
        let served = self.served();
        let place = Place::of(&self.client, &served, &item.identity)?;
        let found = place.get().await?.filter(|found| found.uid.as_deref().map(Uid::from).as_ref() == Some(uid));
        let Some(found) = found else {
            self.lost(&place);
            return Ok(Next::Done);
        };
        if item.facts.is_waiting() {
            self.wait_for_dependents(&place).await?;
        } else {
            self.judge_owners(&place, &item, &found).await?;
        }
        // One that was only spoken of is there, but its monitor doesn't say so yet; it may also go unseen.
        Ok(if item.is_observed { Next::Done } else { self.is_still_unseen(uid) })
    }

    fn is_still_unseen(&self, uid: &Uid) -> Next {
        match self.graph().item(uid) {
            Some(item) if !item.is_observed => Next::Again,
            _ => Next::Done,
        }
    }

    /// Deletes an object without asking first, if the graph is sure and the server agrees that it hasn't changed since.
    async fn delete_unowned(&self, uid: &Uid) -> Result<bool, Failure> {
        let Some(unowned) = self.graph().unowned(uid) else { return Ok(false) };
        let served = self.served();
        let place = Place::of(&self.client, &served, &unowned.identity)?;
        match place.delete(Some(unowned.version.to_string()), plan::policy(unowned.facts)).await {
            Ok(()) => Ok(true),
            Err(error) if retry::is_not_found(&error) => {
                self.lost(&place);
                Ok(true)
            }
            Err(error) if retry::is_conflict(&error) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The server has no such object.
    fn lost(&self, place: &Place<'_>) {
        let (identity, is_namespaced) = (place.identity.clone(), place.resource.is_namespaced);
        self.change(|graph, effects| graph.not_found(identity, is_namespaced, effects));
    }

    /// An object that is being deleted lets its dependents go first.
    async fn wait_for_dependents(&self, place: &Place<'_>) -> Result<(), Failure> {
        let blocking = self.graph().blocking(&place.identity.uid);
        if blocking.is_empty() {
            place.remove_finalizer(FOREGROUND, &self.chance).await?;
        }
        for (dependent, waits) in blocking {
            if !waits {
                self.to_judge.add(dependent);
            }
        }
        Ok(())
    }

    async fn judge_owners(&self, place: &Place<'_>, item: &Item, found: &ObjectMeta) -> Result<(), Failure> {
        let owners = found.owner_references.as_deref().unwrap_or_default();
        let mut standings = Vec::with_capacity(owners.len());
        for owner in owners {
            standings.push(self.standing(&Reference::from(owner.clone()), &item.identity).await?);
        }
        let (has_dependents, dependent_waits) = self.graph().dependents_wait(&item.identity.uid);
        let situation = Situation { has_dependents, dependent_waits, facts: facts(found) };
        match plan::plan(&standings, situation) {
            Verdict::Keep => {}
            Verdict::LetGo(places) => {
                let uids: Vec<String> = places.into_iter().map(|place| owners[place].uid.clone()).collect();
                place.let_go(&uids).await?;
            }
            Verdict::Delete { policy, unblock } => {
                let mut seen = found.clone();
                if unblock {
                    place.unblock(found).await?;
                    let Some(now) = place.get().await? else { return Ok(()) };
                    seen = now;
                }
                match place.delete_as_seen(&seen, policy).await {
                    Err(error) if retry::is_not_found(&error) => self.lost(place),
                    answer => answer?,
                }
            }
        }
        Ok(())
    }

    /// How an owner is. Only the server's word counts; that one is absent is remembered, it never comes back.
    async fn standing(&self, reference: &Reference, dependent: &Identity) -> Result<Standing, Failure> {
        let namespace = dependent.namespace.as_deref().map(|namespace| &**namespace);
        if self.graph().is_absent_reference(reference, namespace) {
            return Ok(Standing::Dangling);
        }
        let mut owner = self.graph().identity_of(reference, namespace);
        let served = self.served();
        let found = {
            let place = Place::of(&self.client, &served, &owner)?;
            let is_namespaced = place.resource.is_namespaced;
            let found = place.get().await?;
            if !is_namespaced {
                owner.namespace = None;
            }
            found
        };
        match found.filter(|found| found.uid.as_deref().map(Uid::from).as_ref() == Some(&reference.uid)) {
            None => {
                self.graph().absent.add(owner);
                Ok(Standing::Dangling)
            }
            Some(found) if facts(&found).is_waiting() => Ok(Standing::Waiting),
            Some(_) => Ok(Standing::Solid),
        }
    }
}

fn facts(found: &ObjectMeta) -> Facts {
    let has = |finalizer: &str| found.finalizers.iter().flatten().any(|name| name == finalizer);
    Facts { deleting: found.deletion_timestamp.is_some(), orphans: has(ORPHAN), waits: has(FOREGROUND) }
}
