//! Events in the form in which Kubernetes' own controllers write them.

use k8s_openapi::api::core::v1::{self as core, EventSource};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

/// An event with a source, its first and last time, and how often it was seen.
pub(super) fn written(event: &Event, names_host: bool) -> core::Event {
    let first = event.event_time.as_ref().map(|time| time.0);
    let last = event.series.as_ref().map(|series| series.last_observed_time.0).or(first);
    let host = event.reporting_instance.clone().filter(|_| names_host);
    core::Event {
        metadata: event.metadata.clone(),
        involved_object: event.regarding.clone().unwrap_or_default(),
        related: event.related.clone(),
        reason: event.reason.clone(),
        message: event.note.clone(),
        type_: event.type_.clone(),
        source: Some(EventSource { component: event.reporting_controller.clone(), host: host.clone() }),
        reporting_component: event.reporting_controller.clone(),
        reporting_instance: host,
        first_timestamp: first.map(whole_second),
        last_timestamp: last.map(whole_second),
        count: Some(event.series.as_ref().map_or(1, |series| series.count)),
        ..core::Event::default()
    }
}

/// What there is to change once it was seen again.
pub(super) fn change(event: &core::Event) -> Value {
    json!({"count": event.count, "lastTimestamp": event.last_timestamp, "message": event.message})
}

/// Times of this form have no fractions.
fn whole_second(time: Timestamp) -> Time {
    Time(Timestamp::from_second(time.as_second()).unwrap_or(time))
}
