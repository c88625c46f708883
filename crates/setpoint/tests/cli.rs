//! The binary as people and supervisors use it.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

fn setpoint(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_setpoint"));
    command.args(arguments).env_remove("SETPOINT_LOG").env_remove("XDG_DATA_HOME");
    command
}

/// Runs a command to its end and compares its exit code and what it says about a failure.
fn check(arguments: &[&str], code: i32, said: &str) -> Output {
    let output = setpoint(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
    assert!(text.contains(said), "{arguments:?}: {text}");
    output
}

/// A server that is ready; killed if the test ends before it was stopped.
struct Running {
    child: Child,
    out: BufReader<ChildStdout>,
    url: String,
}

impl Running {
    fn start(command: &str, data: &Path) -> Running {
        Running::start_with(command, data, &[])
    }

    fn start_with(command: &str, data: &Path, options: &[&str]) -> Running {
        let arguments = [command, "--data-dir", data.to_str().unwrap(), "--listen", "127.0.0.1:0"];
        let mut child =
            setpoint(&[&arguments, options].concat()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        // Ends in any case: a server that does not get ready gives up by itself.
        out.read_line(&mut line).unwrap();
        let url = line.trim().strip_prefix("ready ").unwrap_or_else(|| panic!("not ready: {line:?}")).to_owned();
        Running { child, out, url }
    }

    fn get(&self, path: &str, options: &[&str]) -> String {
        let url = format!("{}{path}", self.url);
        let output = Command::new("curl").args(["-sS", "-w", " %{http_code}", &url]).args(options).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Sends a signal, waits for the end, and returns the exit code and the rest of what it said.
    fn stop(mut self, signal: Signal) -> (Option<i32>, String) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap().code(), rest)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has usually ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_server_says_that_it_is_ready_serves_and_stops_when_asked() {
    for (command, signal) in [("up", Signal::TERM), ("server", Signal::INT)] {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let server = Running::start(command, &data);
        let ca = data.join("pki/ca.pem").into_os_string().into_string().unwrap();
        let admin = data.join("pki/admin.pem").into_os_string().into_string().unwrap();
        let version = server.get("/version", &["--cacert", &ca]);
        assert!(version.contains("\"minor\"") && version.ends_with(" 200"), "{version}");
        assert!(server.get("/readyz", &["--cacert", &ca]).ends_with("ok 200"));
        let asked = server.get("/nothing-here", &["--cacert", &ca, "--cert", &admin]);
        assert!(asked.ends_with(" 404"), "{asked}");
        let (code, said) = server.stop(signal);
        assert_eq!(code, Some(0));
        let kubeconfig = data.join("admin.kubeconfig");
        assert!(said.contains(&format!("export KUBECONFIG={}", kubeconfig.display())), "{said}");
        assert!(said.contains("setpoint get namespaces"), "{said}");
    }
}

#[test]
fn a_restart_keeps_the_certificates_and_writes_the_new_address() {
    let folder = tempfile::tempdir().unwrap();
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    let first = Running::start("up", folder.path());
    let before = (read("pki/ca.pem"), read("pki/server.pem"), read("pki/admin.pem"));
    assert_eq!(first.stop(Signal::TERM).0, Some(0));
    let second = Running::start("up", folder.path());
    assert!(before == (read("pki/ca.pem"), read("pki/server.pem"), read("pki/admin.pem")), "certificates changed");
    assert!(read("admin.kubeconfig").contains(&format!("server: {}\n", second.url)));
    assert_eq!(second.stop(Signal::TERM).0, Some(0));
}

#[test]
fn a_data_directory_in_use_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let server = Running::start("up", folder.path());
    let kubeconfig = fs::read_to_string(folder.path().join("admin.kubeconfig")).unwrap();
    check(&["up", "--data-dir", data, "--listen", ":0"], 1, "in use by another process");
    check(&["verify", "--data-dir", data], 1, "in use by another process");
    let copy = folder.path().join("copy").into_os_string().into_string().unwrap();
    check(&["backup", "--data-dir", data, &copy], 0, "Secrets in it are encrypted");
    assert_eq!(fs::read_to_string(folder.path().join("admin.kubeconfig")).unwrap(), kubeconfig);
    assert!(server.get("/healthz", &["-k"]).ends_with(" 200"));
    assert_eq!(server.stop(Signal::TERM).0, Some(0));
}

#[test]
fn an_address_in_use_is_said_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let data = folder.path().to_str().unwrap();
    check(&["up", "--data-dir", data, "--listen", &address], 1, "hint: choose another port with `--listen`");
    check(&["verify", "--data-dir", data], 0, "");
}

#[test]
fn a_backup_comes_back_in_another_directory() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).into_os_string().into_string().unwrap();
    let (data, copy, other) = (path("data"), path("copy"), path("other"));
    Running::start("server", Path::new(&data)).stop(Signal::TERM);
    let kept = check(&["verify", "--data-dir", &data], 0, "");
    check(&["backup", "--data-dir", &data, &copy], 0, "");
    check(&["backup", "--data-dir", &data, &copy], 1, "is there already");
    let restored = check(&["restore", "--data-dir", &other, &copy], 0, "");
    let objects =
        |output: Output| String::from_utf8(output.stdout).unwrap().split_once(" at revision ").unwrap().0.to_owned();
    let (kept, restored) = (objects(kept), objects(restored));
    assert!(kept.starts_with("ok: ") && kept == restored, "{kept}, restored: {restored}");
    check(&["restore", "--data-dir", &other, &copy], 1, "there is data already");
    check(&["verify", "--data-dir", &other], 0, "");
    check(&["restore", "--data-dir", &path("third"), &path("missing")], 1, "No such file");
    check(&["verify", "--data-dir", &path("missing")], 1, "there is no data in it");
    let mut left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["copy", "data", "other"]);
}

#[test]
fn settings_of_controllers_are_checked_before_anything_starts() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("settings.yaml");
    fs::write(&file, "queue: {qps: fast}\n").unwrap();
    let data = folder.path().join("data");
    let arguments = ["up", "--data-dir", data.to_str().unwrap(), "--config", file.to_str().unwrap()];
    check(&arguments, 2, "queue.qps: must be a number (from the file)");
    assert!(!data.exists());
    for part in ["up", "controllers", "scheduler"] {
        let check = |setting: &str, expected: &str| check(&[part, "--set", setting], 2, expected);
        check("queue.qps=fast", "can't use the settings: queue.qps: must be a number (from --set)");
        check("queue.qps", "queue.qps: must look like key=value (from --set)");
        check("queue.colour=red", "queue.colour: unknown setting (from --set)");
        check("client.qps=0", "client.qps: must be greater than zero (from --set)");
        check("leaderElection.leaseDuration=5s", "leaderElection.leaseDuration: must be greater than renewDeadline");
        check("controllers.web.workers=2", "controllers.web: there is no controller \"web\"; there are ");
        check("controllers.job.workers=2", "controllers.job: settings go by the full name of a controller");
    }
}

#[test]
fn wrong_usage_ends_with_2() {
    check(&[], 2, "Usage: setpoint");
    check(&["verfy"], 2, "verify");
    check(&["up", "--listen", "nowhere"], 2, "expected an IP address and a port");
    check(&["up", "--log-level", "loud"], 2, "possible values");
    check(&["up", "--store", "sqlite"], 2, "expected `embedded`");
    check(&["up", "--controllers", "*,-deploy"], 2, "there is no controller \"deploy\"; there are ");
    check(&["up", "--config", "/nowhere/settings.yaml"], 2, "can't use /nowhere/settings.yaml");
    check(&["controllers", "--kubeconfig", "/nowhere/kubeconfig"], 2, "can't use /nowhere/kubeconfig");
    check(&["server", "--controllers", "*"], 2, "unexpected argument");
    check(&["up", "--store", "etcd://nowhere"], 2, "`nowhere` is not HOST:PORT");
    let bad = setpoint(&["up"]).env("SETPOINT_LOG", "loud").output().unwrap();
    assert_eq!(bad.status.code(), Some(2));
    let homeless = setpoint(&["verify"]).env_remove("HOME").output().unwrap();
    assert_eq!(homeless.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&homeless.stderr).contains("--data-dir"));
}

#[test]
fn data_is_kept_where_the_desktop_says() {
    let folder = tempfile::tempdir().unwrap();
    let check = |name: &str, data: &Path| {
        let output = setpoint(&["verify"]).env("HOME", "/nowhere").env(name, folder.path()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(&format!("the data in {}:", data.display())), "{said}");
    };
    check("XDG_DATA_HOME", &folder.path().join("setpoint"));
    check("HOME", &folder.path().join(".local/share/setpoint"));
}

#[test]
fn the_version_is_printed() {
    let output = check(&["version"], 0, "");
    assert!(String::from_utf8_lossy(&output.stdout).starts_with(concat!("setpoint ", env!("CARGO_PKG_VERSION"))));
}

#[test]
fn requests_are_written_down_by_default_for_nobody_else_to_read() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start("server", folder.path());
    server.get("/api/v1/namespaces/default/secrets", &["-k"]);
    server.get("/readyz", &["-k"]);
    assert_eq!(server.stop(Signal::TERM).0, Some(0));
    let log = folder.path().join("audit/audit.log");
    let text = fs::read_to_string(&log).unwrap();
    let denied = text.lines().filter(|line| line.contains("\"username\":\"system:anonymous\"")).collect::<Vec<_>>();
    assert!(denied.len() == 1 && denied[0].contains("\"code\":403"), "{text}");
    assert!(!text.contains("/readyz"), "{text}");
    assert_eq!(fs::metadata(&log).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn an_audit_policy_that_is_wrong_is_refused_before_anything_starts() {
    let folder = tempfile::tempdir().unwrap();
    let policy = folder.path().join("policy.yaml");
    fs::write(&policy, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Loud}]\n").unwrap();
    let data = folder.path().join("data");
    let arguments = ["server", "--data-dir", data.to_str().unwrap(), "--audit-policy-file", policy.to_str().unwrap()];
    check(&arguments, 2, "rules[0].level: Unsupported value: \"Loud\"");
    assert!(!data.exists());
}

/// The files under a folder that have one of these texts in them.
fn betrayed(folder: &Path, texts: &[&str]) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(betrayed(&path, texts));
            continue;
        }
        let bytes = fs::read(&path).unwrap();
        if texts.iter().any(|text| bytes.windows(text.len()).any(|window| window == text.as_bytes())) {
            found.push(path);
        }
    }
    found
}

#[test]
fn secrets_are_encrypted_on_the_disk_and_lost_without_their_keys() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let path = |name: &str| data.join(name).into_os_string().into_string().unwrap();
    let (admin, keys, backup) = (path("pki/admin.pem"), data.join("pki/secrets.keys"), folder.path().join("backup"));
    let secret = "/api/v1/namespaces/default/secrets";
    let canaries = ["canary-in-the-mine", "Y2FuYXJ5LWluLXRoZS1taW5l"];
    let body = r#"{"metadata":{"name":"s"},"stringData":{"a":"canary-in-the-mine"}}"#;

    let server = Running::start("server", &data);
    server.get(secret, &["-k", "--cert", &admin, "-H", "content-type: application/json", "-d", body]);
    assert_eq!(server.stop(Signal::TERM).0, Some(0));
    assert_eq!(betrayed(&data, &canaries), Vec::<std::path::PathBuf>::new());

    let at = ["--data-dir", data.to_str().unwrap()];
    check(&[&["rotate-keys", "--drop-old"], &at[..]].concat(), 0, "");
    check(&[&["verify"], &at[..]].concat(), 0, "");
    check(&[&["backup"], &at[..], &[backup.to_str().unwrap()]].concat(), 0, "");
    assert_eq!(betrayed(folder.path(), &canaries), Vec::<std::path::PathBuf>::new());
    let server = Running::start("server", &data);
    let answer = server.get(&format!("{secret}/s"), &["-k", "--cert", &admin]);
    assert!(answer.contains(canaries[1]), "{answer}");
    assert_eq!(server.stop(Signal::TERM).0, Some(0));

    let kept = folder.path().join("kept.keys");
    fs::rename(&keys, &kept).unwrap();
    check(&[&["server", "--listen", "127.0.0.1:0"], &at[..]].concat(), 1, "the keys are not in");
    assert!(!keys.exists(), "a new key would hide that the old one is lost");
    check(&[&["verify"], &at[..]].concat(), 0, "");
    let another = folder.path().join("another");
    check(&[&["backup"], &at[..], &[another.to_str().unwrap()]].concat(), 1, "pki/secrets.keys");
    let other = folder.path().join("other");
    let restore = ["restore", "--data-dir", other.to_str().unwrap(), backup.to_str().unwrap()];
    check(&restore, 1, "pki/secrets.keys");
    fs::create_dir_all(other.join("pki")).unwrap();
    fs::copy(&kept, other.join("pki/secrets.keys")).unwrap();
    check(&restore, 0, "");
    assert_eq!(betrayed(&other, &canaries), Vec::<std::path::PathBuf>::new());
}

#[test]
fn a_backup_encrypts_what_the_server_does() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let (at, backup) = (data.to_str().unwrap(), folder.path().join("backup"));
    let admin = data.join("pki/admin.pem").into_os_string().into_string().unwrap();
    let encrypt = ["--encrypt", "secrets,configmaps"];
    let body = r#"{"metadata":{"name":"m"},"data":{"a":"canary-in-a-map"}}"#;

    let server = Running::start_with("server", &data, &encrypt);
    let maps = "/api/v1/namespaces/default/configmaps";
    let answer = server.get(maps, &["-k", "--cert", &admin, "-H", "content-type: application/json", "-d", body]);
    assert!(answer.ends_with(" 201"), "{answer}");
    assert_eq!(server.stop(Signal::TERM).0, Some(0));
    check(&["verify", "--data-dir", at], 0, "");
    check(&[&["backup", "--data-dir", at], &encrypt[..], &[backup.to_str().unwrap()]].concat(), 0, "");
    assert_eq!(betrayed(folder.path(), &["canary-in-a-map"]), Vec::<std::path::PathBuf>::new());

    let other = folder.path().join("other");
    fs::create_dir_all(other.join("pki")).unwrap();
    fs::copy(data.join("pki/secrets.keys"), other.join("pki/secrets.keys")).unwrap();
    let restore = ["restore", "--data-dir", other.to_str().unwrap()];
    check(&[&restore[..], &encrypt[..], &[backup.to_str().unwrap()]].concat(), 0, "");
    assert_eq!(betrayed(&other, &["canary-in-a-map"]), Vec::<std::path::PathBuf>::new());
}
