//! Owners, set by one who may write but neither delete nor hold back.

use http::{Method, Request};
use serde_json::{Value, json};

use crate::body::full;
use crate::testing::Server;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A server on which `ann` has these rights in the default namespace.
async fn server(rules: Value) -> Server {
    let server = Server::start().await;
    let api = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    server.done("POST", &format!("{api}/roles"), json!({"metadata": {"name": "r"}, "rules": rules})).await;
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"});
    let binding = json!({"metadata": {"name": "r"}, "roleRef": role, "subjects": [{"kind": "User", "name": "ann"}]});
    server.done("POST", &format!("{api}/rolebindings"), binding).await;
    server.done("POST", MAPS, json!({"metadata": {"name": "there"}, "data": {"k": "v"}})).await;
    server
}

async fn as_ann(server: &Server, method: Method, path: &str, media: &str, body: &Value) -> (u16, String) {
    let request = Request::builder().method(method).uri(path).header("content-type", media);
    let request = request.header("impersonate-user", "ann").body(full(body.to_string())).unwrap();
    let (code, answer) = server.ask(request).await;
    (code, answer["message"].as_str().unwrap_or_default().to_owned())
}

fn owner(blocks: bool) -> Value {
    json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "1-2-3", "blockOwnerDeletion": blocks}])
}

fn writes() -> Value {
    json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "update", "patch", "get"]})
}

const NOT_DELETED: &str =
    "configmaps \"there\" is forbidden: cannot set an ownerRef on a resource you can't delete: , <nil>";

#[tokio::test]
async fn who_may_not_delete_an_object_gives_it_no_owner() {
    let server = server(json!([writes()])).await;
    let there = format!("{MAPS}/there");
    let owned = json!({"metadata": {"ownerReferences": owner(false)}});
    for media in ["application/merge-patch+json", "application/strategic-merge-patch+json"] {
        let answer = as_ann(&server, Method::PATCH, &there, media, &owned).await;
        assert_eq!(answer, (403, NOT_DELETED.to_owned()), "{media}");
    }
    let mut whole = server.done("GET", &there, Value::Null).await;
    whole["metadata"]["ownerReferences"] = owner(false);
    let json = "application/json";
    assert_eq!(as_ann(&server, Method::PUT, &there, json, &whole).await, (403, NOT_DELETED.to_owned()));
    let applied = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "there", "ownerReferences": owner(false)}});
    let apply = format!("{there}?fieldManager=m");
    let answer = as_ann(&server, Method::PATCH, &apply, "application/apply-patch+yaml", &applied).await;
    assert_eq!(answer, (403, NOT_DELETED.to_owned()));

    let other = json!({"data": {"k": "w"}});
    assert_eq!(as_ann(&server, Method::PATCH, &there, "application/merge-patch+json", &other).await.0, 200);
    let new = json!({"metadata": {"name": "new", "ownerReferences": owner(false)}});
    assert_eq!(as_ann(&server, Method::POST, MAPS, json, &new).await.0, 201, "what is new is nobody's yet");
    server.done("PATCH", &there, owned).await;
    let disowned = json!({"metadata": {"ownerReferences": null}});
    let answer = as_ann(&server, Method::PATCH, &there, "application/merge-patch+json", &disowned).await;
    assert_eq!(answer, (403, NOT_DELETED.to_owned()), "nor takes one away");
}

#[tokio::test]
async fn who_may_not_set_finalizers_on_an_owner_does_not_hold_it_back() {
    let server = server(json!([writes()])).await;
    let new = |blocks: bool, name: &str| json!({"metadata": {"name": name, "ownerReferences": owner(blocks)}});
    let json = "application/json";
    let expected = "configmaps \"new\" is forbidden: cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil>";
    assert_eq!(as_ann(&server, Method::POST, MAPS, json, &new(true, "new")).await, (403, expected.to_owned()));
    assert_eq!(as_ann(&server, Method::POST, MAPS, json, &new(false, "new")).await.0, 201);
    let mut unknown = new(true, "odd");
    unknown["metadata"]["ownerReferences"][0]["kind"] = json!("Nothing");
    let expected = "configmaps \"odd\" is forbidden: cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion apps/v1 Kind Nothing: no matches for kind \"Nothing\" in version \"apps/v1\"";
    assert_eq!(as_ann(&server, Method::POST, MAPS, json, &unknown).await, (403, expected.to_owned()));
}

#[tokio::test]
async fn who_may_delete_and_set_finalizers_does_both() {
    let deletes = json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["delete"]});
    let holds = json!({"apiGroups": ["apps"], "resources": ["replicasets/finalizers"], "verbs": ["update"]});
    let server = server(json!([writes(), deletes, holds])).await;
    let owned = json!({"metadata": {"ownerReferences": owner(true)}});
    let path = format!("{MAPS}/there");
    assert_eq!(as_ann(&server, Method::PATCH, &path, "application/merge-patch+json", &owned).await.0, 200);
}
