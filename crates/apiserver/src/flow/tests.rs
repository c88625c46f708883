//! Flow control on a whole server.

use http::Request;
use serde_json::json;

use super::*;
use crate::authorization::What;
use crate::body::full;
use crate::testing::Server;

fn user(name: &str) -> User {
    User { name: name.to_owned(), groups: vec!["system:authenticated".to_owned()], ..User::default() }
}

fn asked() -> Asked<'static> {
    let what = What::Resource { group: "", resource: "configmaps", subresource: "", namespace: "default", name: "a" };
    Asked::new("get", what)
}

/// A server whose other clients have one seat and one queue each.
async fn narrow() -> Server {
    let server = Server::start().await;
    let queuing = json!({"queues": 64, "handSize": 1, "queueLengthLimit": 2});
    let spec = json!({"type": "Limited", "limited": {"nominalConcurrencyShares": 1, "lendablePercent": 0, "borrowingLimitPercent": 0,
        "limitResponse": {"type": "Queue", "queuing": queuing}}});
    let level = json!({"metadata": {"name": "narrow"}, "spec": spec});
    server.done("POST", "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations", level).await;
    let rules = json!([{"subjects": [{"kind": "Group", "group": {"name": "system:authenticated"}}],
        "resourceRules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"], "namespaces": ["*"]}]}]);
    let spec = json!({"priorityLevelConfiguration": {"name": "narrow"}, "matchingPrecedence": 200,
        "distinguisherMethod": {"type": "ByUser"}, "rules": rules});
    let schema = json!({"metadata": {"name": "narrow"}, "spec": spec});
    server.done("POST", "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", schema).await;
    server
}

#[tokio::test(start_paused = true)]
async fn a_noisy_client_is_told_to_come_back_and_others_get_their_turn() {
    let server = narrow().await;
    let (flow, store) = (Flow::with_seats(1), server.store.clone());
    let (noisy, quiet) = (user("noisy"), user("quiet"));
    let first = flow.enter(&store, &noisy, &asked(), 1).await.unwrap();
    let wait = |who: User| {
        let (flow, store) = (flow.clone(), store.clone());
        tokio::spawn(
            async move { flow.enter(&store, &who, &asked(), 1).await.map(|_| ()).map_err(|status| status.code) },
        )
    };
    let waiting = [wait(noisy.clone()), wait(noisy.clone())];
    tokio::task::yield_now().await;
    let refused = flow.enter(&store, &noisy, &asked(), 1).await.map(|_| ()).unwrap_err();
    assert_eq!((refused.code, &*refused.reason), (429, "TooManyRequests"));
    assert_eq!(refused.details.unwrap().retry_after_seconds, 1);
    let other = wait(quiet);
    tokio::task::yield_now().await;
    drop(first);
    assert_eq!(other.await.unwrap(), Ok(()));
    for one in waiting {
        assert_eq!(one.await.unwrap(), Ok(()));
    }
}

#[tokio::test(start_paused = true)]
async fn who_comes_with_one_request_is_served_before_the_rest_of_a_crowd_that_came_before() {
    let server = narrow().await;
    let flow = Flow::with_seats(1);
    let served = Arc::new(Mutex::new(Vec::new()));
    // Nothing here ever waits for anything but its seat, as most requests.
    let crowd: Vec<_> = ["noisy", "noisy", "noisy", "quiet"]
        .map(|name| {
            let (flow, store, served) = (flow.clone(), server.store.clone(), Arc::clone(&served));
            tokio::spawn(async move {
                let place = flow.enter(&store, &user(name), &asked(), 1).await.unwrap();
                served.lock().unwrap().push(name);
                drop(place);
            })
        })
        .into();
    for one in crowd {
        one.await.unwrap();
    }
    assert_eq!(*served.lock().unwrap(), ["noisy", "quiet", "noisy", "noisy"]);
}

#[tokio::test(start_paused = true)]
async fn one_who_waits_for_the_disk_leaves_room_for_one_who_can_work() {
    let server = narrow().await;
    let flow = Flow::with_seats(1);
    let (ann, bob) = (user("ann"), user("bob"));
    let (synced, disk) = oneshot::channel::<()>();
    let mut writes = flow.enter(&server.store, &ann, &asked(), 1).await.unwrap();
    let write = tokio::spawn(async move { writes.work(disk).await });
    tokio::task::yield_now().await;
    let mut reads = flow.enter(&server.store, &bob, &asked(), 1).await.unwrap();
    assert_eq!(reads.work(std::future::ready(7)).await, 7);
    drop(reads);
    let aside = || flow.levels().states().map(|(_, state)| state.aside).sum::<u64>();
    assert_eq!(aside(), 1);
    synced.send(()).unwrap();
    write.await.unwrap().unwrap();
    assert_eq!(aside(), 0);
}

#[tokio::test(start_paused = true)]
async fn who_waits_too_long_is_told_to_come_back_and_holds_no_seat() {
    let server = narrow().await;
    let flow = Flow::with_seats(1);
    let ann = user("ann");
    let first = flow.enter(&server.store, &ann, &asked(), 1).await.unwrap();
    let late = flow.enter(&server.store, &ann, &asked(), 1).await.map(|_| ()).unwrap_err();
    assert_eq!(late.code, 429);
    drop(first);
    drop(flow.enter(&server.store, &ann, &asked(), 1).await.unwrap());
    let states: Vec<_> = flow.levels().states().map(|(_, state)| (state.used, state.waiting)).collect();
    assert!(states.iter().all(|state| *state == (0, 0)), "{states:?}");
}

#[tokio::test(start_paused = true)]
async fn seats_of_those_who_went_away_go_to_those_who_stayed() {
    let server = narrow().await;
    let flow = Flow::with_seats(1);
    let first = flow.enter(&server.store, &user("first"), &asked(), 1).await.unwrap();
    for number in 0..12 {
        let gone = user(&format!("gone-{number}"));
        let asked = asked();
        let entering = flow.enter(&server.store, &gone, &asked, 1);
        assert!(tokio::time::timeout(Duration::from_millis(1), entering).await.is_err());
    }
    let (staying, store) = (flow.clone(), server.store.clone());
    let stays = tokio::spawn(async move { staying.enter(&store, &user("stays"), &asked(), 1).await.is_ok() });
    tokio::task::yield_now().await;
    drop(first);
    assert!(stays.await.unwrap());
}

#[tokio::test]
async fn an_answer_says_which_schema_and_level_its_request_was_of() {
    let server = narrow().await;
    let mut uids = Vec::new();
    for plural in ["flowschemas", "prioritylevelconfigurations"] {
        let path = format!("/apis/flowcontrol.apiserver.k8s.io/v1/{plural}/narrow");
        let found = server.done("GET", &path, serde_json::Value::Null).await;
        uids.push(found["metadata"]["uid"].as_str().unwrap().to_owned());
    }
    let mut request = Request::get("/api/v1/namespaces/default/configmaps/a").body(full("")).unwrap();
    request.extensions_mut().insert(Arc::new(user("ann")));
    let response = tower::Service::call(&mut server.api.clone(), request).await.unwrap();
    // Nobody gave ann a role: refusals have their turn, too. One who may do everything sees the headers of the exempt level.
    assert_eq!(response.status(), 403);
    let header = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
    assert_eq!([header("x-kubernetes-pf-flowschema-uid"), header("x-kubernetes-pf-prioritylevel-uid")], *uids);
    let mut request = Request::get("/api/v1/namespaces/default/configmaps/a").body(full("")).unwrap();
    let master = User { groups: vec!["system:masters".to_owned()], ..user("root") };
    request.extensions_mut().insert(Arc::new(master));
    let response = tower::Service::call(&mut server.api.clone(), request).await.unwrap();
    let header = |name: &str| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
    assert!(header("x-kubernetes-pf-flowschema-uid").is_some());
    assert!(header("x-kubernetes-pf-prioritylevel-uid").is_some_and(|uid| !uids.contains(&uid)));
}

/// A request by a user, through the whole server.
async fn ask(server: &Server, user: User, path: &str) -> http::Response<crate::body::Body> {
    let mut request = Request::get(path).body(full("")).unwrap();
    request.extensions_mut().insert(Arc::new(user));
    tower::Service::call(&mut server.api.clone(), request).await.unwrap()
}

/// A server whose level for `ann` has no seat left, and refuses at once.
async fn full_up(resources: serde_json::Value) -> (Server, Place) {
    let server = Server::start().await;
    server.api.prepare_roles().await.unwrap();
    let spec = json!({"type": "Limited", "limited": {"nominalConcurrencyShares": 1, "lendablePercent": 0, "borrowingLimitPercent": 0,
        "limitResponse": {"type": "Reject"}}});
    let level = json!({"metadata": {"name": "narrow"}, "spec": spec});
    server.done("POST", "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations", level).await;
    let mut rule = json!({"subjects": [{"kind": "Group", "group": {"name": "system:authenticated"}}]});
    resources.as_object().unwrap().iter().for_each(|(field, value)| rule[field] = value.clone());
    let spec = json!({"priorityLevelConfiguration": {"name": "narrow"}, "matchingPrecedence": 200, "rules": [rule]});
    let schema = json!({"metadata": {"name": "narrow"}, "spec": spec});
    server.done("POST", "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", schema).await;
    let flow = &server.api.inner.flow;
    let mut taken = Vec::new();
    let asked = Asked::of_path("get", "/apis");
    let everything = resources.get("nonResourceRules").is_some();
    let what = if everything { asked } else { self::asked() };
    while let Ok(place) = flow.enter(&server.store, &user("ann"), &what, 1).await {
        assert!(taken.len() < 1_000, "the level has bounds");
        taken.push(place);
    }
    let last = taken.pop().expect("a seat at least");
    // All others stay taken for as long as the test runs.
    taken.into_iter().for_each(std::mem::forget);
    (server, last)
}

#[tokio::test]
async fn one_who_asks_for_documents_only_has_bounds_too() {
    let paths = json!({"nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/apis", "/apis/*", "/openapi/*", "/metrics"]}]});
    let (server, last) = full_up(paths).await;
    for path in ["/apis", "/apis/apps/v1", "/openapi/v2"] {
        let refused = ask(&server, user("ann"), path).await;
        let retry = refused.headers().get("retry-after").map(|value| value.to_str().unwrap().to_owned());
        assert_eq!((refused.status().as_u16(), retry.as_deref()), (429, Some("1")), "{path}");
    }
    drop(last);
    let answered = ask(&server, user("ann"), "/apis").await;
    assert_eq!(answered.status(), 200);
    assert!(answered.headers().contains_key("x-kubernetes-pf-flowschema-uid"));
}

#[tokio::test]
async fn what_is_refused_takes_its_turn() {
    let (server, last) =
        full_up(json!({"resourceRules": [{"verbs": ["*"], "apiGroups": [""], "resources": ["configmaps", "secrets"],
        "namespaces": ["*"]}]}))
        .await;
    let path = "/api/v1/namespaces/default/secrets";
    assert_eq!(ask(&server, user("ann"), path).await.status(), 429);
    drop(last);
    assert_eq!(ask(&server, user("ann"), path).await.status(), 403);
}

#[tokio::test]
async fn no_request_is_without_a_level_though_all_schemas_are_deleted() {
    let server = Server::start().await;
    for plural in ["flowschemas", "prioritylevelconfigurations"] {
        server
            .done("DELETE", &format!("/apis/flowcontrol.apiserver.k8s.io/v1/{plural}"), serde_json::Value::Null)
            .await;
    }
    let flow = Flow::with_seats(4);
    let mut taken = Vec::new();
    while let Ok(place) = flow.enter(&server.store, &user("ann"), &asked(), 1).await {
        assert!(taken.len() < 1_000, "what nothing else takes has bounds");
        taken.push(place);
    }
    let master = User { groups: vec!["system:masters".to_owned()], ..user("root") };
    assert!(flow.enter(&server.store, &master, &asked(), 1).await.is_ok());
}

#[tokio::test]
async fn a_schema_that_leads_nowhere_takes_no_requests() {
    let server = Server::start().await;
    let everything = json!({"subjects": [{"kind": "User", "user": {"name": "ann"}}],
        "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": true}]});
    let spec =
        json!({"priorityLevelConfiguration": {"name": "nowhere"}, "matchingPrecedence": 3, "rules": [everything]});
    let schema = json!({"metadata": {"name": "lost"}, "spec": spec});
    server.done("POST", "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", schema).await;
    let flow = Flow::with_seats(4);
    let place = flow.enter(&server.store, &user("ann"), &asked(), 1).await.unwrap();
    assert!(!place.level.is_empty());
}

#[tokio::test]
async fn the_systems_own_requests_pass_whatever_others_do() {
    let maps = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"], "namespaces": ["*"]}]);
    let (server, _last) = full_up(json!({"resourceRules": maps})).await;
    let api = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    let reference = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"});
    let binding =
        json!({"metadata": {"name": "ann"}, "roleRef": reference, "subjects": [{"kind": "User", "name": "ann"}]});
    server.done("POST", api, binding).await;
    let path = "/api/v1/namespaces/default/configmaps/a";
    let refused = ask(&server, user("ann"), path).await;
    assert_eq!((refused.status().as_u16(), refused.headers()["retry-after"].to_str().unwrap()), (429, "1"));
    let master = User { groups: vec!["system:masters".to_owned()], ..user("root") };
    assert_eq!(ask(&server, master, path).await.status(), 404, "an administrator");
    let node = User { groups: vec!["system:nodes".into(), "system:authenticated".into()], ..user("system:node:a") };
    assert_eq!(ask(&server, node, "/api/v1/nodes/a").await.status(), 404, "a node");
    let leads = User { groups: vec!["system:authenticated".into()], ..user("system:kube-scheduler") };
    let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler";
    assert_eq!(ask(&server, leads, lease).await.status(), 404, "a leader");
    for path in ["/livez", "/readyz", "/version"] {
        let anonymous = User { groups: vec!["system:unauthenticated".into()], ..user("system:anonymous") };
        assert_eq!(ask(&server, anonymous, path).await.status(), 200, "{path}");
    }
}
