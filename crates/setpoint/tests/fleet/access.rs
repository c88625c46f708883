//! Who gets a certificate, how long it counts, and who is turned away.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::jiff::{SignedDuration, Timestamp, tz::TimeZone};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use rcgen::{CertificateParams, DnType, Issuer, KeyPair, date_time_ymd};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use serde_json::{Value, json};
use setpoint_fleet::certificate::public_key;
use setpoint_fleet::kinds::{Vehicle, VehicleStatus};
use setpoint_fleet_protocol::enrolment::{Ask, Granted, Proof, Token, message};
use setpoint_fleet_protocol::{FromVehicle, Hello, PROTOCOL_VERSION, Said};

use crate::world::{World, hook, runs};

/// Asks the hub for something, with a certificate and its key or without; the code and the text of the answer.
fn ask(world: &World, path: &str, papers: Option<(&str, &str)>, body: Option<&[u8]>) -> (u16, Vec<u8>) {
    let mut command = Command::new("curl");
    command.args(["-sS", "--http1.1", "-o", "-", "-w", "%{stderr}%{http_code}", "--cacert", &world.text("ca.pem")]);
    if let Some((certificate, key)) = papers {
        command.args(["--cert", &world.text(certificate), "--key", &world.text(key)]);
    }
    if body.is_some() {
        command.args(["--data-binary", "@-"]);
    }
    command.arg(format!("{}{path}", world.hub_url()));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Who refuses a body doesn't read it to its end.
    let _ = child.stdin.take().unwrap().write_all(body.unwrap_or_default());
    let output = child.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    let code = told.get(told.len().saturating_sub(3)..).and_then(|code| code.parse().ok());
    (code.unwrap_or(0), output.stdout)
}

fn request(key: &KeyPair, vehicle: &str, group: &str) -> String {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, format!("system:vehicle:default:{vehicle}"));
    params.distinguished_name.push(DnType::OrganizationName, group);
    params.serialize_request(key).unwrap().pem().unwrap()
}

fn by_key(key: &KeyPair, request: &str) -> Proof {
    let rng = SystemRandom::new();
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &key.serialize_der(), &rng).unwrap();
    Proof::Key(pair.sign(&rng, &message(request)).unwrap().as_ref().to_vec())
}

fn body(request: &str, proof: &Proof) -> Vec<u8> {
    serde_json::to_vec(&Ask { request: request.to_owned(), proof: proof.text() }).unwrap()
}

/// The first word of a session, by long poll.
fn hello() -> Vec<u8> {
    let hello =
        Hello { protocol: PROTOCOL_VERSION, agent_version: "0.1".into(), epoch: u64::from(u32::MAX), report: None };
    let frame = FromVehicle::of(Said::Hello(hello)).bytes();
    [&u32::try_from(frame.len()).unwrap().to_be_bytes()[..], &frame].concat()
}

async fn access(world: &World, access: Value) {
    let patch = Patch::Merge(json!({"spec": {"access": access}}));
    world.vehicles().patch("v-1", &PatchParams::default(), &patch).await.unwrap();
}

fn is_connected(status: &VehicleStatus) -> bool {
    status.conditions.iter().any(|condition| condition.type_ == "Connected" && condition.status == "True")
}

fn keys(vehicle: &Vehicle) -> Vec<String> {
    vehicle.spec.access.clone().unwrap_or_default().keys
}

/// The hub learns of a change a moment after the API server has it: what it refuses for that reason is asked again.
async fn until_answered(world: &World, ask: impl Fn() -> (u16, Vec<u8>), expected: u16) -> String {
    loop {
        let (code, text) = ask();
        let text = String::from_utf8_lossy(&text).into_owned();
        if code == expected {
            return text;
        }
        assert!([0, 200, 403, 503].contains(&code), "{code}: {text}");
        // Any change of anything: the hub's own view is behind by as much as a watch is.
        world.client.apiserver_version().await.unwrap();
    }
}

#[tokio::test]
async fn a_token_lets_one_key_in_and_every_other_attempt_is_refused() {
    let world = World::start(&["up"]).await;
    for name in ["v-1", "v-2"] {
        world.make(name).await;
    }
    world.configure(&world.hub_url(), json!({}));
    let (own, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let text = world.say(&["fleet", "token", "v-1"]);
    let (token, stranger) = (Token::parse(&text).unwrap(), Token::parse(&"7".repeat(64)).unwrap());
    let good = request(&own, "v-1", "system:vehicles");
    let enrol = |request: &str, proof: &Proof| ask(&world, "/v1/enrol", None, Some(&body(request, proof)));

    let granted = until_answered(&world, || enrol(&good, &token.vouch(&good)), 200).await;
    let granted: Granted = serde_json::from_str(&granted).unwrap();
    assert!(granted.certificate.starts_with("-----BEGIN CERTIFICATE-----") && granted.until > granted.now);
    std::fs::write(world.path("own.pem"), granted.certificate).unwrap();
    std::fs::write(world.path("own.key"), own.serialize_pem()).unwrap();
    let papers = Some(("own.pem", "own.key"));
    // An answer that got lost is given again.
    assert_eq!(enrol(&good, &token.vouch(&good)).0, 200);
    let vehicle = world.vehicles().get("v-1").await.unwrap();
    let said = vehicle.spec.access.unwrap();
    assert_eq!((said.used_token, said.keys), (Some(token.key()), vec![public_key(&own.serialize_pem()).unwrap()]));

    let forged = |name: &str, group: &str| request(&other, name, group);
    let thief = forged("v-1", "system:vehicles");
    let (for_two, for_none) = (forged("v-2", "system:vehicles"), forged("v-3", "system:vehicles"));
    let for_masters = forged("v-1", "system:masters");
    let enrol_with = |request: &str, proof: Proof| ("/v1/enrol", None, Some(body(request, &proof)));
    let renew_with = |request: &str, proof: Proof| ("/v1/renew", papers, Some(body(request, &proof)));
    for (what, (path, papers, body), code, why) in [
        ("the same token for another key", enrol_with(&thief, token.vouch(&thief)), 403, "its token was used already"),
        ("another token", enrol_with(&thief, stranger.vouch(&thief)), 403, "this is not its token"),
        ("the token of another vehicle", enrol_with(&for_two, token.vouch(&for_two)), 403, "there is no token for it"),
        ("a vehicle that is not there", enrol_with(&for_none, token.vouch(&for_none)), 403, "there is no vehicle"),
        ("a group that is none of vehicles", enrol_with(&for_masters, token.vouch(&for_masters)), 403, "is no vehicle"),
        ("a token for another request", enrol_with(&thief, token.vouch(&good)), 403, "this is not its token"),
        ("a key without a certificate", enrol_with(&thief, by_key(&other, &thief)), 403, "no key that counts"),
        ("a key where none is known", enrol_with(&for_two, by_key(&other, &for_two)), 403, "needs a token"),
        ("no request", ("/v1/enrol", None, Some(b"{}".to_vec())), 400, "missing field"),
        ("too much", ("/v1/enrol", None, Some(vec![b'x'; 20_000])), 413, ""),
        (
            "a renewal without a certificate",
            ("/v1/renew", None, Some(body(&thief, &by_key(&own, &thief)))),
            401,
            "certificate",
        ),
        ("a renewal for another vehicle", renew_with(&for_two, by_key(&own, &for_two)), 403, "renews its own"),
        ("a renewal that nobody vouches for", renew_with(&thief, by_key(&other, &thief)), 403, "no key that counts"),
        ("a renewal with the token", renew_with(&thief, token.vouch(&thief)), 403, "renews its own"),
        ("a session without a certificate", ("/v1/connect", None, None), 401, "certificate"),
        ("a poll without a certificate", ("/v1/poll?wait=false", None, Some(hello())), 401, "certificate"),
        ("firmware without a certificate", ("/v1/firmware/00", None, None), 401, "certificate"),
        (
            "firmware that no task asks for",
            (&*format!("/v1/firmware/{}", "0".repeat(64)), papers, None),
            403,
            "no task",
        ),
    ] {
        let (found, text) = ask(&world, path, papers, body.as_deref());
        let text = String::from_utf8_lossy(&text);
        assert!(found == code && text.contains(why), "{what}: {found} {text}");
    }
    // A certificate of another authority doesn't get as far as an answer.
    let stranger = CertificateParams::default().self_signed(&other).unwrap();
    std::fs::write(world.path("stranger.pem"), stranger.pem()).unwrap();
    std::fs::write(world.path("stranger.key"), other.serialize_pem()).unwrap();
    assert_eq!(ask(&world, "/v1/poll?wait=false", Some(("stranger.pem", "stranger.key")), Some(&hello())).0, 0);

    // The time of a token is over; access is revoked. Neither the hub nor, behind it, who approves grants anything.
    let late = json!({"key": Token::parse(&"8".repeat(64)).unwrap().key(), "expires": "2026-01-01T00:00:00Z"});
    access(&world, json!({ "token": late })).await;
    let late = Token::parse(&"8".repeat(64)).unwrap().vouch(&thief);
    while !String::from_utf8_lossy(&enrol(&thief, &late).1).contains("its token has expired") {}
    assert_eq!(decided(&world, &thief, &late).await, ("Denied".into(), "default/v-1: its token has expired".into()));
    access(&world, json!({"revoked": true})).await;
    while !String::from_utf8_lossy(&enrol(&good, &token.vouch(&good)).1).contains("its access is revoked") {}
    assert_eq!(decided(&world, &good, &token.vouch(&good)).await.1, "default/v-1: its access is revoked");
    assert_eq!(decided(&world, &for_masters, &token.vouch(&for_masters)).await.0, "Denied");
}

/// What is decided about a request that came to the API server past the hub.
async fn decided(world: &World, request: &str, proof: &Proof) -> (String, String) {
    let api: Api<CertificateSigningRequest> = Api::all(world.client.clone());
    let request = json!({
        "metadata": {"generateName": "past-", "annotations": {"fleet.setpoint.dev/proof": proof.text()}},
        "spec": {
            "request": k8s_openapi::ByteString(request.as_bytes().to_vec()), "signerName": "fleet.setpoint.dev/vehicle",
            "usages": ["client auth", "digital signature"],
        },
    });
    let made = api.create(&PostParams::default(), &serde_json::from_value(request).unwrap()).await.unwrap();
    loop {
        let status = api.get(made.metadata.name.as_deref().unwrap()).await.unwrap().status.unwrap_or_default();
        if let Some(condition) = status.conditions.unwrap_or_default().pop() {
            assert_eq!(status.certificate, None);
            return (condition.type_, condition.message.unwrap_or_default());
        }
    }
}

/// The configuration that `setpoint fleet enrol` wrote, with what it leaves open.
fn fill_in(world: &World, folder: &str) -> String {
    let file = world.path(folder).join("agent.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    config["hardwareId"] = "tcu-1".into();
    config["initialVersion"] = "1.0.0".into();
    config["root"] = world.text("keys/root.json").into();
    config["hooks"] = hook(world, "true")["hooks"].clone();
    std::fs::write(&file, config.to_string()).unwrap();
    format!("{folder}/agent.json")
}

#[tokio::test]
async fn a_vehicle_enrols_with_its_token_is_cut_off_when_it_is_revoked_and_comes_back_with_another() {
    let world = World::start(&["up"]).await;
    world.make("v-1").await;
    world.configure(&world.hub_url(), json!({}));
    let enrol = |folder: &str| {
        world.say(&["fleet", "enrol", "v-1", "--with-token", "--out", &world.text(folder)]);
        fill_in(&world, folder)
    };
    let first = world.start_agent_with(&enrol("first"));
    world.until(is_connected).await;
    assert!(!world.path("first/token").exists(), "a token that was used is kept");
    assert!(Path::new(&world.text("first/key.pem")).exists());
    let papers = Some(("first/certificate.pem", "first/key.pem"));
    let poll = |papers| ask(&world, "/v1/poll?wait=false", papers, Some(&hello()));

    world.say(&["fleet", "revoke", "v-1"]);
    world.until(|status| !is_connected(status)).await;
    let (code, text) = poll(papers);
    assert_eq!((code, &*text), (403, &b"this vehicle is not known, or its certificate doesn't count"[..]));
    drop(first);

    // Another key, with another token: the one before doesn't count, whatever became of it.
    world.say(&["fleet", "revoke", "v-1", "--undo"]);
    let second = world.start_agent_with(&enrol("second"));
    world.until(is_connected).await;
    assert_eq!(poll(papers).0, 403);
    world.release("2.0.0", b"new").await;
    world.want("2.0.0").await;
    world.until(runs("2.0.0")).await;
    drop(second);
}

/// A certificate that counts from and until these days from now, made with the authority's own key.
fn old_certificate(world: &World, key: &KeyPair, from: i64, until: i64) -> String {
    let pem = std::fs::read_to_string(world.path("data/pki/ca.pem")).unwrap();
    let part = |label: &str| &pem[pem.find(label).unwrap()..];
    let key_of_authority = KeyPair::from_pem(part("-----BEGIN PRIVATE KEY-----")).unwrap();
    let issuer = Issuer::from_ca_cert_pem(part("-----BEGIN CERTIFICATE-----"), key_of_authority).unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "system:vehicle:default:v-1");
    params.distinguished_name.push(DnType::OrganizationName, "system:vehicles");
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    let day = |days: i64| {
        let at = Timestamp::now().saturating_add(SignedDuration::from_hours(24 * days)).unwrap();
        let date = at.to_zoned(TimeZone::UTC).date();
        date_time_ymd(date.year().into(), date.month().unsigned_abs(), date.day().unsigned_abs())
    };
    (params.not_before, params.not_after) = (day(from), day(until));
    params.signed_by(key, &issuer).unwrap().pem()
}

#[tokio::test]
async fn a_certificate_is_replaced_before_its_time_is_over() {
    let world = World::start(&["up"]).await;
    world.make("v-1").await;
    world.configure(&world.hub_url(), hook(&world, "true"));
    let key = KeyPair::generate().unwrap();
    let before = public_key(&key.serialize_pem()).unwrap();
    std::fs::write(world.path("key.pem"), key.serialize_pem()).unwrap();
    // Of this one more than two thirds of the time are over.
    let old = old_certificate(&world, &key, -25, 5);
    std::fs::write(world.path("certificate.pem"), &old).unwrap();
    access(&world, json!({"keys": [before]})).await;
    let mut agent = world.start_agent();
    let renewed = world.until_vehicle(|vehicle| keys(vehicle).len() == 2).await.pop().unwrap();
    assert_eq!(keys(&renewed)[1], before);
    // It takes the place of the other once it is there; who is killed before that asks again.
    let is_replaced = || std::fs::read_to_string(world.path("certificate.pem")).unwrap() != old;
    while !is_replaced() {
        world.client.apiserver_version().await.unwrap();
    }
    let own = public_key(&std::fs::read_to_string(world.path("key.pem")).unwrap()).unwrap();
    assert_eq!(own, keys(&renewed)[0]);
    agent.kill();
    let _agent = world.start_agent();
    world.release("2.0.0", b"new").await;
    world.want("2.0.0").await;
    world.until(runs("2.0.0")).await;
    assert_eq!(keys(&world.vehicles().get("v-1").await.unwrap()), keys(&renewed), "it was renewed again at once");
}

#[tokio::test]
async fn a_vehicle_that_was_off_for_longer_than_its_certificate_counts_comes_back_by_itself() {
    let world = World::start(&["up"]).await;
    world.make("v-1").await;
    world.configure(&world.hub_url(), hook(&world, "true"));
    let key = KeyPair::generate().unwrap();
    let before = public_key(&key.serialize_pem()).unwrap();
    std::fs::write(world.path("key.pem"), key.serialize_pem()).unwrap();
    std::fs::write(world.path("certificate.pem"), old_certificate(&world, &key, -40, -10)).unwrap();
    let ended = (Timestamp::now() - SignedDuration::from_hours(240)).to_string();
    // Ten days are too long for this one.
    access(&world, json!({"keys": [before], "keysUntil": ended, "returnWithin": "24h"})).await;
    let agent = world.start_agent();
    let next = request(&KeyPair::generate().unwrap(), "v-1", "system:vehicles");
    let proof = by_key(&key, &next);
    let enrol = || ask(&world, "/v1/enrol", None, Some(&body(&next, &proof)));
    assert!(until_answered(&world, enrol, 403).await.contains("needs a token now"));
    assert!(world.say(&["fleet", "why", "v-1"]).contains("it needs a token: `setpoint fleet token v-1`"));
    assert!(!world.vehicles().get("v-1").await.unwrap().status.is_some_and(|status| is_connected(&status)));
    // Where it may be away for longer, nobody has to touch it.
    access(&world, json!({"returnWithin": "720h"})).await;
    world.until(is_connected).await;
    let vehicle = world.vehicles().get("v-1").await.unwrap();
    assert_eq!((keys(&vehicle).len(), keys(&vehicle)[1].clone()), (2, before));
    drop(agent);
}

/// Asks the API server with the certificate of `v-1`.
fn ask_server(world: &World, method: &str, path: &str, body: Option<&Value>) -> (u16, String) {
    let kubeconfig = kube::config::Kubeconfig::read_from(&world.server.kubeconfig).unwrap();
    let server = kubeconfig.clusters[0].cluster.as_ref().unwrap().server.clone().unwrap();
    let mut command = Command::new("curl");
    command.args(["-sS", "-X", method, "-w", "\n%{http_code}", "--cacert", &world.text("ca.pem")]);
    command.args(["--cert", &world.text("certificate.pem"), "--key", &world.text("key.pem")]);
    if let Some(body) = body {
        command.args(["-H", "content-type: application/merge-patch+json", "--data", &body.to_string()]);
    }
    let output = command.arg(format!("{server}{path}")).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (text, code) = text.rsplit_once('\n').unwrap_or_default();
    (code.parse().unwrap_or(0), format!("{text}{}", String::from_utf8_lossy(&output.stderr)))
}

/// The right to a firmware follows from what users and controllers wrote, not from what the vehicle says.
#[tokio::test]
async fn a_certificate_of_a_vehicle_reaches_what_is_its_own_and_can_not_name_itself_more() {
    let world = World::start(&["up"]).await;
    world.enrol(&world.hub_url(), json!({})).await;
    world.make("v-2").await;
    world.release("2.0.0", b"for it").await;
    let other = world.signed("3.0.0", b"for others", &[]);
    let digest = other["spec"]["artifacts"][0]["sha256"].as_str().unwrap().to_owned();
    world.publish(other).await;
    world.want("2.0.0").await;
    let (vehicles, firmwares) = (
        "/apis/fleet.setpoint.dev/v1alpha1/namespaces/default/vehicles",
        "/apis/fleet.setpoint.dev/v1alpha1/namespaces/default/firmwares",
    );
    let now = "2026-06-01T12:00:00Z";
    let task = json!({
        "id": "t", "attempt": 1, "generation": 1, "firmwareVersion": "3.0.0", "digest": digest, "issuedAt": now, "deadline": now,
    });
    let (said, told) = (json!({"status": {"agentVersion": "0.1"}}), json!({"status": {"task": task}}));
    let phase = json!({"status": {"phase": "UpToDate"}});
    let spec = json!({"spec": {"firmwareVersion": "3.0.0"}});
    for (method, path, body, code) in [
        ("GET", format!("{vehicles}/v-1"), None, 200),
        ("GET", format!("{firmwares}/2.0.0"), None, 200),
        ("PATCH", format!("{vehicles}/v-1/status"), Some(&said), 200),
        ("PATCH", format!("{vehicles}/v-1/status"), Some(&told), 403),
        ("PATCH", format!("{vehicles}/v-1/status"), Some(&phase), 403),
        ("PATCH", format!("{vehicles}/v-1"), Some(&spec), 403),
        ("GET", format!("{firmwares}/3.0.0"), None, 403),
        ("GET", firmwares.to_owned(), None, 403),
        ("GET", format!("{vehicles}/v-2"), None, 403),
        ("PATCH", format!("{vehicles}/v-2/status"), Some(&said), 403),
        ("GET", vehicles.to_owned(), None, 403),
        ("GET", "/api/v1/namespaces/default/secrets".to_owned(), None, 403),
    ] {
        let (found, text) = ask_server(&world, method, &path, body);
        assert_eq!(found, code, "{method} {path} {body:?}: {text}");
    }
    let (code, text) = ask(&world, &format!("/v1/firmware/{digest}"), Some(("certificate.pem", "key.pem")), None);
    assert_eq!((code, &*text), (403, &b"no task of yours asks for this firmware"[..]));
}
