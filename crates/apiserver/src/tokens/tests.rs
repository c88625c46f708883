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
    ] {
        assert_eq!(server.refused("POST", &path, body).await, (code, message.to_owned()));
    }
}
