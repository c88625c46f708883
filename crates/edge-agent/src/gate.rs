//! What holds a task on the vehicle: judged from the policy, the facts and the time, connected or not.

use cel::{Context, Program};
use jiff::Timestamp;
use setpoint_fleet_protocol::{Desired, Policy, Window};

use crate::Facts;

/// Most marks that can nest in a condition: the parser takes stack for each.
const NESTING_MAX: usize = 16;

/// A stack that is enough for as much nesting, given back when the condition is judged.
const STACK_BYTES: usize = 8 * 1024 * 1024;

/// What holds a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gate {
    /// The vehicle's updates are paused.
    Paused,
    /// It is not the hour.
    Window,
    /// The connection costs by the byte.
    Metered,
    /// Nobody agreed yet.
    Consent,
    /// The charge is too low, or not known.
    Battery,
    /// It drives, or nobody knows that it doesn't.
    Driving,
    /// The condition of the policy doesn't hold.
    Condition,
    /// Too many download at once.
    DownloadBudget,
    /// There is no connection to download over.
    Offline,
    /// There is no room for the artifact.
    DiskSpace,
}

impl Gate {
    /// The word for status.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Gate::Paused => "Paused",
            Gate::Window => "Window",
            Gate::Metered => "Metered",
            Gate::Consent => "Consent",
            Gate::Battery => "Battery",
            Gate::Driving => "Driving",
            Gate::Condition => "Gate",
            Gate::DownloadBudget => "DownloadBudget",
            Gate::Offline => "Offline",
            Gate::DiskSpace => "DiskSpace",
        }
    }
}

/// A gate that holds, and when it is known to open, if it is.
pub type Held = (Gate, Option<Timestamp>);

/// What keeps a download from beginning; an error if the policy can't be read.
pub fn before_download(desired: &Desired, facts: &Facts, now: Timestamp) -> Result<Option<Held>, String> {
    let policy = desired.policy.clone().unwrap_or_default();
    if desired.paused {
        return Ok(Some((Gate::Paused, None)));
    }
    if let Some(held) = window(&policy.download_window, now)? {
        return Ok(Some(held));
    }
    let metered = facts.metered == Some(true) && !policy.metered_ok;
    Ok(metered.then_some((Gate::Metered, None)))
}

/// What keeps an installation from beginning.
pub fn before_install(desired: &Desired, facts: &Facts, now: Timestamp) -> Result<Option<Held>, String> {
    let policy = desired.policy.clone().unwrap_or_default();
    if desired.paused {
        return Ok(Some((Gate::Paused, None)));
    }
    if let Some(held) = window(&policy.install_window, now)? {
        return Ok(Some(held));
    }
    if policy.require_consent && !facts.agrees_to(&desired.version) {
        return Ok(Some((Gate::Consent, None)));
    }
    standing(&policy, facts)
}

/// What keeps a restart into what is installed from happening: only what makes it unsafe.
pub fn before_restart(desired: &Desired, facts: &Facts) -> Result<Option<Held>, String> {
    standing(&desired.policy.clone().unwrap_or_default(), facts)
}

fn standing(policy: &Policy, facts: &Facts) -> Result<Option<Held>, String> {
    if policy.min_battery > 0 && facts.battery.is_none_or(|charge| u32::from(charge) < policy.min_battery) {
        return Ok(Some((Gate::Battery, None)));
    }
    if policy.require_parked && facts.parked != Some(true) {
        return Ok(Some((Gate::Driving, None)));
    }
    if policy.gate.is_empty() {
        return Ok(None);
    }
    Ok((!condition(&policy.gate, facts)?).then_some((Gate::Condition, None)))
}

fn window(text: &str, now: Timestamp) -> Result<Option<Held>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let window = Window::parse(text).map_err(|error| error.to_string())?;
    Ok((!window.contains(now)).then(|| (Gate::Window, window.opens_at(now))))
}

/// Whether a condition holds. One that asks for what isn't known doesn't; one that can't be read is an error.
fn condition(text: &str, facts: &Facts) -> Result<bool, String> {
    if text.bytes().filter(|byte| b"([{!-?".contains(byte)).count() > NESTING_MAX {
        return Err(format!("the gate is nested more than {NESTING_MAX} times"));
    }
    stacker::grow(STACK_BYTES, || evaluate(text, facts))
}

fn evaluate(text: &str, facts: &Facts) -> Result<bool, String> {
    let program = Program::compile(text).map_err(|error| format!("the gate {text:?} can't be read: {error}"))?;
    let mut context = Context::default();
    if let Some(battery) = facts.battery {
        context.add_variable_from_value("battery", i64::from(battery));
    }
    for (name, value) in [("parked", facts.parked), ("metered", facts.metered)] {
        if let Some(value) = value {
            context.add_variable_from_value(name, value);
        }
    }
    for (name, value) in facts.more.iter().flat_map(|more| more.iter()) {
        // What has no form in CEL is not known to it.
        let _ = context.add_variable(name.as_str(), value);
    }
    match program.execute(&context) {
        Ok(cel::Value::Bool(holds)) => Ok(holds),
        Ok(_) => Err(format!("the gate {text:?} is neither true nor false")),
        Err(_) => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: &str = "2026-06-01T12:00:00Z";

    fn check(policy: Policy, facts: &str, expected: Result<Option<Gate>, ()>) {
        let desired = Desired { version: "2.0".into(), policy: Some(policy), ..Desired::default() };
        let found = before_install(&desired, &Facts::read(facts).unwrap(), NOON.parse().unwrap());
        assert_eq!(found.map(|held| held.map(|(gate, _)| gate)).map_err(|_| ()), expected, "{desired:?} {facts}");
    }

    #[test]
    fn each_part_of_a_policy_is_a_gate() {
        let policy = Policy::default;
        check(policy(), "{}", Ok(None));
        check(Policy { install_window: "02:00-04:00".into(), ..policy() }, "{}", Ok(Some(Gate::Window)));
        check(Policy { install_window: "11:00-13:00".into(), ..policy() }, "{}", Ok(None));
        check(Policy { install_window: "noon".into(), ..policy() }, "{}", Err(()));
        let consent = || Policy { require_consent: true, ..policy() };
        check(consent(), "{}", Ok(Some(Gate::Consent)));
        check(consent(), r#"{"consent": "1.0"}"#, Ok(Some(Gate::Consent)));
        check(consent(), r#"{"consent": "2.0"}"#, Ok(None));
        check(consent(), r#"{"consent": true}"#, Ok(None));
        let battery = || Policy { min_battery: 40, ..policy() };
        check(battery(), "{}", Ok(Some(Gate::Battery)));
        check(battery(), r#"{"battery": 39}"#, Ok(Some(Gate::Battery)));
        check(battery(), r#"{"battery": 40}"#, Ok(None));
        let parked = || Policy { require_parked: true, ..policy() };
        check(parked(), "{}", Ok(Some(Gate::Driving)));
        check(parked(), r#"{"parked": true}"#, Ok(None));
    }

    #[test]
    fn a_condition_is_judged_by_what_is_known() {
        let gate = |text: &str| Policy { gate: text.into(), ..Policy::default() };
        let facts = r#"{"battery": 80, "parked": true, "charging": false, "temperature": 21.5}"#;
        check(gate("battery > 40 && parked && !charging"), facts, Ok(None));
        check(gate("temperature < 20.0"), facts, Ok(Some(Gate::Condition)));
        check(gate("unheard_of > 1"), facts, Ok(Some(Gate::Condition)));
        check(gate("battery >"), facts, Err(()));
        check(gate("battery"), facts, Err(()));
        check(gate(&"(".repeat(1000)), facts, Err(()));
        check(gate(&format!("{}true{}", "(".repeat(NESTING_MAX), ")".repeat(NESTING_MAX))), facts, Ok(None));
    }

    #[test]
    fn a_download_waits_for_its_window_and_for_a_connection_that_costs_nothing() {
        let policy = Policy { download_window: "02:00-04:00".into(), ..Policy::default() };
        let desired = Desired { policy: Some(policy), ..Desired::default() };
        let held = before_download(&desired, &Facts::default(), NOON.parse().unwrap()).unwrap();
        assert_eq!(held, Some((Gate::Window, Some("2026-06-02T02:00:00Z".parse().unwrap()))));
        let desired = Desired { policy: Some(Policy::default()), ..Desired::default() };
        let metered = Facts { metered: Some(true), ..Facts::default() };
        let held = before_download(&desired, &metered, NOON.parse().unwrap()).unwrap();
        assert_eq!(held, Some((Gate::Metered, None)));
    }
}
