//! `setpoint doctor --cis`: the CIS benchmark for an API server, row by row, as a server is that runs.
//!
//! Nothing is changed by it: what has to be written to be judged is written as a dry run. Rows that can't be seen from outside, and for which
//! there is no setting, are told as built in.

use std::fmt::Write as _;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use http::Method;
use serde_json::{Value, json};

use crate::connection::ConnectionArguments;
use crate::failure::Failure;
use crate::request::{Ask, JSON, Server, Trouble};

/// How a row is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It is as it should be.
    Pass,
    /// There is no setting that could make it otherwise.
    BuiltIn,
    /// It can't be told from here, and why.
    Unknown(&'static str),
    /// It is not.
    Fail,
}

impl State {
    fn of(holds: bool) -> State {
        if holds { State::Pass } else { State::Fail }
    }

    fn word(&self) -> &'static str {
        match self {
            State::Pass => "pass",
            State::BuiltIn => "built in",
            State::Unknown(_) => "unknown",
            State::Fail => "FAIL",
        }
    }
}

/// One recommendation.
pub struct Row {
    /// Its number in the benchmark; none for what the process itself gives up.
    pub number: &'static str,
    /// What should hold.
    pub what: &'static str,
    /// Whether it does.
    pub state: State,
}

/// The rows as text.
pub fn text(rows: &[Row]) -> String {
    rows.iter().fold(String::new(), |mut text, row| {
        let Row { number, what, state } = row;
        let _ = match state {
            State::Unknown(why) => writeln!(text, "{number:<11}{:<10}{what} ({why})", state.word()),
            State::Pass | State::BuiltIn | State::Fail => writeln!(text, "{number:<11}{:<10}{what}", state.word()),
        };
        text
    })
}

/// The rows as a value.
pub fn value(rows: &[Row]) -> Value {
    let told = |row: &Row| json!({"number": row.number, "what": row.what, "state": row.state.word()});
    json!({"rows": rows.iter().map(told).collect::<Vec<_>>()})
}

/// Asks the server and looks at its data directory, if it is one of these.
pub async fn rows(connection: &ConnectionArguments, folders: &[PathBuf]) -> Result<Vec<Row>, Failure> {
    let admin = Side { server: connection.connect().await? };
    // Whoever can't ask everything would take refusals of himself for those of the server.
    if !admin.may("*", "*").await? {
        return Err(Failure::error("this needs the rights of an administrator")
            .hint("take the kubeconfig that `setpoint up` writes"));
    }
    let is_ours = admin
        .server
        .get(Ask::get("/version"))
        .await
        .is_ok_and(|version| version["gitVersion"].as_str().is_some_and(|version| version.contains("+setpoint")));
    let is_its = |folder: &&PathBuf| folder.join("store").is_dir() && leads_to(folder, &admin.server);
    let folder = folders.iter().find(is_its).map(PathBuf::as_path);
    let mut rows = Vec::new();
    let mut row = |number, what, state| rows.push(Row { number, what, state });
    let built_in = || if is_ours { State::BuiltIn } else { State::Unknown("it is another server") };
    let seen = |look: &dyn Fn(&Path) -> State| folder.map_or(State::Unknown(ELSEWHERE), look);

    row("1.1", "the data directory belongs to its owner only", seen(&|folder| State::of(mode(folder) == Some(0o700))));
    row("1.1", "keys and kubeconfigs belong to their owner only", seen(&|folder| State::of(keys_are_private(folder))));
    row("1.2.1", "nobody without credentials gets more than health and version", anonymous(connection).await?);
    let made_up = Side { server: connection.connect_with(Some("made-up.made-up.made-up")).await? };
    row("1.2.2", "a token that the server did not issue is none", State::of(made_up.code("/api").await == Some(401)));
    let service = json!({"metadata": {"name": NAME}, "spec": {"ports": [{"port": 80}], "externalIPs": ["192.0.2.1"]}});
    row(
        "1.2.3",
        "no external addresses of Services",
        admin.refuses("/api/v1/namespaces/default/services", service).await,
    );
    row("1.2.4-5", "no node is connected to without TLS: none is at all", built_in());
    let stranger = admin.stranger_may("get", "secrets").await?;
    row("1.2.6-8", "who has no role may nothing; nodes may what is their own", {
        State::of(!stranger && !admin.node_may("secrets").await?)
    });
    row("1.2.9", "Events of clients are bounded", built_in());
    let pod = json!({"metadata": {"name": NAME}, "spec": {"serviceAccountName": NAME, "containers": [{"name": "c", "image": "i"}]}});
    row("1.2.10-11", "writes are judged: a pod needs its service account", {
        admin.refuses("/api/v1/namespaces/default/pods", pod).await
    });
    row("1.2.12", "nothing is made in a namespace that is not there", {
        admin.refuses(&format!("/api/v1/namespaces/{NAME}/configmaps"), json!({"metadata": {"name": NAME}})).await
    });
    let node = Side { server: connection.connect_as(&format!("system:node:{NAME}"), "system:nodes").await? };
    row("1.2.14", "a node makes no other node", {
        node.refuses("/api/v1/nodes", json!({"metadata": {"name": format!("{NAME}-other")}})).await
    });
    row("1.2.15", "profiles are shown to nobody without a right to them", {
        State::of(!admin.stranger_may_path("/debug/pprof/profile").await?)
    });
    row("1.2.16-19", "requests are recorded", seen(&|folder| State::of(folder.join("audit/audit.log").is_file())));
    row("1.2.20", "a body that does not come, and an answer that nobody takes, end after 60 s", built_in());
    row(
        "1.2.21-22",
        "tokens are signed with a key of their own",
        seen(&|folder| State::of(mode(&folder.join("pki/service-account.pem")) == Some(0o600))),
    );
    row("1.2.23, 26", "the store is on no network", seen(&|folder| State::of(is_embedded(folder))));
    row(
        "1.2.24-25",
        "TLS, and certificates of clients are checked",
        State::of(admin.server.url.scheme_str() == Some("https")),
    );
    row(
        "1.2.27-28",
        "secrets are encrypted on the disk",
        seen(&|folder| State::of(mode(&folder.join("pki/secrets.keys")) == Some(0o600))),
    );
    row("1.2.29", "TLS 1.2 and 1.3 with authenticated ciphers only", built_in());
    row("1.2.30", "a token lives as long as was asked for", admin.tokens_end_in_time().await);
    row("1.3.3", "each controller has an account of its own", admin.controllers_have_accounts().await);
    let process = folder.and_then(process);
    let of_process = |look: &dyn Fn(&Process) -> bool| {
        process.as_ref().map_or(State::Unknown("the process is not seen from here"), |found| State::of(look(found)))
    };
    row("process", "no rights are gained by running a program", of_process(&|process| process.no_new_privileges));
    row("process", "no memory is left on the disk by a crash", of_process(&|process| process.core_bytes == Some(0)));
    Ok(rows)
}

/// What is told of files that are not found.
const ELSEWHERE: &str = "its data is not found on this machine; --data-dir tells where it is";

/// What is made on trial. Nobody has such a thing.
const NAME: &str = "setpoint-doctor-on-trial";

/// The server as somebody sees it.
struct Side {
    server: Server,
}

impl Side {
    /// The code that answers a GET; none without an answer.
    async fn code(&self, path: &str) -> Option<u16> {
        self.server.text(path).await.ok().map(|(code, _)| code.as_u16())
    }

    /// Whether an object is refused, on trial.
    async fn refuses(&self, path: &str, object: Value) -> State {
        match self.post(path, object, true).await {
            Err(Trouble::Refused(status)) => State::of(status["code"] == 403 || status["code"] == 404),
            Ok(_) => State::Fail,
            Err(Trouble::Nobody(_) | Trouble::Unreachable(_)) => State::Unknown("there was no answer"),
        }
    }

    async fn post(&self, path: &str, object: Value, on_trial: bool) -> Result<Value, Trouble> {
        let ask = Ask {
            method: Method::POST,
            body: Some((JSON, object.to_string().into_bytes())),
            ..Ask::get(path).quietly().with_some("dryRun", on_trial.then_some("All"))
        };
        self.server.ask(ask).await.map(|(_, answer)| answer)
    }

    /// Whether whoever asks may do this.
    async fn may(&self, verb: &str, resource: &str) -> Result<bool, Failure> {
        let wanted = json!({"verb": verb, "group": "*", "resource": resource});
        self.review("selfsubjectaccessreviews", json!({"resourceAttributes": wanted})).await
    }

    async fn stranger_may(&self, verb: &str, resource: &str) -> Result<bool, Failure> {
        let wanted = json!({"verb": verb, "resource": resource, "namespace": "kube-system"});
        let spec = json!({"user": NAME, "groups": ["system:authenticated"], "resourceAttributes": wanted});
        self.review("subjectaccessreviews", spec).await
    }

    async fn stranger_may_path(&self, path: &str) -> Result<bool, Failure> {
        let wanted = json!({"verb": "get", "path": path});
        let spec = json!({"user": NAME, "groups": ["system:authenticated"], "nonResourceAttributes": wanted});
        self.review("subjectaccessreviews", spec).await
    }

    /// Whether a node without pods may read any of these.
    async fn node_may(&self, resource: &str) -> Result<bool, Failure> {
        let wanted = json!({"verb": "get", "resource": resource, "namespace": "kube-system", "name": NAME});
        let groups = ["system:nodes", "system:authenticated"];
        let spec = json!({"user": format!("system:node:{NAME}"), "groups": groups, "resourceAttributes": wanted});
        self.review("subjectaccessreviews", spec).await
    }

    async fn review(&self, kind: &str, spec: Value) -> Result<bool, Failure> {
        let path = format!("/apis/authorization.k8s.io/v1/{kind}");
        let answer = self.post(&path, json!({ "spec": spec }), false).await.map_err(Failure::from)?;
        Ok(answer["status"]["allowed"].as_bool().unwrap_or(false))
    }

    /// Whether a token that is asked for an hour ends within an hour. It is not kept anywhere.
    async fn tokens_end_in_time(&self) -> State {
        let accounts = Ask::get("/api/v1/serviceaccounts").with("limit", "1");
        let Ok(found) = self.server.get(accounts).await else { return State::Unknown("there was no answer") };
        let one = &found["items"][0]["metadata"];
        let (Some(namespace), Some(name)) = (one["namespace"].as_str(), one["name"].as_str()) else {
            return State::Unknown("there is no account to ask with");
        };
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
        let before = crate::get::now();
        let asked = json!({"spec": {"expirationSeconds": 3600}});
        let Ok(answer) = self.post(&path, asked, false).await else {
            return State::Unknown("there was no answer");
        };
        let until = answer["status"]["expirationTimestamp"].as_str().and_then(|text| text.parse().ok());
        let until: Option<k8s_openapi::jiff::Timestamp> = until;
        // The clocks of two machines may differ a little.
        State::of(until.is_some_and(|until| until.as_second() - before <= 3600 + 60))
    }

    /// Whether the role of each controller is bound to one account, and no account has two.
    async fn controllers_have_accounts(&self) -> State {
        let path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
        let Ok(found) = self.server.get(Ask::get(path)).await else { return State::Unknown("there was no answer") };
        let bindings = found["items"].as_array().map_or(&[][..], Vec::as_slice);
        let is_controllers =
            |one: &&Value| one["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("system:controller:"));
        let mut accounts: Vec<&Value> = Vec::new();
        for binding in bindings.iter().filter(is_controllers) {
            match binding["subjects"].as_array().map(Vec::as_slice) {
                Some([subject]) if subject["kind"] == "ServiceAccount" => accounts.push(&subject["name"]),
                _ => return State::Fail,
            }
        }
        let count = accounts.len();
        accounts.sort_by_key(|name| name.as_str());
        accounts.dedup();
        State::of(count > 0 && accounts.len() == count)
    }
}

async fn anonymous(connection: &ConnectionArguments) -> Result<State, Failure> {
    let nobody = Side { server: connection.connect_with(None).await? };
    let mut holds = true;
    for path in ["/livez", "/readyz", "/healthz", "/version"] {
        holds &= nobody.code(path).await == Some(200);
    }
    for path in ["/api", "/apis", "/api/v1/namespaces", "/api/v1/secrets", "/metrics", "/openapi/v2", "/debug/pprof/"] {
        holds &= matches!(nobody.code(path).await, Some(401 | 403));
    }
    Ok(State::of(holds))
}

/// Whether the server that is asked is the one whose data this is.
fn leads_to(folder: &Path, server: &Server) -> bool {
    let text = std::fs::read_to_string(folder.join("admin.kubeconfig")).unwrap_or_default();
    let url = text.lines().find_map(|line| line.trim().strip_prefix("server: ")).map(str::to_owned);
    url.is_some_and(|url| url.trim_end_matches('/') == server.url.to_string().trim_end_matches('/'))
}

fn mode(path: &Path) -> Option<u32> {
    path.metadata().ok().map(|found| found.permissions().mode() & 0o777)
}

fn keys_are_private(folder: &Path) -> bool {
    let pki = std::fs::read_dir(folder.join("pki")).into_iter().flatten().flatten().map(|entry| entry.path());
    let files: Vec<PathBuf> = pki.chain([folder.join("admin.kubeconfig")]).filter(|path| path.is_file()).collect();
    files.len() > 1 && files.iter().all(|path| mode(path) == Some(0o600))
}

/// Whether objects are in the folder itself: a store in etcd leaves no segments there.
fn is_embedded(folder: &Path) -> bool {
    folder.join("store/format").is_file()
}

/// What the process of a server has given up.
struct Process {
    no_new_privileges: bool,
    core_bytes: Option<u64>,
}

/// The process that holds the lock on a folder, as far as this one may look.
fn process(folder: &Path) -> Option<Process> {
    let inode = folder.join("store/lock").metadata().ok()?.ino();
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let pid = holder(&locks, inode)?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    let no_new_privileges = status.lines().any(|line| line.split_whitespace().eq(["NoNewPrivs:", "1"]));
    let core = limits.lines().find_map(|line| line.strip_prefix("Max core file size"));
    let core_bytes = core.and_then(|rest| rest.split_whitespace().next()).and_then(|bytes| bytes.parse().ok());
    Some(Process { no_new_privileges, core_bytes })
}

/// Who holds a lock on a file, in the words of the kernel: `1: FLOCK ADVISORY WRITE PID MAJOR:MINOR:INODE 0 EOF`.
fn holder(locks: &str, inode: u64) -> Option<u32> {
    let held = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, "WRITE", pid, file, ..] = words[..] else { return None };
        (file.rsplit(':').next()?.parse() == Ok(inode)).then(|| pid.parse().ok())?
    };
    locks.lines().find_map(held)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_found_by_its_file() {
        let locks = "1: POSIX  ADVISORY  WRITE 7 08:01:42 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 812 08:01:43 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 911 fe:00:42 0 EOF\n";
        assert_eq!((holder(locks, 42), holder(locks, 43), holder(locks, 44)), (Some(911), Some(812), None));
    }

    #[test]
    fn a_row_that_fails_stands_out_and_one_that_is_not_seen_says_why() {
        let row = |state| Row { number: "1.2.1", what: "so it is", state };
        let rows = [row(State::Pass), row(State::Fail), row(State::BuiltIn), row(State::Unknown("far away"))];
        assert_eq!(
            text(&rows),
            "1.2.1      pass      so it is\n\
             1.2.1      FAIL      so it is\n\
             1.2.1      built in  so it is\n\
             1.2.1      unknown   so it is (far away)\n"
        );
    }

    #[test]
    fn a_key_that_others_can_read_fails() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("pki")).unwrap();
        for name in ["admin.kubeconfig", "pki/ca.pem"] {
            let path = folder.path().join(name);
            std::fs::write(&path, b"").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        }
        assert!(keys_are_private(folder.path()));
        let key = folder.path().join("pki/ca.pem");
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(!keys_are_private(folder.path()));
    }
}
