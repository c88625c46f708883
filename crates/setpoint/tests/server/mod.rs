//! A server of its own for one test, and where the tools of tests are.

#![allow(dead_code)] // each test binary has its own copy of this module and needs only a part of it

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

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
        let mut child = Command::new(env!("CARGO_BIN_EXE_setpoint"))
            .args(command)
            .args(["--listen", "127.0.0.1:0", "--data-dir"])
            .arg(data)
            .env_remove("SETPOINT_LOG")
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("the binary of this crate runs");
        let mut line = String::new();
        // Ends in any case: a server that does not get ready gives up by itself.
        BufReader::new(child.stdout.take().expect("stdout is a pipe")).read_line(&mut line).expect("stdout is text");
        assert!(line.starts_with("ready "), "not ready: {line:?}");
        Server { child, kubeconfig: data.join("admin.kubeconfig") }
    }

    /// A client of this server for the administrator.
    pub async fn client(&self) -> Client {
        let kubeconfig = Kubeconfig::read_from(&self.kubeconfig).expect("the server wrote a kubeconfig");
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        Client::try_from(config.expect("the kubeconfig is whole")).expect("the certificates can be used")
    }

    /// Asks the server to end, and waits until it has.
    pub fn stop(mut self) {
        let asked = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        assert!(asked.is_ok_and(|status| status.success()) && self.child.wait().is_ok(), "it can't be stopped");
    }

    /// Ends the server as a power cut would: SIGKILL, no farewell.
    pub fn kill(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
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
