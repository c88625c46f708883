//! What a server is like that was started without a flag: the table of the CIS benchmark, section 1.2, as far as it is about an API server.

mod server;

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use http::Request;
use k8s_openapi::api::core::v1::{Pod, Secret, Service};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::json;
use server::Server;

/// What must not be found on the disk, nor in what is logged.
const CANARY: &str = "canary-that-nobody-may-read";

struct Table {
    rows: Vec<(&'static str, &'static str, bool)>,
}

impl Table {
    fn row(&mut self, number: &'static str, what: &'static str, holds: bool) {
        self.rows.push((number, what, holds));
    }

    fn text(&self) -> String {
        self.rows.iter().fold(String::new(), |mut text, (number, what, holds)| {
            let _ = writeln!(text, "{number:<10}{:<6}{what}", if *holds { "pass" } else { "FAIL" });
            text
        })
    }
}

/// A client with other credentials than the administrator's: none, or a token.
async fn client_with(server: &Server, token: Option<&str>) -> Client {
    let mut kubeconfig = Kubeconfig::read_from(&server.kubeconfig).unwrap();
    let user = kubeconfig.auth_infos[0].auth_info.as_mut().unwrap();
    (user.client_certificate_data, user.client_key_data) = (None, None);
    user.token = token.map(|token| token.to_owned().into());
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

/// The code that answers a GET.
async fn code(client: &Client, path: &str) -> u16 {
    let request = Request::get(path).body(kube::client::Body::empty()).unwrap();
    client.send(request).await.unwrap().status().as_u16()
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in folder.read_dir().unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(files(&entry.path())),
            false => found.push(entry.path()),
        }
    }
    found
}

fn contains(file: &Path, text: &str) -> bool {
    std::fs::read(file).unwrap().windows(text.len()).any(|window| window == text.as_bytes())
}

#[tokio::test]
async fn the_default_start_is_hardened() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = Server::start_as(&["up", "--nodes", "1"], &data);
    let admin = server.client().await;
    let anonymous = client_with(&server, None).await;
    let secrets: Api<Secret> = Api::default_namespaced(admin.clone());
    let secret = serde_json::from_value(json!({"metadata": {"name": "canary"}, "stringData": {"k": CANARY}})).unwrap();
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> = Api::default_namespaced(admin.clone());
    let robot = serde_json::from_value(json!({"metadata": {"name": "robot"}})).unwrap();
    accounts.create(&PostParams::default(), &robot).await.unwrap();
    let asked = serde_json::from_value(json!({"spec": {"audiences": []}})).unwrap();
    let issued = accounts.create_token_request("robot", &PostParams::default(), &asked).await.unwrap();
    let token = issued.status.unwrap().token.unwrap();
    let robot = client_with(&server, Some(&token)).await;

    let mut table = Table { rows: Vec::new() };
    let open = ["/livez", "/readyz", "/healthz", "/version"];
    let mut limited = code(&anonymous, "/api/v1/namespaces").await == 403 && code(&anonymous, "/metrics").await == 403;
    for path in open {
        limited &= code(&anonymous, path).await == 200;
    }
    table.row("1.2.1", "nobody without credentials gets more than health and version", limited);
    let made_up = client_with(&server, Some("made-up")).await;
    table.row("1.2.2", "a token that the server did not issue is none", code(&made_up, "/api").await == 401);
    table.row("1.2.6-8", "an identity without a role gets nothing", code(&robot, "/api/v1/namespaces").await == 403);
    table.row("1.2.10", "writes go through admission: a pod needs its service account", {
        let pods: Api<Pod> = Api::namespaced(admin.clone(), "default");
        let pod = json!({"metadata": {"name": "p"}, "spec": {"serviceAccountName": "nobody", "containers": [{"name": "c", "image": "i"}]}});
        pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.is_err()
    });
    table.row("1.2.12", "nothing is made in a namespace that is not there", {
        let services: Api<Service> = Api::namespaced(admin.clone(), "nowhere");
        let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
        services.create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await.is_err()
    });
    table.row(
        "1.2.15",
        "profiles are shown to nobody without a right to them",
        code(&robot, "/debug/pprof/profile").await == 403,
    );
    let audit = data.join("audit/audit.log");
    table.row("1.2.16", "requests are recorded", audit.is_file());
    table.row("1.2.21-22", "a token is bound to an account that is there", {
        accounts.delete("robot", &kube::api::DeleteParams::default()).await.unwrap();
        code(&robot, "/api").await == 401
    });
    let everything = files(&data);
    table.row(
        "1.2.27-28",
        "secrets can't be read from the disk",
        !everything.iter().any(|file| contains(file, CANARY)),
    );
    table.row("1.2.30", "tokens can't be read from the disk", !everything.iter().any(|file| contains(file, &token)));
    table.row("1.1", "the data belongs to its owner only", mode(&data) == 0o700);
    let keys = everything.iter().filter(|file| {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        name.contains("key") || name.contains("kubeconfig") || name.ends_with(".pem") && !name.contains("crt")
    });
    table.row(
        "1.1",
        "keys and kubeconfigs belong to their owner only",
        keys.clone().count() > 0 && keys.clone().all(|file| mode(file) == 0o600),
    );

    println!("{}", table.text());
    let failed: Vec<_> = table.rows.iter().filter(|(.., holds)| !holds).collect();
    assert!(failed.is_empty(), "\n{}", table.text());
}

/// Whatever goes right or wrong with a secret, it is in no log, no record of who did what, no figure, no refusal.
#[tokio::test]
async fn secrets_and_tokens_are_told_to_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let (data, log) = (folder.path().join("data"), folder.path().join("log"));
    let output = std::fs::File::create(&log).unwrap();
    let server = Server::start_logging(&["server", "--log-level", "trace"], &data, output.into());
    let client = server.client().await;
    let secrets: Api<Secret> = Api::default_namespaced(client.clone());
    let secret = |name: &str| {
        serde_json::from_value(json!({"metadata": {"name": name}, "stringData": {"password": CANARY}})).unwrap()
    };
    secrets.create(&PostParams::default(), &secret("kept")).await.unwrap();
    let mut told = vec![secrets.create(&PostParams::default(), &secret("Bad_Name")).await.unwrap_err().to_string()];
    told.push(secrets.create(&PostParams::default(), &secret("kept")).await.unwrap_err().to_string());
    let patch = Patch::Merge(json!({"stringData": {"password": format!("{CANARY}-2")}, "immutable": "perhaps"}));
    // Who writes it is told what is wrong with it, in full, as Kubernetes does; nobody else is.
    secrets.patch("kept", &PatchParams::default(), &patch).await.unwrap_err();

    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let post = async |path: &str, body: serde_json::Value| {
        let request = Request::post(path).header("content-type", "application/json");
        client.request::<serde_json::Value>(request.body(body.to_string().into_bytes()).unwrap()).await.unwrap()
    };
    post(accounts, json!({"metadata": {"name": "robot"}})).await;
    let issued = post(&format!("{accounts}/robot/token"), json!({"spec": {"expirationSeconds": 600}})).await;
    let token = issued["status"]["token"].as_str().unwrap().to_owned();
    assert_eq!(code(&client_with(&server, Some(&token)).await, "/api/v1/namespaces/default/secrets").await, 403);
    assert_eq!(code(&client_with(&server, Some(CANARY)).await, "/api/v1/namespaces/default/secrets").await, 401);
    for token in [CANARY, &token] {
        post("/apis/authentication.k8s.io/v1/tokenreviews", json!({"spec": {"token": token}})).await;
    }
    let figures = Request::get("/metrics").body(Vec::new()).unwrap();
    told.push(client.request_text(figures).await.unwrap());
    drop(client);
    server.stop();

    told.push(std::fs::read_to_string(&log).unwrap());
    assert!(told.last().unwrap().contains("INFO"), "nothing was logged");
    let audited =
        files(&data.join("audit")).iter().map(|file| std::fs::read_to_string(file).unwrap()).collect::<String>();
    assert!(audited.contains("tokenreviews"), "nothing was recorded");
    told.push(audited);
    let encoded = "Y2FuYXJ5LXRoYXQtbm9ib2R5LW1heS1yZWFk";
    for text in told {
        for secret in [CANARY, encoded, token.rsplit('.').next().unwrap()] {
            let at = text.find(secret).map(|at| &text[at.saturating_sub(200)..at]);
            assert_eq!(at, None, "a secret follows this");
        }
    }
}
