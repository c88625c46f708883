//! `make demo` tells a story that is true: with fewer vehicles, and this build.

#[path = "server/mod.rs"]
mod server;

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

/// Few, so that a debug build is quick; of which a fiftieth is one, and a quarter are eight.
const VEHICLES: usize = 30;

#[test]
fn a_bad_firmware_is_caught_by_one_vehicle_and_its_fix_reaches_all_while_parts_are_killed() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../xtask/demo/fleet.sh");
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let tools = server::tools().join("bin");
    let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap_or_default());
    let output = Command::new(script)
        .env("PATH", path)
        .env("SETPOINT", env!("CARGO_BIN_EXE_setpoint"))
        .envs([("VEHICLES", VEHICLES.to_string()), ("SPEED", "30".to_owned()), ("PORT", port.to_string())])
        .env_remove("SETPOINT_LOG")
        .output()
        .expect("there is a shell");
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{told}\n{}", String::from_utf8_lossy(&output.stderr));
    let row = |name: &str| {
        let row = told.lines().find(|line| line.starts_with(&format!("{name} ")));
        row.unwrap_or_else(|| panic!("no row of {name}: {told}")).split_whitespace().collect::<Vec<_>>()
    };
    // One vehicle of the first step has shown it, nobody else was told, and all are back.
    let caught = told.lines().find(|line| line.contains("Rollout/bad")).unwrap_or_default();
    assert!(caught.contains("0 of 1 have confirmed, and nobody is on the way"), "{told}");
    assert_eq!(row("bad")[..6], ["bad", "2.0.0", "RolledBack", "1/3", "30", "0"], "{told}");
    for fact in ["nobody runs 2.0.0", "all run 1.0.0 again", "all run 2.0.1"] {
        assert!(told.contains(&format!("so it is: {fact}")), "{fact}: {told}");
    }
    // Both were killed in the middle of it, and what they did went on.
    for part in ["controllers", "hub"] {
        let killed = told.lines().find(|line| line.starts_with(&format!("{part} killed while fix was")));
        assert!(killed.is_some_and(|line| !line.contains("Completed") && !line.contains("3/3")), "{part}: {told}");
    }
    assert_eq!(row("fix")[..6], ["fix", "2.0.1", "Completed", "3/3", "30", "30"], "{told}");
}
