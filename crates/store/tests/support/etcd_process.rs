//! Processes of a real etcd cluster on loopback, which can be killed, paused and started again.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Some members on ports of their own. They end with it.
pub struct Cluster {
    members: Vec<Member>,
    _folder: TempDir,
}

struct Member {
    program: PathBuf,
    child: Option<Child>,
    arguments: Vec<String>,
    port: u16,
}

impl Cluster {
    /// Starts so many members. Clients wait until they have found each other.
    pub fn start(count: usize) -> Cluster {
        Cluster::start_with(count, &[])
    }

    /// The same with more arguments for each of them.
    pub fn start_with(count: usize, more: &[&str]) -> Cluster {
        Cluster::start_program(program(), count, more)
    }

    /// The same with an etcd of a version before 3.4.25, if this machine has one: it tells its progress too early, so isn't asked.
    pub fn start_old(count: usize) -> Option<Cluster> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let fetched = root.join("target/tools/bin/etcd-3.4");
        let old = std::env::var_os("SETPOINT_OLD_ETCD").map_or(fetched, PathBuf::from);
        old.exists().then(|| Cluster::start_program(old, count, &[]))
    }

    /// The same as [`Cluster::start`] with its data below a folder, on the disk that is to be measured.
    pub fn start_in(beside: &str, count: usize) -> Cluster {
        Cluster::start_folder(tempfile::tempdir_in(beside).expect("a folder"), program(), count, &[])
    }

    fn start_program(program: PathBuf, count: usize, more: &[&str]) -> Cluster {
        Cluster::start_folder(tempfile::tempdir().expect("a folder"), program, count, more)
    }

    fn start_folder(folder: TempDir, program: PathBuf, count: usize, more: &[&str]) -> Cluster {
        let ports = free_ports(2 * count);
        let peer = |at: usize| format!("http://127.0.0.1:{}", ports[2 * at + 1]);
        let all: Vec<String> = (0..count).map(|at| format!("m{at}={}", peer(at))).collect();
        let member = |at: usize| {
            let secured = more.iter().any(|argument| argument.starts_with("--cert-file"));
            let scheme = if secured { "https" } else { "http" };
            let (port, client) = (ports[2 * at], format!("{scheme}://127.0.0.1:{}", ports[2 * at]));
            let data = folder.path().join(format!("m{at}")).display().to_string();
            let arguments = [
                ("name", format!("m{at}")),
                ("data-dir", data),
                ("listen-client-urls", client.clone()),
                ("advertise-client-urls", client),
                ("listen-peer-urls", peer(at)),
                ("initial-advertise-peer-urls", peer(at)),
                ("initial-cluster", all.join(",")),
                ("initial-cluster-state", "new".to_owned()),
                ("heartbeat-interval", "50".to_owned()),
                ("election-timeout", "500".to_owned()),
                ("log-level", "error".to_owned()),
            ];
            let mut arguments: Vec<String> =
                arguments.iter().map(|(name, value)| format!("--{name}={value}")).collect();
            arguments.extend(more.iter().map(|&argument| argument.to_owned()));
            let mut member = Member { program: program.clone(), child: None, arguments, port };
            member.start();
            member
        };
        let members = (0..count).map(member).collect();
        Cluster { members, _folder: folder }
    }

    /// All of them, as the command line names a store.
    pub fn store(&self) -> String {
        let members: Vec<String> = self.ports(0).iter().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("etcd://{}", members.join(","))
    }

    /// How many members there are.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Ends a member as a power cut would.
    pub fn kill(&mut self, at: usize) {
        self.members[at].kill();
    }

    /// Asks a member to end, and waits until it has.
    pub fn stop(&mut self, at: usize) {
        self.members[at].signal(Signal::TERM);
        if let Some(mut child) = self.members[at].child.take() {
            child.wait().expect("it can be waited for");
        }
    }

    /// Starts a member again that was killed or stopped.
    pub fn start_again(&mut self, at: usize) {
        self.members[at].start();
    }

    /// Whether a member answers, and has a leader.
    pub fn is_healthy(&self, at: usize) -> bool {
        let url = format!("http://127.0.0.1:{}/health", self.members[at].port);
        let answer = Command::new("curl").args(["-sS", "--max-time", "2", &url]).output().expect("curl runs");
        String::from_utf8_lossy(&answer.stdout).contains(r#""health":"true""#)
    }

    /// Lets a member stand still.
    pub fn pause(&self, at: usize) {
        self.members[at].signal(Signal::STOP);
    }

    /// Lets it go on.
    pub fn resume(&self, at: usize) {
        self.members[at].signal(Signal::CONT);
    }

    /// The ports of the members, beginning with one of them.
    pub fn ports(&self, first: usize) -> Vec<u16> {
        (first..first + self.members.len()).map(|at| self.members[at % self.members.len()].port).collect()
    }
}

impl Member {
    fn start(&mut self) {
        let command =
            Command::new(&self.program).args(&self.arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        self.child = Some(command.expect("etcd runs"));
    }

    fn signal(&self, signal: Signal) {
        if let Some(child) = &self.child {
            kill_process(Pid::from_child(child), signal).expect("it runs");
        }
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Both fail only when it has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The etcd that tests use.
pub fn program() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let fetched = root.join("target/tools/bin/etcd");
    let chosen = std::env::var_os("SETPOINT_ETCD").map_or(fetched, PathBuf::from);
    assert!(chosen.exists(), "there is no etcd on this machine: `xtask/tools/etcd.sh` fetches one");
    chosen
}

/// Ports that nobody listens on. All are held until the last is found, so that they differ.
fn free_ports(count: usize) -> Vec<u16> {
    let held: Vec<TcpListener> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port")).collect();
    held.iter().map(|listener| listener.local_addr().expect("bound").port()).collect()
}
