//! The control plane in parts: servers, controllers, schedulers and hubs as processes of their own, in several copies.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::etcd_process::Cluster;
use crate::server::{Part, Server};
use crate::{object, start};

/// How long a leader's successor may take at most until it acts: the time of the lease, and what a busy machine needs.
const TAKEOVER_MAX: Duration = Duration::from_secs(6 + 24);

/// How long anything else may take.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// What is not the leader's to write: leases and events are written by all, and the kinds of the fleet with their roles at each start.
const NOT_LED: [&str; 7] =
    ["leases", "events", "customresourcedefinitions", "clusterroles", "clusterrolebindings", "roles", "rolebindings"];

/// A shorter lease than usual, with room for a busy machine to renew it.
const SHORT: [&str; 3] =
    ["--leader-elect-lease-duration=6s", "--leader-elect-renew-deadline=4s", "--leader-elect-retry-period=500ms"];

/// Asks again and again until there is an answer.
pub async fn until<T>(what: &str, limit: Duration, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = ask().await {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}: not within {limit:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn controllers_alone_sign_certificates_and_publish_whom_to_trust() {
    let (cluster, folder) = (Cluster::start(1), tempfile::tempdir().unwrap());
    let data = folder.path().join("server");
    let server = start(&cluster, &["server"], &data);
    let authority = data.join("pki/ca.pem").display().to_string();
    let _controllers = Part::start(
        &["controllers", "--cluster-signing-cert-file", &authority, SHORT[0], SHORT[1], SHORT[2]],
        &server.kubeconfig,
    );
    let client = server.client().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let published = until("kube-root-ca.crt", PATIENCE, async || maps.get_opt("kube-root-ca.crt").await.unwrap()).await;
    let published = published.data.unwrap().remove("ca.crt").unwrap();
    let whole = std::fs::read_to_string(&authority).unwrap();
    assert!(whole.starts_with(published.trim()) && !published.contains("PRIVATE"), "{published}");
    // A hub gets its certificate by a request that somebody has to sign.
    let hub = Part::start(&["hub", "--probes", "127.0.0.1:0", "--name", "one"], &server.kubeconfig);
    let trusted = folder.path().join("trusted.pem");
    std::fs::write(&trusted, published).unwrap();
    let answer = Command::new("curl").args(["-sS", "--cacert"]).arg(&trusted).arg(&hub.url).output().unwrap();
    let said = String::from_utf8_lossy(&answer.stderr).into_owned();
    assert!(answer.status.success() || said.contains("certificate required"), "its certificate counts: {said}");
}

/// Copies of one part, each with a name by which the audit log knows its writes.
struct Copies<'a> {
    kind: &'static str,
    server: &'a Server,
    folder: PathBuf,
    running: Vec<(String, Part)>,
}

impl Copies<'_> {
    fn add(&mut self) {
        let name = format!("{}-{}", self.kind, self.running.len());
        let kubeconfig = self.folder.join(format!("{name}.kubeconfig"));
        let text = std::fs::read_to_string(&self.server.kubeconfig).unwrap();
        let certificate = "client-certificate-data:";
        let acting = format!("as: {name}\n    as-groups: [system:masters]\n    {certificate}");
        std::fs::write(&kubeconfig, text.replace(certificate, &acting)).unwrap();
        self.running.push((name, Part::start(&[&[self.kind], &SHORT[..]].concat(), &kubeconfig)));
    }

    /// Which one leads, as it says itself.
    fn leader(&self, but: &[usize]) -> Option<usize> {
        let others = (0..self.running.len()).filter(|at| !but.contains(at));
        let leads = |at: &usize| self.running[*at].1.figure("leader_election_master_status") == Some(1.0);
        others.into_iter().find(leads)
    }

    fn lease(&self) -> String {
        format!("setpoint-{}", self.kind)
    }
}

#[tokio::test]
async fn of_several_copies_one_writes_also_when_it_is_killed_or_paused() {
    let (cluster, folder) = (Cluster::start(1), tempfile::tempdir().unwrap());
    let data = folder.path().join("server");
    let server = start(&cluster, &["server"], &data);
    let client = server.client().await;
    let _nodes = Part::start(&["node", "--simulated", "1"], &server.kubeconfig);
    let copies = |kind| Copies { kind, server: &server, folder: folder.path().to_owned(), running: Vec::new() };
    let mut kinds = [copies("controllers"), copies("scheduler")];
    for copies in &mut kinds {
        copies.add();
        copies.add();
    }
    let mut gone: [Vec<usize>; 2] = Default::default();
    let first = leaders(&kinds, &gone).await;
    run_pod(&client, "first").await;
    let terms = [term(&client, &kinds[0].lease()).await, term(&client, &kinds[1].lease()).await];

    // Paused: the other takes over, and the first finds that it leads no more when it wakes.
    for (copies, at) in kinds.iter().zip(first) {
        copies.running[at].1.pause();
    }
    gone.iter_mut().zip(first).for_each(|(gone, at)| gone.push(at));
    let second = leaders(&kinds, &gone).await;
    run_pod(&client, "second").await;
    for (copies, term) in kinds.iter().zip(&terms) {
        assert_ne!(&self::term(&client, &copies.lease()).await, term, "the lease has changed hands");
        assert_eq!(write_in_term(&server, &copies.lease(), term), 409, "a write of the term before");
    }
    for (copies, at) in kinds.iter_mut().zip(first) {
        copies.running[at].1.resume();
        assert_eq!(copies.running[at].1.ended(), Some(1), "who has lost the lease ends");
        copies.add();
    }

    // Killed: the third one takes over.
    for (copies, at) in kinds.iter_mut().zip(second) {
        copies.running[at].1.kill();
    }
    gone.iter_mut().zip(second).for_each(|(gone, at)| gone.push(at));
    leaders(&kinds, &gone).await;
    run_pod(&client, "third").await;

    for copies in &kinds {
        let expected: Vec<&str> =
            [first, second].map(|at| &*copies.running[at[usize::from(copies.kind == "scheduler")]].0).to_vec();
        // What is done is in the log of the server a moment later.
        let all = async || Some(writers(&data, copies.kind)).filter(|found| found.len() > 2);
        let found = until("the third one in the log", PATIENCE, all).await;
        assert_eq!(found[..2], expected, "never two at a time, and none comes back: {found:?}");
        assert_eq!(found.len(), 3, "{found:?}");
    }
}

/// Which copy of each kind leads, of those that are left.
async fn leaders(kinds: &[Copies<'_>; 2], gone: &[Vec<usize>; 2]) -> [usize; 2] {
    let mut found = [0; 2];
    for at in 0..2 {
        found[at] = until("a leader", TAKEOVER_MAX, async || kinds[at].leader(&gone[at])).await;
    }
    found
}

/// Makes a Deployment, and waits until controllers have made its pod and the scheduler has found a node for it.
pub async fn run_pod(client: &Client, name: &str) {
    let deployment = object(json!({
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "a", "image": "a"}]}},
        },
    }));
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    deployments.create(&PostParams::default(), &deployment).await.unwrap();
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let wanted = ListParams::default().labels(&format!("app={name}"));
    until("a pod with a node", PATIENCE, async || {
        let found = pods.list(&wanted).await.ok()?.items.pop()?;
        found.spec?.node_name
    })
    .await;
}

/// Who holds a lease, and how often it has changed hands: what a fenced write carries.
async fn term(client: &Client, lease: &str) -> String {
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-system");
    let spec = leases.get(lease).await.unwrap().spec.unwrap();
    format!("{} {}", spec.holder_identity.unwrap_or_default(), spec.lease_transitions.unwrap_or_default())
}

/// What the server answers to a write that was made in a term.
fn write_in_term(server: &Server, lease: &str, term: &str) -> u16 {
    let kubeconfig = std::fs::read_to_string(&server.kubeconfig).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let part = |name: &str| {
        use base64::Engine;
        let text = kubeconfig.lines().find_map(|line| line.trim().strip_prefix(name)).unwrap();
        // To curl, what is behind a colon is a password.
        let file = folder.path().join(name.trim_end_matches(':'));
        let bytes = base64::engine::general_purpose::STANDARD.decode(text.trim().trim_matches('"')).unwrap();
        std::fs::write(&file, bytes).unwrap();
        file
    };
    let [ca, certificate, key] =
        ["certificate-authority-data:", "client-certificate-data:", "client-key-data:"].map(part);
    let answer = Command::new("curl")
        .args(["-sS", "-o", "/dev/null", "-w", "%{http_code}", "-H", "content-type: application/json"])
        .args(["-H", &format!("setpoint-fence: kube-system/{lease} {term}")])
        .args(["-d", r#"{"metadata":{"generateName":"late-"}}"#])
        .arg("--cacert")
        .arg(ca)
        .arg("--cert")
        .arg(certificate)
        .arg("--key")
        .arg(key)
        .arg(format!("{}/api/v1/namespaces/default/configmaps", server.url()))
        .output()
        .unwrap();
    String::from_utf8_lossy(&answer.stdout).parse().unwrap_or_else(|_| panic!("{answer:?}"))
}

/// Whose writes were done, by the audit log, in their order; each once for all that came without another's in between.
fn writers(data: &Path, kind: &str) -> Vec<String> {
    let text = std::fs::read_to_string(data.join("audit/audit.log")).unwrap();
    let mut found: Vec<String> = Vec::new();
    for line in text.lines() {
        // The server writes on: the last line may be half a one.
        let Ok(event) = serde_json::from_str::<Value>(line) else { continue };
        let user = event["impersonatedUser"]["username"].as_str().unwrap_or_default();
        let is_write =
            ["create", "update", "patch", "delete", "deletecollection"].map(Value::from).contains(&event["verb"]);
        let is_led = !NOT_LED.map(Value::from).contains(&event["objectRef"]["resource"]);
        let is_done = event["stage"] == "ResponseComplete" && event["responseStatus"]["code"].as_u64() < Some(300);
        if user.starts_with(kind) && is_write && is_led && is_done && found.last().is_none_or(|last| last != user) {
            found.push(user.to_owned());
        }
    }
    found
}
