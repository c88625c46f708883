//! The process that is measured.

#![allow(dead_code)] // each benchmark has its own copy of this module and needs only a part of it

pub mod load;

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A control plane; it ends with this value.
pub struct Process {
    child: Child,
    /// Where it listens.
    pub address: SocketAddr,
    /// Where address and credentials are.
    pub kubeconfig: PathBuf,
    /// How long it took until it was ready.
    pub started_in: Duration,
}

impl Process {
    /// Starts a command such as `server` on a folder, and returns once it serves.
    pub fn start(command: &[&str], directory: &Path) -> Process {
        Process::start_on(&store(), command, directory)
    }

    /// The same with the store that some arguments name.
    pub fn start_on(store: &[String], command: &[&str], directory: &Path) -> Process {
        let start = Instant::now();
        let mut child = Command::new(env!("CARGO_BIN_EXE_setpoint"))
            .args(command)
            .args(["--listen", "127.0.0.1:0", "--log-level", "warn", "--data-dir"])
            .arg(directory)
            .args(store)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server");
        let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let url = loop {
            let line = lines.next().expect("the server is ready").expect("a line");
            if let Some(url) = line.strip_prefix("ready https://") {
                break url.to_owned();
            }
        };
        let started_in = start.elapsed();
        std::thread::spawn(move || lines.for_each(drop));
        let kubeconfig = directory.join("admin.kubeconfig");
        Process { child, address: url.parse().expect("an address"), kubeconfig, started_in }
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// CPU time of all its threads so far.
    pub fn cpu(&self) -> Duration {
        cpu(self.child.id())
    }

    /// Resident bytes.
    pub fn resident(&self) -> u64 {
        resident(self.child.id())
    }

    /// Ends it as a power cut would.
    pub fn kill(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        let _ = self.child.wait();
    }
}

/// Another store than the embedded one, if the command line names one: `-- etcd://127.0.0.1:2379`.
fn store() -> Vec<String> {
    match std::env::args().skip(1).find(|word| word.starts_with("etcd://")) {
        Some(etcd) => vec!["--store".to_owned(), etcd],
        None => Vec::new(),
    }
}

/// CPU time of all threads of a process so far.
pub fn cpu(process: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    Duration::from_millis((ticks(11) + ticks(12)) * 10)
}

/// Resident bytes of a process.
pub fn resident(process: u32) -> u64 {
    let statm = std::fs::read_to_string(format!("/proc/{process}/statm")).unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}

/// Whether a part of a benchmark is to run: all do, unless some are named.
pub fn is_chosen(part: &str) -> bool {
    let is_part = |word: &String| !word.starts_with('-') && !word.starts_with("etcd://");
    let mut named = std::env::args().skip(1).filter(is_part).peekable();
    named.peek().is_none() || named.any(|word| part.starts_with(&word))
}
