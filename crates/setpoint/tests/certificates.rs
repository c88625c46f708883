//! Certificates, from the first request to the last authority: who is approved gets in, a machine joins with a token, and the
//! authority is replaced under the eyes of its clients.

mod server;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use futures_util::StreamExt;
use k8s_openapi::ByteString;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Secret};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::{Value, json};
use server::Server;

/// The signer of certificates for clients, and the one of those for nodes.
const CLIENTS: &str = "kubernetes.io/kube-apiserver-client";
const NODES: &str = "kubernetes.io/kube-apiserver-client-kubelet";

/// What somebody shows to the server.
enum Credentials<'a> {
    Certificate(&'a ByteString, &'a KeyPair),
    Token(&'a str),
}

async fn client_with(kubeconfig: &Path, credentials: Credentials<'_>) -> Client {
    let mut kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let user = kubeconfig.auth_infos[0].auth_info.as_mut().unwrap();
    let text = |bytes: &ByteString| json!(bytes).as_str().unwrap().to_owned();
    (user.client_certificate_data, user.client_key_data) = (None, None);
    match credentials {
        Credentials::Certificate(certificate, key) => {
            user.client_certificate_data = Some(text(certificate));
            user.client_key_data = Some(text(&ByteString(key.serialize_pem().into_bytes())).into());
        }
        Credentials::Token(token) => user.token = Some(token.to_owned().into()),
    }
    client_of(kubeconfig).await
}

async fn client_of(kubeconfig: Kubeconfig) -> Client {
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

/// Asks for a certificate.
async fn ask(requests: &Api<CertificateSigningRequest>, name: &str, signer: &str, who: [&str; 2]) -> (KeyPair, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, who[1]);
    params.distinguished_name.push(DnType::CommonName, who[0]);
    let asked = params.serialize_request(&key).unwrap().pem().unwrap();
    let request = json!({"metadata": {"name": name}, "spec": {
        "request": ByteString(asked.into_bytes()), "signerName": signer, "usages": ["client auth", "digital signature"],
    }});
    let made = requests.create(&PostParams::default(), &serde_json::from_value(request).unwrap()).await.unwrap();
    (key, made.metadata.resource_version.unwrap())
}

/// Waits until a request has its certificate.
async fn certificate(requests: &Api<CertificateSigningRequest>, name: &str, version: &str) -> ByteString {
    let only = WatchParams::default().timeout(60).fields(&format!("metadata.name={name}"));
    let mut events = requests.watch(&only, version).await.unwrap().boxed();
    loop {
        let event = events.next().await.expect("a certificate").unwrap();
        let WatchEvent::Modified(request) = event else { continue };
        if let Some(certificate) = request.status.and_then(|status| status.certificate) {
            return certificate;
        }
    }
}

async fn who(client: &Client) -> (String, Vec<String>) {
    let reviews: Api<SelfSubjectReview> = Api::all(client.clone());
    let review = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await.unwrap();
    let user = review.status.unwrap().user_info.unwrap();
    (user.username.unwrap(), user.groups.unwrap())
}

/// The code of a refusal.
fn code<T>(answer: kube::Result<T>) -> u16 {
    match answer {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn who_is_approved_gets_in_under_the_name_that_was_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_as(&["up"], folder.path());
    let requests: Api<CertificateSigningRequest> = Api::all(server.client().await);
    let (key, version) = ask(&requests, "jane", CLIENTS, ["jane", "developers"]).await;
    let approval = json!({"status": {"conditions": [{"type": "Approved", "status": "True", "reason": "KnowHer"}]}});
    requests.patch_subresource("approval", "jane", &PatchParams::default(), &Patch::Merge(approval)).await.unwrap();
    let certificate = certificate(&requests, "jane", &version).await;
    let jane = client_with(&server.kubeconfig, Credentials::Certificate(&certificate, &key)).await;
    let groups = ["developers", "system:authenticated"].map(str::to_owned).to_vec();
    assert_eq!(who(&jane).await, ("jane".to_owned(), groups));
}

/// What docs/security.md tells to do: a token that somebody carries to the machine, a certificate that the machine gets for it by itself,
/// and from then on a node that may what is its own.
#[tokio::test]
async fn a_node_joins_with_a_token_and_is_from_then_on_itself() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_as(&["up"], folder.path());
    let admin = server.client().await;
    let secrets: Api<Secret> = Api::namespaced(admin.clone(), "kube-system");
    let token = json!({
        "metadata": {"name": "bootstrap-token-07401b"},
        "type": "bootstrap.kubernetes.io/token",
        "stringData": {
            "token-id": "07401b", "token-secret": "f395accd246ae52d", "usage-bootstrap-authentication": "true",
            "expiration": "2999-01-01T00:00:00Z", "auth-extra-groups": "system:bootstrappers:workers",
        },
    });
    secrets.create(&PostParams::default(), &serde_json::from_value(token).unwrap()).await.unwrap();
    let bindings: Api<ClusterRoleBinding> = Api::all(admin.clone());
    let approved = "system:certificates.k8s.io:certificatesigningrequests";
    for (name, role, group) in [
        ("join", "system:node-bootstrapper".to_owned(), "system:bootstrappers:workers"),
        ("approve-join", format!("{approved}:nodeclient"), "system:bootstrappers:workers"),
        ("approve-renewal", format!("{approved}:selfnodeclient"), "system:nodes"),
    ] {
        let binding = json!({
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}],
        });
        bindings.create(&PostParams::default(), &serde_json::from_value(binding).unwrap()).await.unwrap();
    }

    // The machine, which has the token and nothing else.
    let starter = client_with(&server.kubeconfig, Credentials::Token("07401b.f395accd246ae52d")).await;
    let (name, groups) = who(&starter).await;
    assert_eq!(name, "system:bootstrap:07401b");
    assert!(groups.contains(&"system:bootstrappers:workers".to_owned()), "{groups:?}");
    let nodes: Api<Node> = Api::all(starter.clone());
    assert_eq!(code(nodes.list(&ListParams::default()).await), 403, "it may ask for a certificate and no more");
    let requests: Api<CertificateSigningRequest> = Api::all(starter.clone());
    let (key, version) = ask(&requests, "edge-7", NODES, ["system:node:edge-7", "system:nodes"]).await;
    let own = certificate(&requests, "edge-7", &version).await;

    let node = client_with(&server.kubeconfig, Credentials::Certificate(&own, &key)).await;
    let groups = ["system:nodes", "system:authenticated"].map(str::to_owned).to_vec();
    assert_eq!(who(&node).await, ("system:node:edge-7".to_owned(), groups));
    let nodes: Api<Node> = Api::all(node.clone());
    let named = |name: &str| serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    nodes.create(&PostParams::default(), &named("edge-7")).await.unwrap();
    assert_eq!(code(nodes.create(&PostParams::default(), &named("edge-8")).await), 403, "another's");
    let secrets_of_node: Api<Secret> = Api::namespaced(node.clone(), "kube-system");
    assert_eq!(code(secrets_of_node.get("bootstrap-token-07401b").await), 403);

    // It renews its certificate as itself; another's is not for it.
    let requests: Api<CertificateSigningRequest> = Api::all(node.clone());
    let (key, version) = ask(&requests, "edge-7-next", NODES, ["system:node:edge-7", "system:nodes"]).await;
    let next = certificate(&requests, "edge-7-next", &version).await;
    let renewed = client_with(&server.kubeconfig, Credentials::Certificate(&next, &key)).await;
    assert_eq!(who(&renewed).await.0, "system:node:edge-7");

    // The token ends, and what was got with it stays.
    secrets.delete("bootstrap-token-07401b", &DeleteParams::default()).await.unwrap();
    let nodes: Api<Node> = Api::all(starter);
    assert_eq!(code(nodes.list(&ListParams::default()).await), 401);
    assert_eq!(who(&renewed).await.0, "system:node:edge-7");
}

/// Runs `setpoint certs` on a folder; what it says, and how it ends.
fn certs(command: &str, data: &Path) -> (String, Option<i32>) {
    let run = Command::new(env!("CARGO_BIN_EXE_setpoint"))
        .args(["certs", command, "--data-dir"])
        .arg(data)
        .output()
        .expect("the binary of this crate runs");
    let said = [run.stdout, run.stderr].concat();
    (String::from_utf8(said).unwrap(), run.status.code())
}

fn names_of(data: &Path) -> Vec<(String, String)> {
    let run = Command::new(env!("CARGO_BIN_EXE_setpoint"))
        .args(["certs", "status", "-o", "json", "--data-dir"])
        .arg(data)
        .output()
        .expect("the binary of this crate runs");
    let told: Value = serde_json::from_slice(&run.stdout).unwrap();
    let text = |one: &Value, field: &str| one[field].as_str().unwrap().to_owned();
    told["certificates"].as_array().unwrap().iter().map(|one| (text(one, "role"), text(one, "signedBy"))).collect()
}

/// Waits until the certificates that pods trust are as many as this.
async fn until_published(client: &Client, count: usize) {
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let only = WatchParams::default().timeout(60).fields("metadata.name=kube-root-ca.crt");
    let mut events = maps.watch(&only, "0").await.unwrap().boxed();
    while let Some(event) = events.next().await {
        let (WatchEvent::Added(map) | WatchEvent::Modified(map)) = event.unwrap() else { continue };
        if map.data.unwrap()["ca.crt"].matches("BEGIN CERTIFICATE").count() == count {
            return;
        }
    }
    panic!("there are not {count} certificates to trust");
}

#[tokio::test]
async fn another_authority_takes_over_while_the_server_runs_and_its_clients_work_on() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    assert_eq!(certs("rotate", &data).1, Some(1), "there is nothing yet");
    let server = Server::start_as(&["up"], &data);
    let before = Kubeconfig::read_from(&server.kubeconfig).unwrap();
    let old = server.client().await;
    until_published(&old, 1).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(old.clone());
    let mut watching = maps.watch(&WatchParams::default().timeout(290), "0").await.unwrap().boxed();
    assert!(watching.next().await.unwrap().is_ok());
    let (said, ended) = certs("retire", &data);
    assert_eq!((ended, said.contains("nothing to retire")), (Some(0), true), "{said}");

    let (said, ended) = certs("rotate", &data);
    assert_eq!((ended, said.contains("has taken it up")), (Some(0), true), "{said}");
    assert_eq!(server.kubeconfig.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let (old_again, new) = (client_of(before.clone()).await, server.client().await);
    for client in [&old, &old_again, &new] {
        assert_eq!(who(client).await.0, "kubernetes-admin", "both count");
    }
    until_published(&new, 2).await;
    let roles = names_of(&data);
    assert_eq!(roles.len(), 4, "{roles:?}");
    assert!(roles.iter().filter(|(role, _)| role != "former authority").all(|(_, by)| by.starts_with("setpoint-ca-")));
    // What was asked for under one is signed by the other.
    let requests: Api<CertificateSigningRequest> = Api::all(old_again.clone());
    let (key, version) = ask(&requests, "jane", CLIENTS, ["jane", "developers"]).await;
    let approval = json!({"status": {"conditions": [{"type": "Approved", "status": "True", "reason": "KnowHer"}]}});
    requests.patch_subresource("approval", "jane", &PatchParams::default(), &Patch::Merge(approval)).await.unwrap();
    let signed = certificate(&requests, "jane", &version).await;
    let (said, ended) = certs("rotate", &data);
    assert_eq!((ended, said.contains("certs retire")), (Some(1), true), "{said}");

    let (said, ended) = certs("retire", &data);
    assert_eq!((ended, said.contains("has taken it up")), (Some(0), true), "{said}");
    let cut_off = async { while watching.next().await.is_some_and(|event| event.is_ok()) {} };
    tokio::time::timeout(std::time::Duration::from_secs(60), cut_off).await.expect("the watch is cut off");
    let reviews: Api<SelfSubjectReview> = Api::all(client_of(before.clone()).await);
    let refused = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await;
    assert!(!matches!(refused, Ok(_) | Err(kube::Error::Api(_))), "who knows only the old one doesn't know the server");
    let mut mixed = Kubeconfig::read_from(&server.kubeconfig).unwrap();
    mixed.auth_infos = before.auth_infos.clone();
    let maps: Api<ConfigMap> = Api::default_namespaced(client_of(mixed).await);
    assert_eq!(code(maps.list(&ListParams::default()).await), 401, "certificates by the old one count no more");
    assert_eq!(who(&server.client().await).await.0, "kubernetes-admin");
    let jane = client_with(&server.kubeconfig, Credentials::Certificate(&signed, &key)).await;
    assert_eq!(who(&jane).await.0, "jane");
    until_published(&server.client().await, 1).await;
    server.stop();

    let (said, ended) = certs("rotate", &data);
    assert_eq!((ended, said.contains("the next start takes it up")), (Some(0), true), "{said}");
    assert_eq!(certs("retire", &data).1, Some(1), "nobody could have taken it over");
    let server = Server::start(&data);
    assert_eq!(who(&server.client().await).await.0, "kubernetes-admin");
    assert_eq!(who(&jane_again(&server, &signed, &key).await).await.0, "jane", "the one before counts for now");
}

async fn jane_again(server: &Server, certificate: &ByteString, key: &KeyPair) -> Client {
    client_with(&server.kubeconfig, Credentials::Certificate(certificate, key)).await
}
