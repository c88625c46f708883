//! Every setting once: its key, and how a value is read into it.

use std::time::Duration;

use serde_json::Value;
use setpoint_api::fields;
use setpoint_api::labels::Selector;
use setpoint_api::time::parse_duration;

use super::settings::{Program, Settings, WORKERS_MAX};

/// Reads a value into its place, or says what it must be.
type Read<T> = fn(&mut T, &Value) -> Result<(), String>;

/// What every controller can have of its own.
pub(super) const TABLE: [(&str, Read<Settings>); 14] = [
    ("workers", |to, value| set(&mut to.workers, workers(value))),
    ("queue.maxRetries", |to, value| set(&mut to.queue.max_retries, or_none(value, |it| whole(it, 0, u32::MAX)))),
    ("queue.baseDelay", |to, value| set(&mut to.queue.base_delay, span(value))),
    ("queue.maxDelay", |to, value| set(&mut to.queue.max_delay, span(value))),
    ("queue.qps", |to, value| set(&mut to.queue.qps, rate(value))),
    ("queue.burst", |to, value| set(&mut to.queue.burst, whole(value, 1, u32::MAX))),
    ("reconcile.timeout", |to, value| set(&mut to.reconcile.timeout, span(value))),
    ("reconcile.resyncPeriod", |to, value| set(&mut to.reconcile.resync_period, or_none(value, span))),
    ("reconcile.maxConcurrent", |to, value| set(&mut to.reconcile.max_concurrent, workers(value))),
    ("cache.labelSelector", |to, value| set(&mut to.cache.label_selector, or_none(value, labels))),
    ("cache.fieldSelector", |to, value| set(&mut to.cache.field_selector, or_none(value, field_selector))),
    ("cache.pageSize", |to, value| set(&mut to.cache.page_size, whole(value, 1, 10_000))),
    ("cache.listTimeout", |to, value| set(&mut to.cache.list_timeout, span(value))),
    ("cache.streamingLists", |to, value| set(&mut to.cache.streaming_lists, truth(value))),
];

/// What a whole program has once.
pub(super) const PROGRAM: [(&str, Read<Program>); 11] = [
    ("leaderElection.enabled", |to, value| set(&mut to.election.enabled, truth(value))),
    ("leaderElection.namespace", |to, value| set(&mut to.election.namespace, or_none(value, word))),
    ("leaderElection.name", |to, value| set(&mut to.election.name, or_none(value, word))),
    ("leaderElection.identity", |to, value| set(&mut to.election.identity, or_none(value, word))),
    ("leaderElection.leaseDuration", |to, value| set(&mut to.election.lease_duration, span(value))),
    ("leaderElection.renewDeadline", |to, value| set(&mut to.election.renew_deadline, span(value))),
    ("leaderElection.retryPeriod", |to, value| set(&mut to.election.retry_period, span(value))),
    ("leaderElection.releaseOnExit", |to, value| set(&mut to.election.release_on_exit, truth(value))),
    ("client.qps", |to, value| set(&mut to.client.qps, or_none(value, rate))),
    ("client.burst", |to, value| set(&mut to.client.burst, whole(value, 1, u32::MAX))),
    ("client.retries", |to, value| set(&mut to.client.retries, whole(value, 0, RETRIES_MAX))),
];

/// Most times that a request is sent again: beyond it there is no server, only the hope for one.
const RETRIES_MAX: u32 = 100;

fn set<T>(place: &mut T, value: Result<T, String>) -> Result<(), String> {
    *place = value?;
    Ok(())
}

/// From files values have types, from elsewhere they are text.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// An empty value means none.
fn or_none<T>(value: &Value, read: impl FnOnce(&Value) -> Result<T, String>) -> Result<Option<T>, String> {
    if value.is_null() || value.as_str() == Some("") { Ok(None) } else { read(value).map(Some) }
}

fn word(value: &Value) -> Result<String, String> {
    value.as_str().map(str::to_owned).ok_or_else(|| "must be text".to_owned())
}

fn whole(value: &Value, least: u32, most: u32) -> Result<u32, String> {
    let found = text(value).parse().ok().filter(|found| (least..=most).contains(found));
    found.ok_or_else(|| format!("must be a whole number from {least} to {most}"))
}

fn workers(value: &Value) -> Result<usize, String> {
    let most = u32::try_from(WORKERS_MAX).unwrap_or(u32::MAX);
    whole(value, 1, most).map(|count| usize::try_from(count).unwrap_or(WORKERS_MAX))
}

fn rate(value: &Value) -> Result<f64, String> {
    let found: f64 = text(value).parse().map_err(|_| "must be a number".to_owned())?;
    if found.is_finite() && found > 0.0 { Ok(found) } else { Err("must be greater than zero".to_owned()) }
}

fn span(value: &Value) -> Result<Duration, String> {
    let wrong = || "must be a duration greater than zero, such as 30s or 5m".to_owned();
    let nanos = value.as_str().and_then(|text| parse_duration(text).ok()).and_then(|nanos| u64::try_from(nanos).ok());
    nanos.filter(|nanos| *nanos > 0).map(Duration::from_nanos).ok_or_else(wrong)
}

fn truth(value: &Value) -> Result<bool, String> {
    text(value).parse().map_err(|_| "must be true or false".to_owned())
}

fn labels(value: &Value) -> Result<String, String> {
    let text = text(value);
    Selector::parse(&text).map_err(|error| format!("must be a label selector: {error}"))?;
    Ok(text)
}

fn field_selector(value: &Value) -> Result<String, String> {
    let text = text(value);
    fields::Selector::parse(&text).map_err(|error| format!("must be a field selector: {error}"))?;
    Ok(text)
}
