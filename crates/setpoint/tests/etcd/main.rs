//! Several servers on one etcd: one cluster to their clients, also while processes and members of etcd come and go.

// Shared with the tests of the store, which need more of it.
#[allow(dead_code)]
#[path = "../../../store/tests/support/apart.rs"]
mod apart;
mod cut_off;
mod door;
#[allow(dead_code)]
#[path = "../../../store/tests/support/etcd_process.rs"]
mod etcd_process;
mod faults;
#[allow(dead_code)]
#[path = "../../../store/tests/support/linearizability.rs"]
mod linearizability;
mod local;
mod parts;
mod restarts;
#[path = "../server/mod.rs"]
mod server;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use etcd_process::Cluster;
use futures_util::{StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Service, ServiceAccount};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DynamicObject, ListParams, PostParams, WatchEvent, WatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;
use server::Server;

fn object<T: DeserializeOwned>(value: serde_json::Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn config_map(name: &str) -> ConfigMap {
    object(json!({"metadata": {"name": name}}))
}

fn start(cluster: &Cluster, command: &[&str], data: &Path) -> Server {
    let store = cluster.store();
    Server::start_as(&[command, &["--store", &store]].concat(), data)
}

#[tokio::test]
async fn two_servers_on_one_etcd_are_one_to_their_clients() {
    let (cluster, folder) = (Cluster::start(1), tempfile::tempdir().unwrap());
    let data = ["one", "other"].map(|name| folder.path().join(name));
    let servers = data.each_ref().map(|data| start(&cluster, &["server"], data));
    let clients = [servers[0].client().await, servers[1].client().await];
    let maps = clients.each_ref().map(|client| Api::<ConfigMap>::default_namespaced(client.clone()));
    for n in 0..40 {
        let (writer, reader) = (&maps[n % 2], &maps[(n + 1) % 2]);
        let name = format!("map-{n}");
        let made = writer.create(&PostParams::default(), &config_map(&name)).await.unwrap();
        assert_eq!(reader.get(&name).await.unwrap().resource_version(), made.resource_version());
        assert_eq!(reader.list(&ListParams::default()).await.unwrap().items.len(), n + 1);
    }
    let uids = [0, 1].map(|at| {
        let namespaces: Api<Namespace> = Api::all(clients[at].clone());
        async move { namespaces.get("default").await.unwrap().uid() }
    });
    let [one, other] = uids;
    assert_eq!(one.await, other.await, "what each makes at its start is there once");
    kinds_of_one_are_served_by_the_other(&clients).await;
    addresses_are_handed_out_once(&clients).await;
    // The authority is the same: what one server gave its administrator counts with the other.
    let kubeconfig = std::fs::read_to_string(&servers[0].kubeconfig).unwrap();
    let address = |text: &str| text.lines().find(|line| line.contains("server:")).unwrap().trim().to_owned();
    let theirs = address(&std::fs::read_to_string(&servers[1].kubeconfig).unwrap());
    let crossed = folder.path().join("crossed.kubeconfig");
    std::fs::write(&crossed, kubeconfig.replace(&address(&kubeconfig), &theirs)).unwrap();
    let listed = Command::new(server::tools().join("bin/kubectl"))
        .args(["get", "configmaps", "--output=name", "--kubeconfig"])
        .arg(&crossed)
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&listed.stdout).contains("configmap/map-0"), "{listed:?}");
    tokens_of_one_count_with_the_other(&clients, &servers[1]).await;
}

async fn tokens_of_one_count_with_the_other(clients: &[Client; 2], other: &Server) {
    let accounts: Api<ServiceAccount> = Api::default_namespaced(clients[0].clone());
    accounts.create(&PostParams::default(), &object(json!({"metadata": {"name": "robot"}}))).await.unwrap();
    let request = object(json!({"spec": {"audiences": []}}));
    let given = accounts.create_token_request("robot", &PostParams::default(), &request).await.unwrap();
    let token = given.status.unwrap().token.unwrap();
    let url = format!("{}/apis/authentication.k8s.io/v1/selfsubjectreviews", other.url());
    let review = r#"{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}"#;
    let answer = Command::new("curl")
        .args(["-sSk", "-H", "content-type: application/json", "-d", review])
        .args(["-H", &format!("authorization: Bearer {token}"), &url])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&answer.stdout).into_owned();
    assert!(said.contains("system:serviceaccount:default:robot"), "{said}");
}

async fn kinds_of_one_are_served_by_the_other(clients: &[Client; 2]) {
    let definitions: Api<CustomResourceDefinition> = Api::all(clients[0].clone());
    let definition = object(json!({
        "metadata": {"name": "lamps.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "lamps", "kind": "Lamp"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": {"type": "object", "properties": {"on": {"type": "boolean"}}}},
            }}}],
        },
    }));
    definitions.create(&PostParams::default(), &definition).await.unwrap();
    let lamps = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Lamp"));
    let lamps: Api<DynamicObject> = Api::default_namespaced_with(clients[1].clone(), &lamps);
    let lamp = object(json!({
        "apiVersion": "example.com/v1", "kind": "Lamp", "metadata": {"name": "desk"}, "spec": {"on": true},
    }));
    lamps.create(&PostParams::default(), &lamp).await.unwrap();
}

async fn addresses_are_handed_out_once(clients: &[Client; 2]) {
    let services = clients.each_ref().map(|client| Api::<Service>::default_namespaced(client.clone()));
    let mut making = tokio::task::JoinSet::new();
    for n in 0..60 {
        let services = services[n % 2].clone();
        let service = object(json!({
            "metadata": {"name": format!("service-{n}")},
            "spec": {"type": "NodePort", "selector": {"app": "a"}, "ports": [{"port": 80}]},
        }));
        making.spawn(async move { services.create(&PostParams::default(), &service).await.unwrap() });
    }
    let (mut addresses, mut ports) = (BTreeSet::new(), BTreeSet::new());
    while let Some(made) = making.join_next().await {
        let spec = made.unwrap().spec.unwrap();
        assert!(addresses.insert(spec.cluster_ip.unwrap()), "an address twice");
        assert!(ports.insert(spec.ports.unwrap()[0].node_port.unwrap()), "a port twice");
    }
}

#[tokio::test]
async fn a_server_without_etcd_says_so_and_comes_back_by_itself() {
    let (mut cluster, folder) = (Cluster::start(1), tempfile::tempdir().unwrap());
    let server = start(&cluster, &["server"], folder.path());
    let client = server.client().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    maps.create(&PostParams::default(), &config_map("before")).await.unwrap();
    cluster.kill(0);
    // Clients try again when they are told to come back later; so what they are told is looked at without one.
    let kubeconfig = std::fs::read_to_string(&server.kubeconfig).unwrap();
    let url = kubeconfig.lines().find_map(|line| line.trim().strip_prefix("server: ")).unwrap().to_owned();
    for method in ["GET", "POST"] {
        let path = format!("{url}/api/v1/namespaces/default/configmaps");
        let answer = Command::new("curl").args(["-sSki", "-X", method, "-d", "", &path]).output().unwrap();
        let answer = String::from_utf8(answer.stdout).unwrap().to_lowercase();
        let is_told = answer.starts_with("http/2 503") && answer.contains("retry-after: 1");
        assert!(is_told, "no stale read passes for a fresh one, and no write for done: {answer}");
    }
    let text = async |path: &str| {
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        client.request_text(request).await
    };
    while text("/readyz").await.is_ok() {}
    let why = text("/readyz/etcd").await.unwrap_err().to_string();
    assert!(why.contains("can't be reached") || why.contains("lost") || why.contains("in time"), "{why}");
    // Whoever is content with any version still gets one.
    let any = ListParams { resource_version: Some("0".to_owned()), ..ListParams::default() };
    assert_eq!(maps.list(&any).await.unwrap().items.len(), 1);
    cluster.start_again(0);
    while text("/readyz").await.is_err() {}
    assert_eq!(maps.get("before").await.unwrap().name_any(), "before");
    maps.create(&PostParams::default(), &config_map("after")).await.unwrap();
    let figures = text("/metrics").await.unwrap();
    assert!(figures.contains("setpoint_etcd_reachable 1"), "{figures}");
}

#[tokio::test]
async fn a_client_goes_on_with_the_next_server_while_all_of_them_are_restarted() {
    let (cluster, folder) = (Cluster::start(1), tempfile::tempdir().unwrap());
    let data = ["one", "other"].map(|name| folder.path().join(name));
    let [one, other] = data.each_ref().map(|data| start(&cluster, &["server"], data));
    let mut servers = [Some(one), Some(other)];
    let maps = async |servers: &[Option<Server>; 2], at: usize| {
        Api::<ConfigMap>::default_namespaced(servers[at].as_ref().unwrap().client().await)
    };
    let list = maps(&servers, 0).await.list(&ListParams::default()).await.unwrap();
    let mut seen = list.metadata.resource_version.unwrap();
    let (mut made, mut told) = (0, Vec::new());
    for round in 0..4 {
        let (down, up) = (round % 2, (round + 1) % 2);
        // One goes, the other takes over its clients; then it comes back.
        servers[down].take();
        let api = maps(&servers, up).await;
        for _ in 0..5 {
            api.create(&PostParams::default(), &config_map(&format!("map-{made}"))).await.unwrap();
            made += 1;
        }
        // A watch goes on from where it was with another server: versions mean the same to both.
        let mut events = api.watch(&WatchParams::default().timeout(30), &seen).await.unwrap().boxed();
        while told.len() < made {
            match events.try_next().await.unwrap().expect("events that were not told yet") {
                WatchEvent::Added(map) => {
                    seen = map.resource_version().unwrap();
                    told.push(map.name_any());
                }
                event => panic!("{event:?}"),
            }
        }
        servers[down] = Some(start(&cluster, &["server"], &data[down]));
    }
    assert_eq!(told, (0..made).map(|n| format!("map-{n}")).collect::<Vec<_>>(), "each once and in order");
}

#[tokio::test]
async fn what_etcd_has_no_room_for_is_refused_and_shows() {
    let (cluster, folder) = (Cluster::start_with(1, &["--quota-backend-bytes=16777216"]), tempfile::tempdir().unwrap());
    let server = start(&cluster, &["server"], folder.path());
    let client = server.client().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let filled = |name: &str, bytes: usize| {
        object::<ConfigMap>(json!({"metadata": {"name": name}, "binaryData": {"a": "A".repeat(bytes / 4 * 4)}}))
    };
    let refused = async |name: &str, bytes: usize| match maps.create(&PostParams::default(), &filled(name, bytes)).await
    {
        Err(kube::Error::Api(status)) => Some(status),
        Err(error) => panic!("{error}"),
        Ok(_) => None,
    };
    // A request to etcd takes 1.5 MiB, also if nothing else is against it.
    let custom = large_custom_object(&client).await;
    assert_eq!((custom.code, &*custom.reason), (413, "RequestEntityTooLarge"), "{custom:?}");
    let mut n = 0;
    let full = loop {
        n += 1;
        if let Some(status) = refused(&format!("map-{n}"), 900_000).await {
            break status;
        }
    };
    assert!(full.message.contains("etcdserver: mvcc: database space exceeded"), "{full:?}");
    let text = async |path: &str| client.request_text(http::Request::get(path).body(Vec::new()).unwrap()).await;
    while text("/readyz").await.is_ok() {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    let why = text("/readyz/etcd").await.unwrap_err().to_string();
    assert!(why.contains("alarm NOSPACE"), "{why}");
    let figures = text("/metrics").await.unwrap();
    assert!(figures.contains(r#"setpoint_etcd_alarms{alarm="NOSPACE"} 1"#), "{figures}");
    assert!(figures.contains(r#"setpoint_etcd_alarms{alarm="CORRUPT"} 0"#), "{figures}");
    // Reads go on.
    assert_eq!(maps.get("map-1").await.unwrap().name_any(), "map-1");
}

/// What the server says to an object of 1.6 MB, of a kind that has no bound of its own.
async fn large_custom_object(client: &Client) -> kube::core::Status {
    let definition = object(json!({
        "metadata": {"name": "blobs.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "blobs", "kind": "Blob"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": {"type": "string"}},
            }}}],
        },
    }));
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions.create(&PostParams::default(), &definition).await.unwrap();
    let blobs = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Blob"));
    let blobs: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &blobs);
    let blob = object(json!({
        "apiVersion": "example.com/v1", "kind": "Blob", "metadata": {"name": "a"}, "spec": "x".repeat(1_600_000),
    }));
    match blobs.create(&PostParams::default(), &blob).await {
        Err(kube::Error::Api(status)) => *status,
        outcome => panic!("{outcome:?}"),
    }
}

#[tokio::test]
async fn two_control_planes_on_one_machine_have_hubs_of_different_names() {
    let (cluster, folder) = (Cluster::start(1), tempfile::tempdir().unwrap());
    let name = |data: &Path| std::fs::read_to_string(data.join("hub.name")).unwrap();
    let data = ["one", "other"].map(|name| folder.path().join(name));
    let first = {
        let _planes = data.each_ref().map(|data| start(&cluster, &["up"], data));
        assert_ne!(name(&data[0]), name(&data[1]));
        name(&data[0])
    };
    // It is kept.
    let _again = start(&cluster, &["up"], &data[0]);
    assert_eq!(name(&data[0]), first);
}

#[tokio::test]
async fn of_two_whole_control_planes_one_leads_and_the_other_takes_over() {
    let (cluster, folder) = (Cluster::start(1), tempfile::tempdir().unwrap());
    let names = ["one", "other"];
    let mut planes: Vec<(String, Server)> = Vec::new();
    for name in names {
        let data = folder.path().join(name);
        planes.push((name.to_owned(), start(&cluster, &["up", "--no-hub"], &data)));
    }
    let holder = async |client: &Client| {
        let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-system");
        leases.get_opt("setpoint").await.unwrap().and_then(|lease| lease.spec?.holder_identity).unwrap_or_default()
    };
    let client = planes[1].1.client().await;
    make_deployment(&client, "first").await;
    let first = holder(&client).await;
    assert!(!first.is_empty());
    // The first to start leads: nobody gave it a reason to go.
    drop(planes.remove(0));
    make_deployment(&client, "second").await;
    assert_ne!(holder(&client).await, first);
}

/// Makes a Deployment and waits until a controller has made its ReplicaSet.
async fn make_deployment(client: &Client, name: &str) {
    let (deployments, sets) =
        (Api::<Deployment>::default_namespaced(client.clone()), Api::<ReplicaSet>::default_namespaced(client.clone()));
    let deployment = object(json!({
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "a", "image": "a"}]}},
        },
    }));
    deployments.create(&PostParams::default(), &deployment).await.unwrap();
    let wanted = WatchParams::default().labels(&format!("app={name}")).timeout(60).disable_bookmarks();
    let mut events = sets.watch(&wanted, "0").await.unwrap().boxed();
    let event = events.try_next().await.unwrap().expect("a ReplicaSet within a minute");
    assert!(matches!(event, WatchEvent::Added(_)), "{event:?}");
}

#[tokio::test]
async fn everything_moves_to_etcd_and_back() {
    let (cluster, folder) = (Cluster::start(1), tempfile::tempdir().unwrap());
    let (from, back) = (folder.path().join("from"), folder.path().join("back"));
    let uid = {
        let mut server = Server::start(&from);
        let client = server.client().await;
        let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::default_namespaced(client.clone());
        secrets.create(&PostParams::default(), &object(json!({"metadata": {"name": "sealed"}}))).await.unwrap();
        let maps: Api<ConfigMap> = Api::default_namespaced(client);
        let made = maps.create(&PostParams::default(), &config_map("moved")).await.unwrap();
        server.kill();
        made.uid()
    };
    let store = cluster.store();
    let migrate = |from: &str, to: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_setpoint"))
            .args(["migrate", "--from", from, "--to", to])
            .env_remove("SETPOINT_LOG")
            .output()
            .unwrap();
        (
            output.status.code(),
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)),
        )
    };
    let (code, said) = migrate(from.to_str().unwrap(), &store);
    assert!(code == Some(0) && said.contains("on both sides"), "{said}");
    let (code, said) = migrate(from.to_str().unwrap(), &store);
    assert!(code == Some(1) && said.contains("already"), "{said}");
    {
        let server = start(&cluster, &["server"], &folder.path().join("server"));
        let client = server.client().await;
        let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
        assert_eq!(maps.get("moved").await.unwrap().uid(), uid);
        maps.create(&PostParams::default(), &config_map("added")).await.unwrap();
        // Clients of before know the authority and its signature.
        let before = std::fs::read(from.join("pki/ca.pem")).unwrap();
        assert_eq!(before, std::fs::read(folder.path().join("server/pki/ca.pem")).unwrap());
    }
    // To another etcd, and from there back to a folder.
    let other = Cluster::start(1);
    let second = other.store();
    let (code, said) = migrate(&store, &second);
    assert!(code == Some(0) && said.contains("on both sides"), "{said}");
    let verified = |store: &str| {
        let command = Command::new(env!("CARGO_BIN_EXE_setpoint")).args(["verify", "--store", store]).output().unwrap();
        let said = [command.stdout, command.stderr].concat();
        (command.status.code(), String::from_utf8_lossy(&said).into_owned())
    };
    let (code, said) = verified(&second);
    assert!(code == Some(0) && said.starts_with("ok: "), "{said}");
    let (code, said) = migrate(&second, back.to_str().unwrap());
    assert!(code == Some(0) && said.contains("on both sides"), "{said}");
    let server = Server::start(&back);
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client().await);
    assert_eq!(maps.get("moved").await.unwrap().uid(), uid);
    assert_eq!(maps.get("added").await.unwrap().name_any(), "added");
}

#[tokio::test]
async fn a_backup_of_etcd_fills_an_empty_one_and_keys_are_rotated_in_it() {
    let (cluster, folder) = (Cluster::start(1), tempfile::tempdir().unwrap());
    let (store, data) = (cluster.store(), folder.path().join("data"));
    let file = |name: &str| folder.path().join(name).display().to_string();
    let run = |command: &[&str], data: &Path| {
        let output = Command::new(env!("CARGO_BIN_EXE_setpoint"))
            .args(command)
            .args(["--store", &store, "--data-dir"])
            .arg(data)
            .env_remove("SETPOINT_LOG")
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let secret: k8s_openapi::api::core::v1::Secret =
        object(json!({"metadata": {"name": "hidden"}, "stringData": {"a": "b"}}));
    let made = {
        let server = start(&cluster, &["server"], &data);
        Api::default_namespaced(server.client().await).create(&PostParams::default(), &secret).await.unwrap()
    };
    assert_eq!(run(&["backup", &file("before")], &data).0, Some(0));
    assert_eq!(run(&["rotate-keys", "--drop-old"], &data).0, Some(0));
    // A server that never saw the old key reads everything: the new one came to it through etcd.
    let other = folder.path().join("other");
    {
        let server = start(&cluster, &["server"], &other);
        let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::default_namespaced(server.client().await);
        assert_eq!(secrets.get("hidden").await.unwrap().data, made.data);
    }
    let (code, said) = run(&["restore", &file("before"), "--etcd-prefix", "/second"], &other);
    assert!(code == Some(1) && said.contains("the key that it was sealed with"), "{said}");
    assert_eq!(run(&["backup", &file("after")], &other).0, Some(0));
    let (code, said) = run(&["restore", &file("after")], &other);
    assert!(code == Some(1) && said.contains("already"), "{said}");
    assert_eq!(run(&["restore", &file("after"), "--etcd-prefix", "/third"], &other).0, Some(0));
    let server = start(&cluster, &["server", "--etcd-prefix", "/third"], &other);
    let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::default_namespaced(server.client().await);
    let restored = secrets.get("hidden").await.unwrap();
    assert_eq!((restored.uid(), &restored.data), (made.uid(), &made.data));
    let version =
        |object: &k8s_openapi::api::core::v1::Secret| object.resource_version().unwrap().parse::<u64>().unwrap();
    assert!(version(&restored) > version(&made) + 1_000_000, "beyond all that anybody can have seen");
}

/// What a server says that can't use etcd.
fn refused(cluster: &Cluster, arguments: &[&str], data: &Path) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_setpoint"))
        .args(["server", "--listen", "127.0.0.1:0", "--store", &cluster.store(), "--data-dir"])
        .arg(data)
        .args(arguments)
        .env_remove("SETPOINT_LOG")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test]
async fn an_etcd_that_asks_for_certificates_gets_them() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let key = rcgen::KeyPair::generate().unwrap();
    let mut parameters = rcgen::CertificateParams::new(Vec::new()).unwrap();
    parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = parameters.self_signed(&key).unwrap();
    std::fs::write(file("ca.pem"), authority.pem()).unwrap();
    let issuer = rcgen::Issuer::new(parameters, key);
    for name in ["member", "client"] {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut parameters = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        parameters.extended_key_usages =
            vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth, rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = parameters.signed_by(&key, &issuer).unwrap();
        std::fs::write(file(&format!("{name}.pem")), certificate.pem()).unwrap();
        std::fs::write(file(&format!("{name}.key")), key.serialize_pem()).unwrap();
    }
    let (ca, member, secret) = (file("ca.pem"), file("member.pem"), file("member.key"));
    let secured = [
        format!("--cert-file={member}"),
        format!("--key-file={secret}"),
        format!("--trusted-ca-file={ca}"),
        "--client-cert-auth=true".to_owned(),
    ];
    let cluster = Cluster::start_with(1, &secured.each_ref().map(String::as_str));
    let (certificate, key) = (file("client.pem"), file("client.key"));
    // Whom nobody vouches for is not believed, and not asked again and again.
    let other = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(file("other.pem"), other.cert.pem()).unwrap();
    let said = refused(&cluster, &["--etcd-cafile", &file("other.pem")], &folder.path().join("refused"));
    assert!(said.contains("invalid peer certificate"), "{said}");
    let shown = ["server", "--etcd-cafile", &ca, "--etcd-certfile", &certificate, "--etcd-keyfile", &key];
    let server = start(&cluster, &shown, &folder.path().join("data"));
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client().await);
    maps.create(&PostParams::default(), &config_map("a")).await.unwrap();
    assert_eq!(maps.get("a").await.unwrap().name_any(), "a");
}

#[tokio::test]
async fn an_etcd_that_asks_for_a_password_gets_it_again_when_its_token_is_old() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(1);
    let url = format!("http://127.0.0.1:{}/v3/auth", cluster.ports(0)[0]);
    let tell_as = |token: &str, what: &str, body: &str| {
        let arguments = ["-sSf", "--retry", "50", "--retry-all-errors", "--retry-delay", "1", "-d", body];
        let header = format!("authorization: {token}");
        let output = Command::new("curl").args(arguments).args(["-H", &header, &format!("{url}/{what}")]).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{what}: {output:?}");
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    let tell = |what: &str, body: &str| tell_as("", what, body);
    tell("user/add", r#"{"name":"root","password":"secret"}"#);
    tell("role/add", r#"{"name":"root"}"#);
    tell("user/grant", r#"{"user":"root","role":"root"}"#);
    tell("enable", "{}");
    let credentials = folder.path().join("credentials");
    std::fs::write(&credentials, "root:secret\n").unwrap();
    let wrong = folder.path().join("wrong");
    std::fs::write(&wrong, "root:guess\n").unwrap();
    let said = refused(&cluster, &["--etcd-credentials", wrong.to_str().unwrap()], &folder.path().join("refused"));
    assert!(said.contains("authentication failed, invalid user ID or password"), "{said}");
    let said = refused(&cluster, &[], &folder.path().join("refused"));
    assert!(said.contains("it asks for a name and a password"), "{said}");
    let command = ["server", "--etcd-credentials", credentials.to_str().unwrap()];
    let server = start(&cluster, &command, &folder.path().join("data"));
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client().await);
    for n in 0..5 {
        maps.create(&PostParams::default(), &config_map(&format!("map-{n}"))).await.unwrap();
        // A password that is set anew, be it the same, makes all tokens of before worthless.
        let token = tell("authenticate", r#"{"name":"root","password":"secret"}"#);
        tell_as(token["token"].as_str().unwrap(), "user/changepw", r#"{"name":"root","password":"secret"}"#);
    }
    assert_eq!(maps.list(&ListParams::default()).await.unwrap().items.len(), 5);
}
