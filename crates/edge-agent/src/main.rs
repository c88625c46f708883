//! `setpoint-edge-agent --config FILE`: the agent of one vehicle.

use std::path::Path;
use std::process::ExitCode;

use setpoint_edge_agent::device::{Config, Ended, run};

const USAGE: &str = "usage: setpoint-edge-agent --config FILE";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["--version"] => {
            println!("setpoint-edge-agent {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        ["--help" | "-h"] => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        ["--config", file] => start(Path::new(file)),
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn start(file: &Path) -> ExitCode {
    let config = match Config::read(file) {
        Ok(config) => config,
        Err(why) => {
            eprintln!("error: can't use {}: {why}", file.display());
            eprintln!(
                "  hint: `setpoint fleet enrol VEHICLE --out FOLDER` writes one; docs/fleet.md tells what is in it"
            );
            return ExitCode::from(2);
        }
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: can't start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let ended = runtime.block_on(run(config));
    drop(runtime);
    match ended {
        Ok(Ended::Asked) => ExitCode::SUCCESS,
        Ok(Ended::Restart) => restart(),
        Err(why) => {
            eprintln!("error: stopped: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Where nothing else restarts the vehicle, the agent restarts itself.
fn restart() -> ExitCode {
    use std::os::unix::process::CommandExt;
    let mut arguments = std::env::args_os();
    let program = std::env::current_exe().ok().map(Into::into).or_else(|| arguments.next());
    let Some(program) = program else { return ExitCode::FAILURE };
    let error = std::process::Command::new(program).args(std::env::args_os().skip(1)).exec();
    eprintln!("can't restart: {error}");
    ExitCode::FAILURE
}
