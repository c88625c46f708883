//! What a server is like that was started without a flag: the table of the CIS benchmark, section 1.2, as far as it is about an API server.

mod server;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use http::Request;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::json;
use server::Server;

/// What must not be found on the disk, nor in what is logged.
const CANARY: &str = "canary-that-nobody-may-read";

/// The table that `setpoint doctor --cis` prints, and how it ends.
fn doctor(kubeconfig: &Path, data: Option<&Path>) -> (Vec<(String, String, String)>, Option<i32>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_setpoint"));
    command.args(["doctor", "--cis", "-o", "json", "--kubeconfig"]).arg(kubeconfig);
    if let Some(data) = data {
        command.arg("--data-dir").arg(data);
    }
    let run = command.env("XDG_DATA_HOME", "/nowhere").output().expect("the binary of this crate runs");
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    let told: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap_or_else(|_| panic!("{said}"));
    let text = |row: &serde_json::Value, field: &str| row[field].as_str().unwrap().to_owned();
    let rows = told["rows"].as_array().unwrap();
    (rows.iter().map(|row| (text(row, "number"), text(row, "state"), text(row, "what"))).collect(), run.status.code())
}

/// The rows that are not as they should be.
fn not_well(rows: &[(String, String, String)]) -> Vec<&(String, String, String)> {
    rows.iter().filter(|(_, state, _)| state != "pass" && state != "built in").collect()
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

    let (mut rows, ended) = doctor(&server.kubeconfig, Some(&data));
    assert_eq!(doctor(&server.kubeconfig, None), (rows.clone(), ended), "its data is where its kubeconfig is");
    // From elsewhere, what is in files can't be seen, and all else is the same.
    let copy = folder.path().join("elsewhere");
    std::fs::copy(&server.kubeconfig, &copy).unwrap();
    let (far, far_ended) = doctor(&copy, None);
    let unseen: Vec<&str> =
        far.iter().filter(|(_, state, _)| state == "unknown").map(|(number, ..)| number.as_str()).collect();
    let of_files = ["1.1", "1.1", "1.2.16-19", "1.2.21-22", "1.2.23, 26", "1.2.27-28", "process", "process"];
    assert_eq!((unseen.as_slice(), far_ended), (&of_files[..], Some(0)), "{far:?}");
    let same = |(near, far): (&(String, String, String), &(String, String, String))| far.1 == "unknown" || near == far;
    assert!(rows.len() == far.len() && rows.iter().zip(&far).all(same), "{far:?}");
    let mut row = |number: &str, what: &str, holds: bool| {
        let state = if holds { "pass" } else { "FAIL" };
        rows.push((number.to_owned(), state.to_owned(), what.to_owned()));
    };
    // What can only be seen by who has written it before.
    row("1.2.6-8", "an account without a role gets nothing", code(&robot, "/api/v1/namespaces").await == 403);
    row("1.2.15", "nor a profile", code(&robot, "/debug/pprof/profile").await == 403);
    row("1.2.21-22", "a token is bound to an account that is there", {
        accounts.delete("robot", &kube::api::DeleteParams::default()).await.unwrap();
        code(&robot, "/api").await == 401
    });
    row("pods", "those that could take over their node are warned of", {
        let pod =
            json!({"metadata": {"name": "p"}, "spec": {"hostPID": true, "containers": [{"name": "c", "image": "i"}]}});
        let request =
            Request::post("/api/v1/namespaces/default/pods?dryRun=All").header("content-type", "application/json");
        let answer = admin.send(request.body(pod.to_string().into_bytes().into()).unwrap()).await.unwrap();
        let warned = answer.headers().get("warning").map(|text| text.to_str().unwrap().to_owned());
        warned.is_some_and(|text| text.contains("baseline:latest") && text.contains("host namespaces"))
    });
    let everything = files(&data);
    row("1.2.27-28", "secrets can't be read from the disk", !everything.iter().any(|file| contains(file, CANARY)));
    row("1.2.30", "tokens can't be read from the disk", !everything.iter().any(|file| contains(file, &token)));
    for (number, state, what) in &rows {
        println!("{number:<11}{state:<10}{what}");
    }
    assert_eq!(not_well(&rows), Vec::<&(String, String, String)>::new());
    assert!(rows.len() > 25, "{} rows", rows.len());
    assert_eq!(ended, Some(0));
}

#[tokio::test]
async fn what_is_opened_fails_its_row() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = Server::start_as(&["server"], &data);
    let key = data.join("pki/ca.pem");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o640)).unwrap();
    // Whoever has no rights may discover everything and look at profiles.
    let opened = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "open"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:unauthenticated"},
                     {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:authenticated"}],
    });
    let bindings: Api<ClusterRoleBinding> = Api::all(server.client().await);
    bindings.create(&PostParams::default(), &serde_json::from_value(opened).unwrap()).await.unwrap();
    let (rows, ended) = doctor(&server.kubeconfig, Some(&data));
    let failed: Vec<&str> = not_well(&rows).iter().map(|(number, ..)| number.as_str()).collect();
    assert_eq!(failed, ["1.1", "1.2.1", "1.2.3", "1.2.6-8", "1.2.15", "1.2.30"], "{rows:?}");
    assert_eq!(ended, Some(1));
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
