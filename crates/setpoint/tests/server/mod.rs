//! A server of its own for one test, and where the tools of tests are.

#![allow(dead_code)] // each test binary has its own copy of this module and needs only a part of it

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use rustix::process::{Pid, Signal, kill_process};

/// A running server; killed when dropped, so that a failed test leaves no process behind.
pub struct Server {
    child: Child,
    /// Where clients find address and credentials.
    pub kubeconfig: PathBuf,
}

impl Server {
    /// Starts the API server alone, with no controllers that would change what a test made.
    pub fn start(data: &Path) -> Server {
        Server::start_as(&["server"], data)
    }

    /// Starts a command such as `up` on the data in `data` and a free port, and returns once it serves.
    pub fn start_as(command: &[&str], data: &Path) -> Server {
        Server::start_logging(command, data, Stdio::null())
    }

    /// The same, with what it logs going somewhere.
    pub fn start_logging(command: &[&str], data: &Path, log: Stdio) -> Server {
        Server::start_at("127.0.0.1:0", command, data, log)
    }

    /// The same at an address of our choice, as for one that comes back.
    pub fn start_at(listen: &str, command: &[&str], data: &Path, log: Stdio) -> Server {
        let child = Command::new(env!("CARGO_BIN_EXE_setpoint"))
            .args(command)
            .args(["--listen", listen, "--data-dir"])
            .arg(data)
            .env_remove("SETPOINT_LOG")
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("the binary of this crate runs");
        Server::adopt(child, data)
    }

    /// One that somebody else has started, once it serves. What it prints has to come to us.
    pub fn adopt(mut child: Child, data: &Path) -> Server {
        let mut line = String::new();
        // Ends in any case: a server that does not get ready gives up by itself.
        BufReader::new(child.stdout.take().expect("stdout is a pipe")).read_line(&mut line).expect("stdout is text");
        assert!(line.starts_with("ready "), "not ready: {line:?}");
        Server { child, kubeconfig: data.join("admin.kubeconfig") }
    }

    /// Where it listens.
    pub fn address(&self) -> String {
        let text = std::fs::read_to_string(&self.kubeconfig).expect("the server wrote a kubeconfig");
        let url = text.lines().find_map(|line| line.trim().strip_prefix("server: https://"));
        url.expect("a kubeconfig names its server").to_owned()
    }

    /// A client of this server for the administrator.
    pub async fn client(&self) -> Client {
        let kubeconfig = Kubeconfig::read_from(&self.kubeconfig).expect("the server wrote a kubeconfig");
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        Client::try_from(config.expect("the kubeconfig is whole")).expect("the certificates can be used")
    }

    /// Asks the server to end, and waits until it has.
    pub fn stop(mut self) {
        signal(&self.child, Signal::TERM);
        assert!(self.child.wait().is_ok(), "it can't be stopped");
    }

    /// Lets the server stand still.
    pub fn pause(&self) {
        signal(&self.child, Signal::STOP);
    }

    /// Lets it go on.
    pub fn resume(&self) {
        signal(&self.child, Signal::CONT);
    }

    /// Where it serves, as its kubeconfig says.
    pub fn url(&self) -> String {
        let text = std::fs::read_to_string(&self.kubeconfig).expect("the server wrote a kubeconfig");
        let line = text.lines().find_map(|line| line.trim().strip_prefix("server: "));
        line.expect("a kubeconfig names a server").to_owned()
    }

    /// Ends the server as a power cut would: SIGKILL, no farewell.
    pub fn kill(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A part of the control plane as a process of its own; killed when dropped.
pub struct Part {
    child: Child,
    /// Where it serves: its probes, or a hub's vehicles.
    pub url: String,
}

impl Part {
    /// Starts a command such as `controllers` against the API server of a kubeconfig, and returns once it runs.
    pub fn start(command: &[&str], kubeconfig: &Path) -> Part {
        let mut child = Command::new(env!("CARGO_BIN_EXE_setpoint"))
            .args(command)
            .args(["--listen", "127.0.0.1:0", "--kubeconfig"])
            .arg(kubeconfig)
            .env_remove("SETPOINT_LOG")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary of this crate runs");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("stdout is a pipe")).read_line(&mut line).expect("stdout is text");
        let url = line.trim().strip_prefix("running ").unwrap_or_else(|| panic!("{command:?} doesn't run: {line:?}"));
        Part { url: url.to_owned(), child }
    }

    /// One figure of its `/metrics`, without what is in braces.
    pub fn figure(&self, name: &str) -> Option<f64> {
        let url = format!("{}/metrics", self.url);
        let answer = Command::new("curl").args(["-sS", "--max-time", "5", &url]).output().expect("curl runs");
        let text = String::from_utf8_lossy(&answer.stdout).into_owned();
        let line = text.lines().find(|line| line.starts_with(name))?;
        line.rsplit(' ').next()?.parse().ok()
    }

    /// Lets it stand still.
    pub fn pause(&self) {
        signal(&self.child, Signal::STOP);
    }

    /// Lets it go on.
    pub fn resume(&self) {
        signal(&self.child, Signal::CONT);
    }

    /// Waits until it has ended by itself, and returns how.
    pub fn ended(&mut self) -> Option<i32> {
        self.child.wait().expect("it can be waited for").code()
    }

    /// Asks it to end, and waits until it has. Returns how it ended.
    pub fn stop(mut self) -> Option<i32> {
        signal(&self.child, Signal::TERM);
        self.ended()
    }

    /// Ends it as a power cut would.
    pub fn kill(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.kill();
    }
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("it runs");
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Where the scripts in `xtask/tools` put what they fetch.
pub fn tools() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().expect("the workspace is there").join("target/tools")
}
