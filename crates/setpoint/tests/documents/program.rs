//! A program that a page says to run beside its commands; it ends with the test.

use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A program that runs.
pub struct Program(Child);

/// Which package a program is of, and the kind that one has to have installed before it is of use.
fn origin(name: &str) -> (&'static str, Option<&'static str>) {
    match name {
        "setpoint" => ("setpoint", None),
        "setpoint-edge-agent" => ("setpoint-edge-agent", None),
        "lamp" => ("lamp", Some("lamps")),
        "thermostat" => ("setpoint-examples", Some("thermostats")),
        "configmap" => ("setpoint-examples", Some("greetings")),
        "mariadb" => ("setpoint-examples", Some("mariadbs")),
        "machine" => ("setpoint-examples", Some("machines")),
        other => panic!("no program is called {other}"),
    }
}

impl Program {
    /// Starts a program with its arguments, and returns once its kind is there.
    pub fn start(line: &str, folder: &Path, environment: &[(&str, String)]) -> Program {
        let mut words = line.split_whitespace();
        let name = words.next().expect("a command has a name");
        let (package, kind) = origin(name);
        let binary = Path::new(env!("CARGO_BIN_EXE_setpoint")).with_file_name(name);
        if !binary.exists() {
            // Built with all tests of the workspace, but not with these alone.
            let built = Command::new(env!("CARGO")).args(["build", "-p", package, "--bin", name]).status();
            assert!(built.is_ok_and(|status| status.success()) && binary.exists(), "there is no {}", binary.display());
        }
        let mut command = Command::new(binary);
        command.args(words).current_dir(folder).envs(environment.iter().map(|(name, value)| (name, value)));
        let program = Program(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        if let Some(kind) = kind {
            let crd = format!("crd/{kind}.example.com");
            let wait = format!("setpoint wait --for=create {crd} && setpoint wait --for=condition=Established {crd}");
            let waited = Command::new("bash").args(["-c", &wait]).envs(environment.iter().cloned()).output().unwrap();
            assert!(waited.status.success(), "{}", String::from_utf8_lossy(&waited.stderr));
        }
        program
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
