//! Quotas: a namespace never gets more than it was given.
//!
//! What a write takes is added to the status of the quotas in the write's own transaction, so a quota can't be overdrawn, however
//! many write at once, and a write that fails takes nothing. Writers of one namespace wait for each other instead of
//! running into conflicts. What is given back is counted by the quota's controller.

mod scopes;
mod usage;

use std::hash::{BuildHasher, RandomState};

use serde_json::Value;
use setpoint_api::Status;
use setpoint_schema::Edit;
use setpoint_store::{Change, CommitError, Expectation, Object};
use tokio::sync::{Mutex, MutexGuard};

use self::usage::Charged;
use super::amounts::Amounts;
use super::{QUOTAS, forbidden, stored_in_namespace};
use crate::call::Call;
use crate::objects;

/// How often a write is tried again if somebody else wrote to its quotas.
pub(crate) const CONFLICT_TRIES_MAX: usize = 16;

/// Namespaces share so many queues.
const QUEUES: usize = 64;

/// Where writers wait for others that write to the same quotas.
pub(crate) struct Queues {
    queues: [Mutex<()>; QUEUES],
    hash: RandomState,
}

impl Default for Queues {
    fn default() -> Queues {
        Queues { queues: std::array::from_fn(|_| Mutex::new(())), hash: RandomState::new() }
    }
}

/// What quotas have to record of a write, in its own transaction. Others wait for as long as this is held.
#[derive(Default)]
pub(crate) struct Charge<'a> {
    changes: Vec<Change>,
    _turn: Option<MutexGuard<'a, ()>>,
}

impl Charge<'_> {
    /// Whether any quota is charged.
    pub(crate) fn is_made(&self) -> bool {
        self._turn.is_some()
    }

    /// The changes of quotas, to be made together with the write.
    pub(crate) fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }
}

/// Whether a commit failed only because quotas were written meanwhile.
pub(crate) fn is_lost_race(error: &CommitError) -> bool {
    let (CommitError::Conflict { key, .. } | CommitError::Missing { key }) = error else { return false };
    key.resource().group.is_empty() && &*key.resource().resource == "resourcequotas"
}

/// Refuses a write for which a quota has nothing left, or says what the quotas have to record of it. `old` is the object
/// that it replaces.
pub(crate) async fn charge<'a>(
    call: &Call<'a>,
    new: &Value,
    old: Option<&Value>,
    dry_run: bool,
) -> Result<Charge<'a>, Box<Status>> {
    let Some(namespace) = call.namespace.filter(|_| call.kind().namespaced) else { return Ok(Charge::default()) };
    if stored_in_namespace(call, &QUOTAS).is_empty() {
        return Ok(Charge::default());
    }
    let Some(charged) = Charged::of(call, new, old) else { return Ok(Charge::default()) };
    let queues = &call.server.quota_queues;
    let index = usize::try_from(queues.hash.hash_one(namespace)).unwrap_or(usize::MAX) % QUEUES;
    let turn = queues.queues[index].lock().await;
    let mut changes = Vec::new();
    let kinds = call.server.registry.find("", "v1", "resourcequotas");
    for stored in stored_in_namespace(call, &QUOTAS) {
        let Some(quota) = check(call, &charged, &stored)? else { continue };
        let Some(served) = kinds.filter(|_| !dry_run) else { continue };
        let key = objects::key(served, Some(namespace), quota["metadata"].text("name"));
        changes.push(objects::put_change(served, key, Expectation::Unchanged(stored.revision()), &quota));
    }
    Ok(Charge { changes, _turn: Some(turn) })
}

/// The quota with what the write takes, if it takes something of it.
fn check(call: &Call<'_>, charged: &Charged<'_>, stored: &Object) -> Result<Option<Value>, Box<Status>> {
    let mut quota = objects::value(stored);
    let (hard, used) = (Amounts::read(&quota["status"]["hard"]), Amounts::read(&quota["status"]["used"]));
    let restricted: Vec<&str> = hard.names().filter(|name| charged.counts(name)).collect();
    if restricted.is_empty() || !charged.is_meant_by(&quota) {
        return Ok(None);
    }
    let refused = |why: String| Err(forbidden(call, charged.new, why));
    let name = quota["metadata"].text("name").to_owned();
    if let Some(missing) = charged.missing(&restricted) {
        return refused(format!("failed quota: {name}: {missing}"));
    }
    if !restricted.iter().all(|resource| used.has(resource)) {
        return refused(format!("status unknown for quota: {name}, resources: {}", restricted.join(",")));
    }
    let taken = charged.taken(&quota);
    if let Some(negative) = charged.negative() {
        return refused(format!("quota usage is negative for resource(s): {negative}"));
    }
    let requested = taken.filtered(|resource, amount| hard.has(resource) && !amount.is_zero());
    if requested.is_empty() {
        return Ok(None);
    }
    let mut total = used.clone();
    total.extend(&requested);
    let is_over = |resource: &str| total.get(resource) > hard.get(resource);
    let over = requested.filtered(|resource, _| is_over(resource));
    if !over.is_empty() && call.subresource != Some("status") {
        let (before, limits) = (used.filtered(|name, _| over.has(name)), hard.filtered(|name, _| over.has(name)));
        let (requested, before, limits) = (over.listed(), before.listed(), limits.listed());
        return refused(format!("exceeded quota: {name}, requested: {requested}, used: {before}, limited: {limits}"));
    }
    quota.ensure("status").set("used", total.to_value());
    Ok(Some(quota))
}
