//! FlowSchemas say whether the priority level that they name is there, and the defaults come back when somebody deletes them.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use serde_json::{Value, json};
use setpoint_api::{GroupResource, Status};
use setpoint_schema::Edit;
use setpoint_store::{Query, Selection, WatchError};
use tokio::time::Instant;

use crate::bootstrap;
use crate::conditions;
use crate::definitions::{RETRY_AFTER, change_status, follow, ignore_gone};
use crate::objects;
use crate::server::Inner;

const GROUP: &str = "flowcontrol.apiserver.k8s.io";

static SCHEMAS: LazyLock<GroupResource> = LazyLock::new(|| GroupResource::new(GROUP, "flowschemas"));
static LEVELS: LazyLock<GroupResource> = LazyLock::new(|| GroupResource::new(GROUP, "prioritylevelconfigurations"));

/// How long defaults that somebody deleted stay away. In Kubernetes it is as long at most.
const AWAY: Duration = Duration::from_secs(60);

/// Keeps their conditions true until the server stops.
pub(crate) async fn run(server: Arc<Inner>) {
    server.until_stopped(keep(&server)).await;
}

async fn keep(server: &Inner) {
    let mut back_at: Option<Instant> = None;
    loop {
        let (Ok(mut schemas), Ok(mut levels)) = (follow(&server.store, &SCHEMAS), follow(&server.store, &LEVELS))
        else {
            return;
        };
        let done = tell(server).await;
        if let Err(status) = &done {
            tracing::warn!(error = %status.message, "the conditions of FlowSchemas could not be written yet");
        }
        let are_missing = bootstrap::lacks_flow_control(server);
        back_at = are_missing.then(|| back_at.unwrap_or_else(|| Instant::now() + AWAY));
        tokio::select! {
            result = schemas.next() => if matches!(result, Err(WatchError::Closed)) { return },
            _ = levels.next() => {}
            () = tokio::time::sleep_until(back_at.unwrap_or_else(Instant::now)), if back_at.is_some() => {
                back_at = None;
                if let Err(status) = bootstrap::make_flow_control(server).await {
                    tracing::warn!(error = %status.message, "the defaults of flow control could not be made again yet");
                }
            }
            () = tokio::time::sleep(RETRY_AFTER), if done.is_err() => {}
        }
    }
}

async fn tell(server: &Inner) -> Result<(), Box<Status>> {
    let snapshot = server.store.snapshot();
    let selection = Selection::everything();
    let query = Query { resource: &SCHEMAS, namespace: None, selection: &selection, after: None, limit: None };
    for schema in snapshot.list(&query).items {
        let schema = objects::value(&schema);
        let level = schema["spec"]["priorityLevelConfiguration"].text("name");
        let wanted = dangling(level, snapshot.get(&LEVELS, None, level).is_some());
        if !conditions::has(&schema, &wanted) {
            let now = server.clock.timestamp();
            let mut change = |schema: &mut Value| conditions::set(schema, &wanted, &now);
            ignore_gone(change_status(server, &SCHEMAS, schema["metadata"].text("name"), &mut change).await)?;
        }
    }
    Ok(())
}

fn dangling(level: &str, is_there: bool) -> Value {
    let names = format!("This FlowSchema references the PriorityLevelConfiguration object named {level:?}");
    match is_there {
        true => {
            json!({"type": "Dangling", "status": "False", "reason": "Found", "message": format!("{names} and it exists")})
        }
        false => {
            let message = format!("{names} but there is no such object");
            json!({"type": "Dangling", "status": "True", "reason": "NotFound", "message": message})
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing::Server;

    #[tokio::test(start_paused = true)]
    async fn a_schema_says_whether_its_level_is_there() {
        let server = Server::tended().await;
        let schemas = format!("/apis/{GROUP}/v1/flowschemas");
        let spec = json!({"priorityLevelConfiguration": {"name": "later"}});
        server.done("POST", &schemas, json!({"metadata": {"name": "mine"}, "spec": spec})).await;
        let reason = async || {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let schema = server.done("GET", &format!("{schemas}/mine"), Value::Null).await;
            schema["status"]["conditions"][0]["reason"].as_str().map(str::to_owned)
        };
        assert_eq!(reason().await.as_deref(), Some("NotFound"));
        let limited = json!({"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}});
        let level = json!({"metadata": {"name": "later"}, "spec": limited});
        server.done("POST", &format!("/apis/{GROUP}/v1/prioritylevelconfigurations"), level).await;
        assert_eq!(reason().await.as_deref(), Some("Found"));
    }

    #[tokio::test(start_paused = true)]
    async fn defaults_that_somebody_deletes_are_back_within_a_minute() {
        let server = Server::tended().await;
        let paths = ["flowschemas/service-accounts", "prioritylevelconfigurations/workload-high"];
        let paths = paths.map(|path| format!("/apis/{GROUP}/v1/{path}"));
        for path in &paths {
            server.done("DELETE", path, Value::Null).await;
        }
        tokio::time::sleep(AWAY + Duration::from_secs(1)).await;
        for path in &paths {
            server.done("GET", path, Value::Null).await;
        }
    }
}
