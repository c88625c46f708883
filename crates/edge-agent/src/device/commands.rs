//! Commands that do what is special about a vehicle.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use setpoint_fleet_protocol::{HealthCheck, MESSAGE_BYTES_MAX};
use tokio::process::Command;
use tokio::time::{Instant, sleep, timeout};

/// How long a hook may take.
const HOOK_LIMIT: Duration = Duration::from_secs(30 * 60);

/// The pause between two tries of a health check.
const CHECK_PAUSE: Duration = Duration::from_millis(500);

/// Runs a command; its failure is the end of what it wrote.
pub async fn execute(command: &[String], variables: &BTreeMap<&str, String>, limit: Duration) -> Result<(), String> {
    let Some((program, arguments)) = command.split_first() else { return Err("the command is empty".into()) };
    let mut command = Command::new(program);
    command.args(arguments).envs(variables).stdin(Stdio::null()).kill_on_drop(true);
    let output = match timeout(limit, command.output()).await {
        Err(_) => return Err(format!("{program} took over {} s", limit.as_secs())),
        Ok(Err(error)) => return Err(format!("{program}: {error}")),
        Ok(Ok(output)) => output,
    };
    if output.status.success() {
        return Ok(());
    }
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    Err(format!("{program}: {}: {}", output.status, tail(text.trim())))
}

/// Runs a hook.
pub async fn hook(command: &[String], variables: &BTreeMap<&str, String>) -> Result<(), String> {
    execute(command, variables, HOOK_LIMIT).await
}

/// Runs health checks until each is passed and stays so, or one is not in time.
pub async fn probe(
    checks: &[HealthCheck],
    commands: &BTreeMap<String, Vec<String>>,
    variables: &BTreeMap<&str, String>,
) -> Result<(), String> {
    for check in checks {
        let name = &check.name;
        let command = commands.get(name).ok_or_else(|| format!("this vehicle has no check called {name:?}"))?;
        passed(check, command, variables).await.map_err(|why| format!("check {name:?}: {why}"))?;
    }
    Ok(())
}

async fn passed(check: &HealthCheck, command: &[String], variables: &BTreeMap<&str, String>) -> Result<(), String> {
    let limit = Duration::from_secs(u64::from(check.timeout_seconds.max(1)));
    let end = Instant::now() + limit;
    loop {
        match execute(command, variables, limit).await {
            Ok(()) => break,
            Err(why) if Instant::now() + CHECK_PAUSE >= end => return Err(why),
            Err(_) => sleep(CHECK_PAUSE).await,
        }
    }
    if check.stable_seconds == 0 {
        return Ok(());
    }
    sleep(Duration::from_secs(check.stable_seconds.into())).await;
    execute(command, variables, limit).await.map_err(|why| format!("not well any more: {why}"))
}

/// The end of a text, within what a report takes.
fn tail(text: &str) -> &str {
    let most = MESSAGE_BYTES_MAX / 2;
    let mut start = text.len().saturating_sub(most);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}
