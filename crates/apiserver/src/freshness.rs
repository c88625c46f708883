//! Reads that need what is newest, where several servers share a store: a request waits until what others wrote before it is here.

use http::{Method, Uri};
use setpoint_api::Status;
use setpoint_store::Store;

use crate::query::Query;

/// Seconds after which a client may come again, if the store can't be reached.
pub(crate) const RETRY_AFTER_SECONDS: u32 = 1;

/// Waits until everything is visible that was written before this request, if its answer depends on that. Costs nothing where only
/// this server writes.
pub(crate) async fn wait(store: &Store, method: &Method, uri: &Uri) -> Result<(), Box<Status>> {
    let Some(fresh) = store.fresh() else { return Ok(()) };
    if !is_needed(method, uri) {
        return Ok(());
    }
    let unavailable = |why| Box::new(Status::service_unavailable(why).with_retry_after(RETRY_AFTER_SECONDS));
    fresh.await.map_err(|error| unavailable(error.to_string()))
}

/// Everything about resources, but reads of any version and watches that go on from a version: these wait for that one.
fn is_needed(method: &Method, uri: &Uri) -> bool {
    let path = uri.path();
    if !["/api/", "/apis/", "/apis", "/openapi/"].iter().any(|start| path.starts_with(start)) {
        return false;
    }
    if method != Method::GET && method != Method::HEAD {
        return true;
    }
    let query = Query::parse(uri.query().unwrap_or(""));
    let follows = path.contains("/watch/") || matches!(query.get("watch"), "true" | "1");
    match query.get("resourceVersion") {
        "" => true,
        "0" => query.get("resourceVersionMatch") == "Exact",
        _ => !follows,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_wait_whose_answer_depends_on_what_is_newest() {
        let check = |method: Method, uri: &str, expected: bool| {
            assert_eq!(is_needed(&method, &uri.parse().unwrap()), expected, "{method} {uri}");
        };
        check(Method::GET, "/api/v1/pods", true);
        check(Method::GET, "/api/v1/pods?resourceVersion=0", false);
        check(Method::GET, "/api/v1/pods?resourceVersion=7", true);
        check(Method::GET, "/api/v1/pods?watch=true", true);
        check(Method::GET, "/api/v1/pods?watch=true&resourceVersion=7", false);
        check(Method::PUT, "/apis/apps/v1/namespaces/a/deployments/b?resourceVersion=0", true);
        check(Method::GET, "/apis", true);
        check(Method::GET, "/readyz", false);
        check(Method::GET, "/metrics", false);
    }
}
