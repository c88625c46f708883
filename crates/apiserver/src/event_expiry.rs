//! Events go an hour after they were last written, so that what happened once doesn't fill the store for ever.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use setpoint_api::time::Timestamp;
use setpoint_schema::Edit;
use setpoint_store::{Change, Expectation, Query, Selection};

use crate::objects;
use crate::registry::Served;
use crate::server::Inner;

/// How long an event is kept. Same as Kubernetes.
pub(crate) const KEPT: Duration = Duration::from_secs(3_600);

/// How often old ones are looked for: an event stays at most so much longer.
const LOOK_EVERY: Duration = Duration::from_secs(300);

/// So many are looked at before others have their turn.
const AT_ONCE: usize = 256;

/// Removes old events until the server stops, unless the store does.
pub(crate) async fn run(server: Arc<Inner>) {
    if server.store.expires() {
        return;
    }
    server.until_stopped(keep(&server)).await;
}

async fn keep(server: &Inner) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if let Some(served) = server.registry.find("", "v1", "events") {
            remove_old(server, served).await;
        }
    }
}

async fn remove_old(server: &Inner, served: &Served) {
    let oldest = server.clock.seconds().saturating_sub_unsigned(KEPT.as_secs());
    let selection = Selection::everything();
    let query = Query { resource: &served.stored, namespace: None, selection: &selection, after: None, limit: None };
    for (at, object) in server.store.snapshot().list(&query).items.iter().enumerate() {
        if at % AT_ONCE == AT_ONCE - 1 {
            tokio::task::yield_now().await;
        }
        let event = objects::value(object);
        if last_written(&event).is_none_or(|moment| moment >= oldest) {
            continue;
        }
        let metadata = &event["metadata"];
        let key = objects::key(served, Some(metadata.text("namespace")), metadata.text("name"));
        let delete = Change::delete(key, Expectation::Unchanged(object.revision()));
        // One that was written meanwhile, or is gone, needs nothing; one that could not be removed is found again.
        if let Err(error) = server.store.commit(objects::transaction(served, delete)).await {
            tracing::debug!(%error, "an old event could not be removed yet");
        }
    }
}

/// When an event was last written, in seconds since 1970, as far as it says so.
fn last_written(event: &Value) -> Option<i64> {
    let metadata = &event["metadata"];
    let fields = metadata["managedFields"].as_array().map_or(&[][..], Vec::as_slice);
    let times = [&metadata["creationTimestamp"], &event["lastTimestamp"], &event["series"]["lastObservedTime"]];
    let times = times.into_iter().chain(fields.iter().map(|field| &field["time"]));
    times.filter_map(Value::as_str).filter_map(|text| Some(Timestamp::parse(text).ok()?.seconds)).max()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::Server;

    const EVENTS: &str = "/api/v1/namespaces/default/events";

    #[tokio::test(start_paused = true)]
    async fn an_event_goes_an_hour_after_it_was_last_written() {
        let server = Server::tended().await;
        let about = json!({"kind": "Pod", "namespace": "default", "name": "web"});
        for name in ["once", "again"] {
            let event = json!({"metadata": {"name": name}, "involvedObject": about, "reason": "Seen"});
            server.done("POST", EVENTS, event).await;
        }
        let names = async || {
            let list = server.done("GET", EVENTS, Value::Null).await;
            let items = list["items"].as_array().cloned().unwrap_or_default();
            items.iter().map(|item| item["metadata"].text("name").to_owned()).collect::<Vec<_>>()
        };
        tokio::time::sleep(KEPT / 2).await;
        server.done("PATCH", &format!("{EVENTS}/again"), json!({"count": 2})).await;
        assert_eq!(names().await, ["again", "once"]);
        tokio::time::sleep(KEPT / 2 + 2 * LOOK_EVERY).await;
        assert_eq!(names().await, ["again"]);
        tokio::time::sleep(KEPT / 2 + 2 * LOOK_EVERY).await;
        assert!(names().await.is_empty());
    }
}
