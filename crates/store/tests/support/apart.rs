//! Members of etcd in network namespaces of their own, which can be cut off from each other, from their clients, or from both; and clients
//! of them, which can be cut off from them and still be reached.

use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use setpoint_store::Endpoint;
use tempfile::TempDir;

use super::etcd_process::program;

/// Tells a process that it is in a namespace of its own already.
const INSIDE: &str = "SETPOINT_APART";

/// The ports of a member. Each is alone in its namespace.
const CLIENTS_PORT: u16 = 2379;
const PEERS_PORT: u16 = 2380;

/// The number of the first client.
pub const FIRST_CLIENT: usize = 100;

/// Runs a test again, in a process with a network namespace of its own. Says whether this is that process.
///
/// Where the kernel gives no namespace, the test is left out, and says so.
pub fn inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let unshare = |command: &[&str]| {
        let mut all = Command::new("unshare");
        // As root of a user namespace, for who is not root.
        all.args(["--net", "--map-root-user", "--"]).args(command);
        all
    };
    let probe = unshare(&["ip", "link", "add", "name", "probe", "type", "bridge"]).output();
    match probe {
        Ok(probe) if probe.status.success() => {}
        outcome => {
            eprintln!("{test} is left out: there are no network namespaces here: {outcome:?}");
            return false;
        }
    }
    let this = std::env::current_exe().expect("this test");
    let ended = unshare(&[this.to_str().expect("a name"), "--exact", test, "--nocapture"])
        .env(INSIDE, "yes")
        .output()
        .expect("it runs");
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(ended.status.success(), "{}\n{}", said(&ended.stdout), said(&ended.stderr));
    assert!(said(&ended.stdout).contains("1 passed"), "no such test: {test}");
    false
}

/// Whom a member can't reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    Peers,
    Clients,
    Both,
}

impl Cut {
    pub const ALL: [Cut; 3] = [Cut::Peers, Cut::Clients, Cut::Both];

    fn links(self) -> &'static [&'static str] {
        match self {
            Cut::Peers => &["peers"],
            Cut::Clients => &["clients"],
            Cut::Both => &["peers", "clients"],
        }
    }
}

/// Members that have a network for clients, of which this process is one, and another one for themselves.
pub struct Apart {
    members: Vec<Child>,
    _folder: TempDir,
}

impl Apart {
    /// Starts so many members.
    pub fn start(count: usize) -> Apart {
        let folder = tempfile::tempdir().expect("a folder");
        ip("link set lo up");
        for network in ["clients", "peers"] {
            ip(&format!("link add name {network} type bridge"));
            ip(&format!("link set {network} up"));
        }
        ip("address add 10.77.0.254/24 dev clients");
        let all: Vec<String> = (0..count).map(|at| format!("m{at}={}", peer(at))).collect();
        let start = |at: usize| {
            let client = format!("http://{}:{CLIENTS_PORT}", address("clients", at));
            let arguments = [
                ("name", format!("m{at}")),
                ("data-dir", folder.path().join(format!("m{at}")).display().to_string()),
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
            let mut member = placed(&program());
            member.args(arguments.iter().map(|(name, value)| format!("--{name}={value}"))).stdout(Stdio::null());
            settle(at, member)
        };
        let members = (0..count).map(start).collect();
        Apart { members, _folder: folder }
    }

    /// How many members there are.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Starts a client of theirs in a namespace of its own: it reaches them by the network of clients, and is reached at the address that is
    /// returned beside it, by the network of peers. Clients have numbers from 100.
    pub fn add_client(&self, at: usize, command: impl FnOnce(&str) -> Command) -> (Child, String) {
        let address = address("peers", at);
        if at == FIRST_CLIENT {
            ip("address add 10.78.0.254/24 dev peers");
        }
        let child = settle(at, command(&address));
        (child, address)
    }

    /// Where clients find the members, beginning with one of them.
    pub fn endpoints(&self, first: usize) -> Vec<Endpoint> {
        let endpoint = |at: usize| Endpoint { host: address("clients", at % self.len()), port: CLIENTS_PORT };
        (first..first + self.len()).map(endpoint).collect()
    }

    /// Cuts a member off. Nobody is told: what is sent is lost.
    pub fn cut(&self, at: usize, cut: Cut) {
        cut.links().iter().for_each(|network| ip(&format!("link set {} down", link(network, at))));
    }

    /// Lets it be reached again.
    pub fn heal(&self, at: usize, cut: Cut) {
        cut.links().iter().for_each(|network| ip(&format!("link set {} up", link(network, at))));
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        for member in &mut self.members {
            // Both fail only when it has ended already.
            let _ = member.kill();
            let _ = member.wait();
        }
    }
}

/// A program that runs in a namespace of its own once it has a network there, and is told so by a line.
pub fn placed(program: &Path) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--net", "--", "sh", "-c", r#"read -r go && exec "$@""#, "sh"]).arg(program);
    command.stdin(Stdio::piped()).stderr(Stdio::null());
    command
}

/// Starts what was placed, and gives it its network.
fn settle(at: usize, mut command: Command) -> Child {
    let mut child = command.spawn().expect("it starts");
    connect(at, &child);
    child.stdin.take().expect("a pipe").write_all(b"go\n").expect("it listens");
    child
}

/// Connects the namespace of a member to both networks.
fn connect(at: usize, member: &Child) {
    let namespace = format!("/proc/{}/ns/net", member.id());
    let within = |what: &str| run("nsenter", &format!("--net={namespace} ip {what}"));
    // Until it is in its namespace, it is in ours.
    let ours = std::fs::read_link("/proc/self/ns/net").expect("a namespace");
    while std::fs::read_link(&namespace).expect("it runs") == ours {
        std::thread::yield_now();
    }
    within("link set lo up");
    for network in ["clients", "peers"] {
        let link = link(network, at);
        ip(&format!("link add name {link} type veth peer name {network} netns {}", member.id()));
        ip(&format!("link set {link} master {network}"));
        ip(&format!("link set {link} up"));
        within(&format!("address add {}/24 dev {network}", address(network, at)));
        within(&format!("link set {network} up"));
    }
}

fn link(network: &str, at: usize) -> String {
    format!("{network}{at}")
}

fn address(network: &str, at: usize) -> String {
    let third = if network == "clients" { 77 } else { 78 };
    format!("10.{third}.0.{}", at + 1)
}

fn peer(at: usize) -> String {
    format!("http://{}:{PEERS_PORT}", address("peers", at))
}

fn ip(what: &str) {
    run("ip", what);
}

fn run(program: &str, arguments: &str) {
    let output = Command::new(program).args(arguments.split(' ')).output().expect("iproute2 and util-linux are here");
    assert!(output.status.success(), "{program} {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}
