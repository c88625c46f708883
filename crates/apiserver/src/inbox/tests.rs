//! Bodies that don't come, on a whole server.

use std::convert::Infallible;
use std::sync::Arc;

use http::{Method, Request};
use serde_json::json;
use tower::Service;

use super::*;
use crate::testing::Server;
use crate::user::User;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// More requests than any server has places for.
const MANY: usize = 2_000;

/// A body that begins and never goes on.
fn stalled() -> Body {
    let begins = stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"{")))]);
    StreamBody::new(begins.chain(stream::pending())).map_err(|never| match never {}).boxed_unsync()
}

/// A request by somebody who may write ConfigMaps, and nothing else.
fn post(body: Body) -> Request<Body> {
    let mut request = Request::post(MAPS).header("content-type", "application/json").body(body).unwrap();
    let user = User { name: "ann".into(), groups: vec!["system:authenticated".into()], ..User::default() };
    request.extensions_mut().insert(Arc::new(user));
    request
}

async fn server() -> Server {
    let server = Server::start().await;
    let api = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}]);
    server.done("POST", &format!("{api}/roles"), json!({"metadata": {"name": "writer"}, "rules": rules})).await;
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "writer"});
    let binding = json!({"metadata": {"name": "ann"}, "roleRef": role, "subjects": [{"kind": "User", "name": "ann"}]});
    server.done("POST", &format!("{api}/rolebindings"), binding).await;
    server
}

#[tokio::test(start_paused = true)]
async fn bodies_that_never_come_hold_nobody_up_and_end() {
    let server = server().await;
    let mut stuck = tokio::task::JoinSet::new();
    for _ in 0..MANY {
        stuck.spawn(server.api.clone().call(post(stalled())));
    }
    tokio::task::yield_now().await;
    let began = tokio::time::Instant::now();
    let body = full(json!({"metadata": {"name": "a"}}).to_string());
    let Ok(answer) = server.api.clone().call(post(body)).await;
    assert_eq!((answer.status().as_u16(), began.elapsed()), (201, Duration::ZERO));
    while let Some(answer) = stuck.join_next().await {
        let Ok(answer) = answer.unwrap();
        assert_eq!(answer.status(), 504);
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        let status: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        let said = (status["reason"].as_str(), status["message"].as_str());
        let expected = (Some("Timeout"), Some("Timeout: request did not complete within the allotted timeout"));
        assert_eq!(said, expected);
    }
    assert_eq!(began.elapsed(), WAIT_MAX);
}

#[tokio::test]
async fn a_body_comes_whole_whether_there_is_room_or_not() {
    let path = ResourcePath { subresource: None, ..resource_path() };
    for bytes in [0, 3, 100] {
        let inbox = Inbox { room: Arc::new(Semaphore::new(bytes)) };
        let frames = ["ab", "cd", "ef"].map(|text| Ok::<_, Infallible>(Frame::data(Bytes::from(text))));
        let body = StreamBody::new(stream::iter(frames)).map_err(|never| match never {}).boxed_unsync();
        let received = inbox.take(&Method::POST, &path, body).await.unwrap();
        let held = bytes - inbox.room.available_permits();
        assert_eq!(
            held,
            match bytes {
                0 => 0,
                3 => 2,
                _ => 6,
            }
        );
        let Received { body, _room: room } = received;
        assert_eq!(body.collect().await.unwrap().to_bytes(), "abcdef");
        drop(room);
        assert_eq!(inbox.room.available_permits(), bytes, "all room is given back");
    }
}

fn resource_path() -> ResourcePath<'static> {
    match crate::path::parse(MAPS) {
        crate::path::Target::Resource(path) => path,
        crate::path::Target::Other(_) => panic!("a path of a resource"),
    }
}
