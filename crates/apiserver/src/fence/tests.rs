//! Writes in a term that lasts, in one that is over, and in one that ends while the write is under way.

use http::{HeaderValue, Request};
use serde_json::{Value, json};
use setpoint_store::{CommitError, Expectation};

use super::*;
use crate::body::full;
use crate::call::System;
use crate::objects;
use crate::testing::Server;

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/managers";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn check_read(text: &str, expected: Option<(&str, &str, &str, i32)>) {
    let mut headers = HeaderMap::new();
    headers.insert(HEADER, HeaderValue::from_str(text).unwrap());
    let expected =
        expected.map(|(namespace, name, holder, transitions)| Fence { namespace, name, holder, transitions });
    assert_eq!(Fence::of(&Method::PUT, &headers).ok().flatten(), expected, "{text:?}");
    assert_eq!(Fence::of(&Method::GET, &headers), Ok(None), "{text:?}");
}

#[test]
fn a_header_names_lease_holder_and_term() {
    check_read("kube-system/managers one 3", Some(("kube-system", "managers", "one", 3)));
    check_read("a/b pod 7 on node 9 0", Some(("a", "b", "pod 7 on node 9", 0)));
    for bad in
        ["", "a/b", "a/b one", "b one 3", "/b one 3", "a/ one 3", "a/b/c one 3", "a/b one -1", "a/b one x", "a/b  3"]
    {
        check_read(bad, None);
    }
    let mut doubled = HeaderMap::new();
    doubled.append(HEADER, HeaderValue::from_static("a/b one 1"));
    doubled.append(HEADER, HeaderValue::from_static("a/b one 1"));
    assert!(Fence::of(&Method::PUT, &doubled).is_err());
}

/// A server with a Lease that `one` has held since it changed hands twice, and a ConfigMap.
async fn led() -> Server {
    let server = Server::start().await;
    let lease = json!({"metadata": {"name": "managers"}, "spec": {"holderIdentity": "one", "leaseTransitions": 2}});
    server.done("POST", LEASE.strip_suffix("/managers").unwrap(), lease).await;
    server.done("POST", MAPS, json!({"metadata": {"name": "a"}})).await;
    server
}

async fn write(server: &Server, method: &str, path: &str, body: Value, fence: &str) -> (u16, String) {
    let mut request = Request::new(full(if body.is_null() { String::new() } else { body.to_string() }));
    *request.method_mut() = method.parse().unwrap();
    *request.uri_mut() = path.parse().unwrap();
    let media = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    request.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static(media));
    request.headers_mut().insert(HEADER, HeaderValue::from_str(fence).unwrap());
    let (code, answer) = server.ask(request).await;
    (code, answer["message"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn a_leader_writes_in_its_own_term_only() {
    let server = led().await;
    let map = json!({"metadata": {"name": "b"}});
    let ours = "kube-system/managers one 2";
    assert_eq!(write(&server, "POST", MAPS, map.clone(), ours).await.0, 201);
    assert_eq!(write(&server, "PUT", &format!("{MAPS}/b"), map.clone(), ours).await.0, 200);
    assert_eq!(write(&server, "PATCH", &format!("{MAPS}/b"), json!({"data": {"a": "b"}}), ours).await.0, 200);
    assert_eq!(write(&server, "DELETE", &format!("{MAPS}/b"), Value::Null, ours).await.0, 200);
    let held = "the writer does not lead any more: the lease kube-system/managers is held by \"one\" in term 2";
    for (method, path) in [("POST", MAPS.to_owned()), ("PUT", format!("{MAPS}/a")), ("PATCH", format!("{MAPS}/a"))] {
        for theirs in ["kube-system/managers two 2", "kube-system/managers one 1", "kube-system/managers one 3"] {
            let (code, message) = write(&server, method, &path, json!({"metadata": {"name": "a"}}), theirs).await;
            assert!(code == 409 && message.ends_with(held), "{method} {theirs}: {code} {message}");
        }
    }
    let (code, message) = write(&server, "DELETE", &format!("{MAPS}/a"), Value::Null, "kube-system/none one 2").await;
    let gone = "Operation cannot be fulfilled on configmaps \"a\": the writer does not lead any more: the lease \
                kube-system/none does not exist";
    assert_eq!((code, message.as_str()), (409, gone));
    let (code, message) = write(&server, "PUT", &format!("{MAPS}/a"), map, "nonsense").await;
    let form = "the header setpoint-fence must be NAMESPACE/NAME HOLDER TRANSITIONS of the Lease under which the write is made";
    assert_eq!((code, message.as_str()), (400, form));
}

#[tokio::test]
async fn a_term_that_ends_while_a_write_is_under_way_ends_the_write() {
    let server = led().await;
    let registry = crate::Registry::builtin();
    let maps = registry.find("", "v1", "configmaps").unwrap();
    let change = |name: &str| {
        let object =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}});
        let key = objects::key(maps, Some("default"), name);
        objects::transaction(maps, objects::put_change(maps, key, Expectation::Absent, &object))
    };
    let fence = Fence { namespace: "kube-system", name: "managers", holder: "one", transitions: 2 };
    let (system, inner) = (System::default(), &*server.api.inner);
    let call = Call { fence: Some(fence), ..Call::of_system(inner, maps, &system, None, None, None) };
    fence.check(&call).unwrap();
    // What the handler saw is over before it commits; a renewal alone would not be.
    server.done("PATCH", LEASE, json!({"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}})).await;
    call.commit(change("in-time")).await.unwrap();
    server.done("PATCH", LEASE, json!({"spec": {"holderIdentity": "two", "leaseTransitions": 3}})).await;
    let refused = call.commit(change("late")).await.unwrap_err();
    assert!(matches!(&refused, CommitError::Unmet { actual: Some(_), .. }), "{refused}");
    let said = objects::refusal(maps, "late", refused);
    assert!(said.message.ends_with("kube-system/managers is held by \"two\" in term 3"), "{}", said.message);
    assert_eq!(server.send("GET", &format!("{MAPS}/late"), Value::Null).await.0, 404);
}
