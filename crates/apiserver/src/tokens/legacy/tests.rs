//! Tokens in Secrets, as clients come with them.

use std::time::Duration;

use ring::signature::{ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey, VerificationAlgorithm};
use serde_json::json;

use super::*;
use crate::testing::Server;

/// Keys that are used for nothing else.
const P256: &[u8] = include_bytes!("p256.pem");
const RSA: &[u8] = include_bytes!("rsa.pem");

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const ACCOUNT: &str = "kubernetes.io/service-account.name";

const SUBJECT: LegacySubject<'_> =
    LegacySubject { namespace: "default", secret: "robot-token", account: "robot", account_uid: "u" };

/// A server, and what signs with the same key.
async fn server() -> (Server, LegacySigner) {
    let server = Server::tended().await;
    let pem = rcgen::KeyPair::generate().unwrap();
    let public = rcgen::PublicKeyData::subject_public_key_info(&pem);
    server.api.sign_with(super::super::Signer::new(&pem.serialize_der(), &public).unwrap());
    (server, LegacySigner::from_pem(pem.serialize_pem().as_bytes()).unwrap())
}

/// An account `robot`, and a Secret with a token for it.
async fn token(server: &Server, signer: &LegacySigner) -> String {
    let account = server.done("POST", ACCOUNTS, json!({"metadata": {"name": "robot"}})).await;
    let account_uid = account["metadata"].text("uid");
    let token = signer.token(&LegacySubject { account_uid, ..SUBJECT }).unwrap();
    let metadata = json!({"name": "robot-token", "annotations": {ACCOUNT: "robot"}});
    let kind = "kubernetes.io/service-account-token";
    server.done("POST", SECRETS, json!({"metadata": metadata, "type": kind, "stringData": {"token": token}})).await;
    token
}

async fn review(server: &Server, token: &str) -> Value {
    server.done("POST", REVIEWS, json!({"spec": {"token": token}})).await["status"].clone()
}

async fn check(server: &Server, token: &str, why: &str) {
    let status = review(server, token).await;
    let expected = if why.is_empty() { Value::Null } else { json!(format!("[invalid bearer token, {why}]")) };
    assert_eq!((&status["error"], status["authenticated"] == true), (&expected, why.is_empty()), "{status}");
}

#[tokio::test(start_paused = true)]
async fn it_is_its_account_and_has_no_end() {
    let (server, signer) = server().await;
    let token = token(&server, &signer).await;
    tokio::time::advance(Duration::from_secs(10 * 365 * 24 * 3600)).await;
    let status = review(&server, &token).await;
    assert_eq!(status["user"]["username"], "system:serviceaccount:default:robot");
    let groups = json!(["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"]);
    assert_eq!(status["user"]["groups"], groups);
    assert_eq!(status["audiences"], json!([super::super::ISSUER]));
    let request = http::Request::get("/api/v1/nodes").header("authorization", format!("Bearer {token}"));
    let response = tower::ServiceExt::oneshot(server.api.clone(), request.body(crate::body::full("")).unwrap()).await;
    assert_eq!(response.unwrap().status(), 403, "known, but without a role");
}

#[tokio::test(start_paused = true)]
async fn it_is_good_while_the_secret_holds_it_and_the_account_is_there() {
    let (server, signer) = server().await;
    let token = token(&server, &signer).await;
    let path = format!("{SECRETS}/robot-token");
    check(&server, &token, "").await;
    server.done("PATCH", &path, json!({"stringData": {"token": "another"}})).await;
    check(&server, &token, "Token does not match server's copy").await;
    server.done("PATCH", &path, json!({"stringData": {"token": token}})).await;
    check(&server, &token, "").await;
    server.done("DELETE", &format!("{ACCOUNTS}/robot"), Value::Null).await;
    check(&server, &token, "serviceaccounts \"robot\" not found").await;
    let other = server.done("POST", ACCOUNTS, json!({"metadata": {"name": "robot"}})).await;
    let why = review(&server, &token).await["error"].to_string();
    assert!(why.contains(&format!("ServiceAccount UID ({}) does not match claim", other["metadata"].text("uid"))));
    server.done("DELETE", &path, Value::Null).await;
    check(&server, &token, "Token has been invalidated").await;
}

#[tokio::test(start_paused = true)]
async fn a_label_takes_it_out_of_use_and_back() {
    let (server, signer) = server().await;
    let token = token(&server, &signer).await;
    let label = |value: Value| json!({"metadata": {"labels": {INVALID_SINCE: value}}});
    let path = format!("{SECRETS}/robot-token");
    server.done("PATCH", &path, label(json!("2026-01-01"))).await;
    let why = review(&server, &token).await["error"].as_str().unwrap_or_default().to_owned();
    let expected = "the token in secret default/robot-token for service account default/robot has been marked invalid";
    assert!(why.contains(expected), "{why}");
    server.done("PATCH", &path, label(Value::Null)).await;
    check(&server, &token, "").await;
}

#[tokio::test(start_paused = true)]
async fn the_day_of_its_last_use_is_written_once_a_day() {
    let (server, signer) = server().await;
    let token = token(&server, &signer).await;
    let told = async || {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let metadata = server.done("GET", &format!("{SECRETS}/robot-token"), Value::Null).await["metadata"].clone();
        let label = metadata["labels"].text("kubernetes.io/legacy-token-last-used").to_owned();
        (label, metadata.text("resourceVersion").to_owned())
    };
    assert_eq!(told().await.0, "");
    check(&server, &token, "").await;
    let (day, version) = told().await;
    assert_eq!(day, "2023-11-14");
    check(&server, &token, "").await;
    assert_eq!(told().await, (day, version), "a second use writes nothing");
    tokio::time::advance(Duration::from_secs(24 * 3600)).await;
    check(&server, &token, "").await;
    assert_eq!(told().await.0, "2023-11-15");
}

#[tokio::test(start_paused = true)]
async fn a_token_that_somebody_else_signed_is_refused() {
    let (server, _) = server().await;
    let token = token(&server, &LegacySigner::from_pem(P256).unwrap()).await;
    check(&server, &token, "go-jose/go-jose: error in cryptographic primitive").await;
}

#[test]
fn keys_are_read_in_the_forms_in_which_others_keep_them() {
    // As openssl makes the digest of the public half.
    let keys: [(&[u8], &str, &str, &dyn VerificationAlgorithm); 2] = [
        (P256, "ES256", "gdSpHm8LI1hoIgqgTehI33jCElVhJQSfy0JXGZGC8U4", &ECDSA_P256_SHA256_FIXED),
        (RSA, "RS256", "d__7iHH_Vt9hszKM", &RSA_PKCS1_2048_8192_SHA256),
    ];
    for (pem, algorithm, id, way) in keys {
        let signer = LegacySigner::from_pem(pem).unwrap();
        assert!(signer.id.ends_with(id), "{}", signer.id);
        let token = signer.token(&SUBJECT).unwrap();
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let public = match &signer.key {
            Key::P256(pair) => ring::signature::KeyPair::public_key(pair).as_ref().to_vec(),
            Key::Rsa(pair) => pair.public().as_ref().to_vec(),
        };
        let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
        UnparsedPublicKey::new(way, public).verify(signed.as_bytes(), &signature).unwrap();
        let part = |at: usize| -> Value {
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(signed.split('.').nth(at).unwrap()).unwrap()).unwrap()
        };
        assert_eq!(part(0), json!({"alg": algorithm, "kid": signer.id}));
        let claims = json!({
            "iss": "kubernetes/serviceaccount",
            "kubernetes.io/serviceaccount/namespace": "default",
            "kubernetes.io/serviceaccount/secret.name": "robot-token",
            "kubernetes.io/serviceaccount/service-account.name": "robot",
            "kubernetes.io/serviceaccount/service-account.uid": "u",
            "sub": "system:serviceaccount:default:robot",
        });
        assert_eq!(part(1), claims);
    }
    let refused = LegacySigner::from_pem(b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n");
    assert!(refused.is_err());
    assert!(LegacySigner::from_pem(b"nothing").is_err());
}
