//! The agent's configuration, a file in JSON.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use setpoint_fleet_protocol::VehicleName;
use setpoint_fleet_protocol::metadata::Trust;

/// What the agent has to know. Paths are relative to the file.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    /// `namespace/name`, as in the certificate.
    pub vehicle: String,
    /// The vehicle's hardware.
    pub hardware_id: String,
    /// Where the hub is: `https://HOST:PORT`. Several are tried one after another.
    pub hubs: Vec<String>,
    /// Where journal and slots are.
    pub data: PathBuf,
    /// The authority of the hub's certificate, in PEM.
    pub ca: PathBuf,
    /// The vehicle's certificate, in PEM.
    pub certificate: PathBuf,
    /// The key of it, in PEM.
    pub key: PathBuf,
    /// The token that the first certificate is asked for with, where there is none yet.
    #[serde(default)]
    pub token: Option<PathBuf>,
    /// The root metadata that the vehicle was made with.
    #[serde(default)]
    pub root: Option<PathBuf>,
    /// Says in the place of `root` that nothing but digests is checked.
    #[serde(default)]
    pub unsigned: bool,
    /// The version that the vehicle was made with.
    #[serde(default)]
    pub initial_version: String,
    /// What the vehicle knows of itself, where nothing measures it.
    #[serde(default)]
    pub facts: Value,
    /// A file with the same, read again whenever a gate holds.
    #[serde(default)]
    pub facts_file: Option<PathBuf>,
    /// Commands by name: see [`HOOKS`].
    #[serde(default)]
    pub hooks: BTreeMap<String, Vec<String>>,
    /// Health checks by name: a command that succeeds if all is well.
    #[serde(default)]
    pub checks: BTreeMap<String, Vec<String>>,
    /// How to speak to the hub.
    #[serde(default)]
    pub transport: Transport,
}

/// The hooks there are. `install` writes what came into the other slot; `restart` restarts the vehicle. The others take the place of the
/// built-in table of slots, all of them or none: `booted` prints the slot that runs, `a` or `b`, and `fell-back` after it where the boot
/// loader gave up the other one; `arm` makes the next start one from the other slot; `commit` makes the one that runs the one to start
/// from; `disarm` the one before.
pub const HOOKS: [&str; 6] = ["install", "restart", "booted", "arm", "commit", "disarm"];

/// Those of a boot loader.
const LOADER_HOOKS: [&str; 4] = ["booted", "arm", "commit", "disarm"];

/// How to speak to the hub.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// WebSockets, and long polls where something on the way doesn't let them through.
    #[default]
    Auto,
    /// WebSockets only.
    WebSocket,
    /// Long polls only.
    LongPoll,
}

impl Config {
    /// Reads a file.
    pub fn read(file: &Path) -> Result<Config, String> {
        let text = fs::read_to_string(file).map_err(|error| error.to_string())?;
        let mut config: Config = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        if VehicleName::parse(&config.vehicle).is_none() {
            return Err(format!("vehicle: {:?} is not NAMESPACE/NAME", config.vehicle));
        }
        if config.hubs.is_empty() {
            return Err("hubs: there is none".into());
        }
        if config.root.is_none() && !config.unsigned {
            return Err("root: there is none; say \"unsigned\": true if nothing but digests is to be checked".into());
        }
        check_hooks(&config.hooks)?;
        let folder = file.parent().unwrap_or(Path::new("."));
        for path in [&mut config.data, &mut config.ca, &mut config.certificate, &mut config.key] {
            *path = folder.join(&path);
        }
        for path in [&mut config.token, &mut config.root, &mut config.facts_file].into_iter().flatten() {
            *path = folder.join(&path);
        }
        Ok(config)
    }

    /// What the root that the vehicle was made with lets it believe.
    pub fn trust(&self) -> Result<Option<Arc<Trust>>, String> {
        let Some(path) = &self.root else { return Ok(None) };
        let shown = |why: String| format!("can't use {}: {why}", path.display());
        let next = "put the root metadata there, which `setpoint fleet keys` makes, or say `\"unsigned\": true`";
        let text = fs::read_to_string(path).map_err(|error| shown(format!("{error}\n  hint: {next}")))?;
        Trust::pinned(&text).map(Arc::new).map(Some).map_err(|refusal| shown(refusal.to_string()))
    }
}

fn check_hooks(hooks: &BTreeMap<String, Vec<String>>) -> Result<(), String> {
    for (name, command) in hooks {
        if !HOOKS.contains(&name.as_str()) {
            return Err(format!("hooks: there is no hook {name:?}, only {}", HOOKS.join(", ")));
        }
        if command.is_empty() {
            return Err(format!("hooks: {name} has no command"));
        }
    }
    let missing: Vec<&str> = LOADER_HOOKS.into_iter().filter(|name| !hooks.contains_key(*name)).collect();
    if missing.is_empty() || missing.len() == LOADER_HOOKS.len() {
        return Ok(());
    }
    // Half a boot loader would arm one table and read another.
    Err(format!("hooks: {} go together, and {} is missing", LOADER_HOOKS.join(", "), missing.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hooks_of_a_boot_loader_go_together() {
        let hooks = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), vec!["true".to_owned()])).collect();
        for (names, expected) in [
            (&[][..], None),
            (&["install"][..], None),
            (&["install", "restart"], None),
            (&HOOKS, None),
            (&["arm"], Some("hooks: booted, arm, commit, disarm go together, and booted, commit, disarm is missing")),
            (
                &["booted", "arm", "commit"],
                Some("hooks: booted, arm, commit, disarm go together, and disarm is missing"),
            ),
            (
                &["reboot"],
                Some("hooks: there is no hook \"reboot\", only install, restart, booted, arm, commit, disarm"),
            ),
        ] {
            assert_eq!(check_hooks(&hooks(names)).err().as_deref(), expected, "{names:?}");
        }
        let empty = BTreeMap::from([("install".to_owned(), Vec::new())]);
        assert_eq!(check_hooks(&empty).unwrap_err(), "hooks: install has no command");
    }

    #[test]
    fn a_root_that_is_not_there_is_told_with_where_it_comes_from() {
        let config: Config = serde_json::from_value(serde_json::json!({
            "vehicle": "default/car-1", "hardwareId": "ecu-1", "hubs": ["https://h"], "data": "d", "ca": "c",
            "certificate": "e", "key": "k", "root": "/nowhere/root.json",
        }))
        .unwrap();
        let said = config.trust().err().unwrap();
        assert!(said.starts_with("can't use /nowhere/root.json: No such file or directory"), "{said}");
        assert!(said.contains("\n  hint: put the root metadata there, which `setpoint fleet keys` makes"), "{said}");
    }
}
