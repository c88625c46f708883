//! Commands that do what is special about a vehicle.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use setpoint_fleet_protocol::{HealthCheck, MESSAGE_BYTES_MAX};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;
use tokio::time::{Instant, sleep, timeout};

/// How long a hook may take.
const HOOK_LIMIT: Duration = Duration::from_secs(30 * 60);

/// The pause between two tries of a health check.
const CHECK_PAUSE: Duration = Duration::from_millis(500);

/// The most that is kept of what a command writes: its end, and a failure tells half of that.
const OUTPUT_BYTES_MAX: usize = MESSAGE_BYTES_MAX;

/// Runs a command, and gives the end of what it wrote; its failure says the same.
pub async fn execute(
    command: &[String],
    variables: &BTreeMap<&str, String>,
    limit: Duration,
) -> Result<String, String> {
    let Some((program, arguments)) = command.split_first() else { return Err("the command is empty".into()) };
    let mut command = Command::new(program);
    command.args(arguments).envs(variables).kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let run = async {
        let mut child = command.spawn()?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (stdout, stderr, status) = tokio::join!(end_of(stdout), end_of(stderr), child.wait());
        Ok::<_, std::io::Error>((stdout?, stderr?, status?))
    };
    let (stdout, stderr, status) = match timeout(limit, run).await {
        Err(_) => return Err(format!("{program} took over {} s", limit.as_secs())),
        Ok(Err(error)) => return Err(format!("{program}: {error}")),
        Ok(Ok(ended)) => ended,
    };
    if status.success() {
        return Ok(stdout);
    }
    let text = stdout + &stderr;
    Err(format!("{program}: {status}: {}", tail(text.trim())))
}

/// The end of what comes from a pipe, however much it is.
async fn end_of(pipe: Option<impl AsyncRead + Unpin>) -> std::io::Result<String> {
    let Some(mut pipe) = pipe else { return Ok(String::new()) };
    let mut kept = Vec::new();
    while pipe.read_buf(&mut kept).await? > 0 {
        let over = kept.len().saturating_sub(OUTPUT_BYTES_MAX);
        kept.drain(..over);
    }
    Ok(String::from_utf8_lossy(&kept).into_owned())
}

/// Runs a hook; what it printed.
pub async fn hook(command: &[String], variables: &BTreeMap<&str, String>) -> Result<String, String> {
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
            Ok(_) => break,
            Err(why) if Instant::now() + CHECK_PAUSE >= end => return Err(why),
            Err(_) => sleep(CHECK_PAUSE).await,
        }
    }
    if check.stable_seconds == 0 {
        return Ok(());
    }
    sleep(Duration::from_secs(check.stable_seconds.into())).await;
    execute(command, variables, limit).await.map(drop).map_err(|why| format!("not well any more: {why}"))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn script(text: &str) -> Vec<String> {
        ["sh", "-c", text].map(str::to_owned).to_vec()
    }

    const LONG: Duration = Duration::from_secs(600);

    async fn run(text: &str) -> Result<String, String> {
        execute(&script(text), &BTreeMap::from([("SETPOINT_SLOT", "b".to_owned())]), LONG).await
    }

    #[tokio::test]
    async fn a_command_is_told_what_it_is_about_and_its_failure_says_why() {
        assert_eq!(run("echo $SETPOINT_SLOT").await.unwrap(), "b\n");
        assert_eq!(run("echo out; echo err >&2; exit 7").await.unwrap_err(), "sh: exit status: 7: out\nerr");
        let nothing = execute(&[], &BTreeMap::new(), LONG).await;
        assert_eq!(nothing.unwrap_err(), "the command is empty");
        let missing = execute(&["/there/is/none".to_owned()], &BTreeMap::new(), LONG).await;
        assert!(missing.unwrap_err().starts_with("/there/is/none: No such file"));
    }

    #[tokio::test]
    async fn of_much_that_a_command_writes_the_end_is_kept() {
        let why = run("i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done; exit 1").await.unwrap_err();
        assert!(why.len() <= MESSAGE_BYTES_MAX && why.ends_with("line 19999"), "{why}");
        assert!(run("yes | head -c 1000000").await.unwrap().len() <= OUTPUT_BYTES_MAX);
    }

    /// The clock stands still but for what waits on it, so the limit is over as soon as nothing else happens.
    #[tokio::test(start_paused = true)]
    async fn a_command_that_takes_too_long_is_ended() {
        let endless = execute(&script("exec sleep 100000"), &BTreeMap::new(), LONG).await;
        assert_eq!(endless.unwrap_err(), "sh took over 600 s");
    }

    async fn checked(text: &str, timeout_seconds: u32, stable_seconds: u32) -> Result<(), String> {
        let checks = [HealthCheck { name: "self".into(), timeout_seconds, stable_seconds }];
        let commands = BTreeMap::from([("self".to_owned(), script(text))]);
        probe(&checks, &commands, &BTreeMap::new()).await
    }

    #[tokio::test]
    async fn a_check_is_tried_until_it_passes_or_its_time_is_over() {
        let folder = tempfile::tempdir().unwrap();
        let mark = folder.path().join("mark").display().to_string();
        assert_eq!(checked("true", 60, 0).await, Ok(()));
        assert_eq!(checked(&format!("test -e {mark} || {{ touch {mark}; exit 1; }}"), 600, 0).await, Ok(()));
        let never = checked("echo no sound; exit 3", 1, 0).await;
        assert_eq!(never.unwrap_err(), "check \"self\": sh: exit status: 3: no sound");
        // Well at first, and not for long enough.
        let once = format!("rm {mark}");
        let why = checked(&once, 600, 1).await.unwrap_err();
        assert!(why.starts_with("check \"self\": not well any more: sh: exit status: 1"), "{why}");
    }

    #[tokio::test]
    async fn a_check_that_the_vehicle_does_not_know_is_not_passed() {
        let checks = [HealthCheck { name: "brakes".into(), ..HealthCheck::default() }];
        let found = probe(&checks, &BTreeMap::new(), &BTreeMap::new()).await;
        assert_eq!(found.unwrap_err(), "this vehicle has no check called \"brakes\"");
    }
}
