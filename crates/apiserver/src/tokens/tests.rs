//! Tokens as a client asks for them and has them judged.

use rcgen::KeyPair;
use serde_json::{Value, json};

use super::Signer;
use crate::testing::Server;

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

fn signer() -> Signer {
    let key = KeyPair::generate().unwrap();
    Signer::new(&key.serialize_der(), &rcgen::PublicKeyData::subject_public_key_info(&key)).unwrap()
}

/// A server with the account `robot`.
async fn server() -> Server {
    let server = Server::start().await;
    server.api.sign_with(signer());
    server.done("POST", ACCOUNTS, json!({"metadata": {"name": "robot"}})).await;
    server
}

async fn token(server: &Server, spec: Value) -> String {
    let answer = server.done("POST", &format!("{ACCOUNTS}/robot/token"), json!({"spec": spec})).await;
    answer["status"]["token"].as_str().unwrap().to_owned()
}

async fn review(server: &Server, token: &str, audiences: Value) -> Value {
    let spec = json!({"token": token, "audiences": audiences});
    server.done("POST", REVIEWS, json!({"spec": spec})).await["status"].clone()
}

#[tokio::test(start_paused = true)]
async fn a_token_says_whose_it_is_until_it_ends() {
    let server = server().await;
    let token = token(&server, json!({"expirationSeconds": 600})).await;
    let status = review(&server, &token, json!(null)).await;
    assert_eq!(status["user"]["username"], "system:serviceaccount:default:robot");
    assert_eq!(status["authenticated"], true);
    tokio::time::advance(std::time::Duration::from_secs(700)).await;
    let status = review(&server, &token, json!(null)).await;
    assert_eq!(status["error"], "[invalid bearer token, service account token has expired]");
}

#[tokio::test(start_paused = true)]
async fn a_token_is_for_its_audiences_only() {
    let server = server().await;
    let token = token(&server, json!({"audiences": ["vault", "other"]})).await;
    assert_eq!(review(&server, &token, json!(["vault", "x"])).await["audiences"], json!(["vault"]));
    let why =
        "[invalid bearer token, token audiences [\"vault\" \"other\"] is invalid for the target audiences [\"x\"]]";
    assert_eq!(review(&server, &token, json!(["x"])).await["error"], why);
}

#[tokio::test(start_paused = true)]
async fn a_bound_token_ends_with_its_object() {
    let server = server().await;
    let secrets = "/api/v1/namespaces/default/secrets";
    server.done("POST", secrets, json!({"metadata": {"name": "s"}})).await;
    let bound = json!({"boundObjectRef": {"apiVersion": "v1", "kind": "Secret", "name": "s"}});
    let token = token(&server, bound).await;
    assert_eq!(review(&server, &token, json!(null)).await["authenticated"], true);
    server.done("DELETE", &format!("{secrets}/s"), Value::Null).await;
    let status = review(&server, &token, json!(null)).await;
    assert_eq!(status["error"], "[invalid bearer token, service account token has been invalidated]");
}

#[tokio::test(start_paused = true)]
async fn a_token_of_a_pod_or_a_node_ends_with_it_and_does_not_come_back() {
    let server = server().await;
    let pods = "/api/v1/namespaces/default/pods";
    let pod = || json!({"metadata": {"name": "p"}, "spec": {"serviceAccountName": "robot", "containers": [{"name": "c", "image": "i"}]}});
    let node = || json!({"metadata": {"name": "n"}});
    for (kind, name, list, object) in [("Pod", "p", pods, pod()), ("Node", "n", "/api/v1/nodes", node())] {
        server.done("POST", list, object.clone()).await;
        let token = token(&server, json!({"boundObjectRef": {"apiVersion": "v1", "kind": kind, "name": name}})).await;
        // Asked twice: what is remembered of the first answer counts only while it is true.
        for _ in 0..2 {
            assert_eq!(review(&server, &token, json!(null)).await["authenticated"], true, "{kind}");
        }
        let marked = json!({"metadata": {"labels": {"a": "b"}}});
        server.done("PATCH", &format!("{list}/{name}"), marked).await;
        assert_eq!(review(&server, &token, json!(null)).await["authenticated"], true, "a changed {kind} is the same");
        server.done("DELETE", &format!("{list}/{name}?gracePeriodSeconds=0"), Value::Null).await;
        let status = review(&server, &token, json!(null)).await;
        assert_eq!(status["error"], "[invalid bearer token, service account token has been invalidated]", "{kind}");
        server.done("POST", list, object).await;
        let status = review(&server, &token, json!(null)).await;
        let why = status["error"].as_str().unwrap();
        assert!(why.contains("does not match service account"), "another {kind} of the same name: {why}");
    }
    let token = token(&server, json!({})).await;
    assert_eq!(review(&server, &token, json!(null)).await["authenticated"], true);
    server.done("DELETE", &format!("{ACCOUNTS}/robot"), Value::Null).await;
    assert_ne!(review(&server, &token, json!(null)).await["authenticated"], true);
    server.done("POST", ACCOUNTS, json!({"metadata": {"name": "robot"}})).await;
    assert_ne!(review(&server, &token, json!(null)).await["authenticated"], true, "another account of the same name");
}

#[tokio::test(start_paused = true)]
async fn a_token_of_another_key_or_a_changed_one_is_refused() {
    let ours = server().await;
    let theirs = server().await;
    let token = token(&theirs, json!({})).await;
    assert_ne!(review(&ours, &token, json!(null)).await["authenticated"], true);
    let long = format!("{token}{}", "A".repeat(super::TOKEN_BYTES_MAX));
    for bad in ["garbage", "a.b.c", "", "..", &token[..token.len() - 8], &long] {
        let (code, answer) = theirs.send("POST", REVIEWS, json!({"spec": {"token": bad}})).await;
        assert!(code == 400 && bad.is_empty() || answer["status"]["authenticated"] != true, "{bad}: {answer}");
    }
    let mut changed = token.clone().into_bytes();
    let middle = changed.iter().position(|byte| *byte == b'.').unwrap() + 30;
    changed[middle] = if changed[middle] == b'A' { b'B' } else { b'A' };
    let status = review(&theirs, &String::from_utf8(changed).unwrap(), json!(null)).await;
    assert_ne!(status["authenticated"], true, "{status}");
}

#[tokio::test(start_paused = true)]
async fn bad_requests_say_what_is_wrong() {
    let server = server().await;
    let path = format!("{ACCOUNTS}/robot/token");
    for (body, code, message) in [
        (
            json!({"spec": {"expirationSeconds": 5}}),
            422,
            "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 5: may not specify a duration less than 10 minutes",
        ),
        (
            json!({"spec": {"expirationSeconds": 4_294_967_297_i64}}),
            422,
            "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 4294967297: may not specify a duration larger than 2^32 seconds",
        ),
        (
            json!({"metadata": {"name": "other"}}),
            422,
            "TokenRequest.authentication.k8s.io \"robot\" is invalid: metadata.name: Invalid value: \"other\": must match the service account name if specified",
        ),
        (
            json!({"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "ConfigMap", "name": "c"}}}),
            400,
            "cannot bind token to object of type /v1, Kind=ConfigMap",
        ),
        (
            json!({"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "p"}}}),
            404,
            "pods \"p\" not found",
        ),
        (json!({"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Secret"}}}), 400, "Name parameter required."),
    ] {
        assert_eq!(server.refused("POST", &path, body).await, (code, message.to_owned()));
    }
}

fn joining(id: &str, changes: Value) -> Value {
    let mut data =
        json!({"token-id": id, "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true"});
    data.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    json!({"metadata": {"name": format!("bootstrap-token-{id}")}, "type": "bootstrap.kubernetes.io/token", "stringData": data})
}

#[tokio::test]
async fn a_bootstrap_token_lets_in_who_has_no_identity_yet() {
    let server = server().await;
    let secrets = "/api/v1/namespaces/kube-system/secrets";
    for (id, changes) in [
        ("abcdef", json!({"auth-extra-groups": "system:bootstrappers:worker,system:bootstrappers:b"})),
        ("unused", json!({"usage-bootstrap-authentication": "false"})),
        ("ended0", json!({"expiration": "2023-11-14T22:13:00Z"})),
        ("later0", json!({"expiration": "2099-01-01T00:00:00Z"})),
    ] {
        server.done("POST", secrets, joining(id, changes)).await;
    }
    let status = review(&server, "abcdef.0123456789abcdef", Value::Null).await;
    let groups = json!([
        "system:bootstrappers",
        "system:bootstrappers:b",
        "system:bootstrappers:worker",
        "system:authenticated"
    ]);
    assert_eq!(status["user"], json!({"username": "system:bootstrap:abcdef", "groups": groups}));
    assert_eq!(status["authenticated"], true);
    let check = async |token: &str, expected: u16| {
        let request = http::Request::get("/api/v1/nodes").header("authorization", format!("Bearer {token}"));
        let response =
            tower::ServiceExt::oneshot(server.api.clone(), request.body(crate::body::full("")).unwrap()).await;
        assert_eq!(response.unwrap().status(), expected, "{token}");
    };
    // Known, but without a role for this.
    check("abcdef.0123456789abcdef", 403).await;
    check("later0.0123456789abcdef", 403).await;
    for unknown in [
        "abcdef.0123456789abcdee",
        "abcdef.",
        "unused.0123456789abcdef",
        "ended0.0123456789abcdef",
        "none00.0123456789abcdef",
    ] {
        check(unknown, 401).await;
    }
}

#[tokio::test]
async fn the_issuer_of_tokens_and_its_key_are_told() {
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let server = server().await;
    let get = |path: &str| http::Request::get(path).body(crate::body::full("")).unwrap();
    let text = server.text(get("/.well-known/openid-configuration")).await;
    let expected = concat!(
        r#"{"issuer":"https://kubernetes.default.svc.cluster.local","jwks_uri":"https://192.168.7.7:6443/openid/v1/jwks","#,
        r#""response_types_supported":["id_token"],"subject_types_supported":["public"],"#,
        r#""id_token_signing_alg_values_supported":["ES256"]}"#
    );
    assert_eq!(text, expected);
    let response = tower::ServiceExt::oneshot(server.api.clone(), get("/openid/v1/jwks")).await.unwrap();
    assert_eq!(response.status(), 403, "not for everybody");

    let (_, keys) = server.ask(get("/openid/v1/jwks")).await;
    let key = &keys["keys"][0];
    let names: Vec<&String> = key.as_object().unwrap().keys().collect();
    assert_eq!(names.len(), 7, "{names:?}");
    // What it says is enough to check a token.
    let coordinate = |name: &str| URL_SAFE_NO_PAD.decode(key[name].as_str().unwrap()).unwrap();
    let point = [vec![4], coordinate("x"), coordinate("y")].concat();
    let token = token(&server, json!({})).await;
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let known = ring::signature::UnparsedPublicKey::new(&ring::signature::ECDSA_P256_SHA256_FIXED, point);
    assert!(known.verify(signed.as_bytes(), &URL_SAFE_NO_PAD.decode(signature).unwrap()).is_ok());
    let header: Value =
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(signed.split('.').next().unwrap()).unwrap()).unwrap();
    assert_eq!((&header["kid"], &header["alg"]), (&key["kid"], &key["alg"]));
}
