//! APIServices that point to a Service say whether it is there to be asked.
//!
//! Requests are not passed on to other API servers yet, so one whose Service is there and has endpoints is not available either, and
//! says why.

use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};
use setpoint_api::{GroupResource, Status};
use setpoint_schema::Edit;
use setpoint_store::{Query, Selection, Snapshot, WatchError};

use crate::conditions;
use crate::definitions::api_services::MANAGED;
use crate::definitions::{RETRY_AFTER, change_status, follow, ignore_gone};
use crate::objects;
use crate::server::Inner;

static API_SERVICES: LazyLock<GroupResource> =
    LazyLock::new(|| GroupResource::new("apiregistration.k8s.io", "apiservices"));
static SERVICES: LazyLock<GroupResource> = LazyLock::new(|| GroupResource::new("", "services"));
static SLICES: LazyLock<GroupResource> = LazyLock::new(|| GroupResource::new("discovery.k8s.io", "endpointslices"));

/// Keeps their conditions true until the server stops.
pub(crate) async fn run(server: Arc<Inner>) {
    server.until_stopped(keep(&server)).await;
}

async fn keep(server: &Inner) {
    loop {
        let Ok(mut api_services) = follow(&server.store, &API_SERVICES) else { return };
        let (Ok(mut services), Ok(mut slices)) = (follow(&server.store, &SERVICES), follow(&server.store, &SLICES))
        else {
            return;
        };
        let done = tell(server).await;
        if let Err(status) = &done {
            tracing::warn!(error = %status.message, "the conditions of APIServices could not be written yet");
        }
        // Services and their endpoints change often, and matter to nobody as long as no APIService points to one.
        let points = matches!(done, Ok(count) if count > 0);
        tokio::select! {
            result = api_services.next() => if matches!(result, Err(WatchError::Closed)) { return },
            _ = services.next(), if points => {}
            _ = slices.next(), if points => {}
            () = tokio::time::sleep(RETRY_AFTER), if done.is_err() => {}
        }
    }
}

/// Writes what is not so any more. How many APIServices point to a Service.
async fn tell(server: &Inner) -> Result<usize, Box<Status>> {
    let snapshot = server.store.snapshot();
    let selection = Selection::everything();
    let query = Query { resource: &API_SERVICES, namespace: None, selection: &selection, after: None, limit: None };
    let mut count = 0;
    // Those of what is served here point nowhere, and are many.
    let others = snapshot.list(&query).items.into_iter().filter(|it| it.facts().label(MANAGED).is_none());
    for object in others.map(|object| objects::value(&object)) {
        if !object["spec"]["service"].is_object() {
            continue;
        }
        count += 1;
        let wanted = availability(&snapshot, &object["spec"]);
        if !conditions::has(&object, &wanted) {
            let now = server.clock.timestamp();
            let mut change = |object: &mut Value| conditions::set(object, &wanted, &now);
            ignore_gone(change_status(server, &API_SERVICES, object["metadata"].text("name"), &mut change).await)?;
        }
    }
    Ok(count)
}

fn availability(snapshot: &Snapshot, spec: &Value) -> Value {
    let reference = &spec["service"];
    let (namespace, name) = (reference.text("namespace"), reference.text("name"));
    let port = reference.number("port").unwrap_or(443);
    let called = format!("service/{name} in {namespace:?}");
    let no = |reason: &str, message: String| json!({"type": "Available", "status": "False", "reason": reason, "message": message});
    let Some(service) = snapshot.get(&SERVICES, Some(namespace), name) else {
        return no("ServiceNotFound", format!("{called} is not present"));
    };
    let service = objects::value(&service);
    let ports = service["spec"]["ports"].as_array().into_iter().flatten();
    let Some(found) = ports.into_iter().find(|one| one.number("port") == Some(port)) else {
        return no("ServicePortError", format!("{called} is not listening on port {port}"));
    };
    let slices = slices_of(snapshot, namespace, name);
    if slices.is_empty() {
        return no("EndpointsNotFound", format!("cannot find endpointslices for {called}"));
    }
    let port_name = found.text("name");
    if !slices.iter().any(|slice| has_address(slice, port_name)) {
        let message = format!("endpointslices for {called} have no addresses with port name {port_name:?}");
        return no("MissingEndpoints", message);
    }
    let message = "this server does not pass requests on to other API servers yet".to_owned();
    no("FailedDiscoveryCheck", message)
}

fn slices_of(snapshot: &Snapshot, namespace: &str, service: &str) -> Vec<Value> {
    let selection = Selection::everything();
    let query =
        Query { resource: &SLICES, namespace: Some(namespace), selection: &selection, after: None, limit: None };
    let items = snapshot.list(&query).items;
    let of_service = items.iter().filter(|it| it.facts().label("kubernetes.io/service-name") == Some(service));
    of_service.map(|slice| objects::value(slice)).collect()
}

/// Whether a slice has an address that is ready and the port of this name.
fn has_address(slice: &Value, port: &str) -> bool {
    let list = |field: &str| slice[field].as_array().map_or(&[][..], Vec::as_slice);
    let is_ready = |endpoint: &Value| endpoint["conditions"]["ready"] != false;
    list("ports").iter().any(|one| one.text("name") == port) && list("endpoints").iter().any(is_ready)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing::Server;

    #[tokio::test(start_paused = true)]
    async fn an_api_service_says_what_its_service_lacks() {
        let server = Server::tended().await;
        let spec = json!({"group": "x.example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10,
            "insecureSkipTLSVerify": true, "service": {"name": "s", "namespace": "default"}});
        let object = json!({"metadata": {"name": "v1.x.example.com"}, "spec": spec});
        server.done("POST", "/apis/apiregistration.k8s.io/v1/apiservices", object).await;
        let said = async || {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let path = "/apis/apiregistration.k8s.io/v1/apiservices/v1.x.example.com";
            let found = server.done("GET", path, Value::Null).await;
            let condition = &found["status"]["conditions"][0];
            format!("{}: {}", condition.text("reason"), condition.text("message"))
        };
        assert_eq!(said().await, "ServiceNotFound: service/s in \"default\" is not present");
        let service = |port: u32| json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": port}]}});
        server.done("POST", "/api/v1/namespaces/default/services", service(80)).await;
        assert_eq!(said().await, "ServicePortError: service/s in \"default\" is not listening on port 443");
        server
            .done("PATCH", "/api/v1/namespaces/default/services/s", json!({"spec": {"ports": [{"port": 443}]}}))
            .await;
        assert_eq!(said().await, "EndpointsNotFound: cannot find endpointslices for service/s in \"default\"");
        let slice = json!({"metadata": {"name": "s-1", "labels": {"kubernetes.io/service-name": "s"}}, "addressType": "IPv4",
            "ports": [{"name": "", "port": 443}], "endpoints": []});
        server.done("POST", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", slice).await;
        assert_eq!(
            said().await,
            "MissingEndpoints: endpointslices for service/s in \"default\" have no addresses with port name \"\""
        );
        let path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/s-1";
        server.done("PATCH", path, json!({"endpoints": [{"addresses": ["10.1.2.3"]}]})).await;
        assert!(said().await.starts_with("FailedDiscoveryCheck: "));
    }
}
