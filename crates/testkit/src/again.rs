//! One run again: the variables that name it, and the line that sets them.

use std::fmt;
use std::str::FromStr;

use crate::Plan;

/// Names the faults to run: `SETPOINT_FAULT=crash-after-write:3`.
const FAULT: &str = "SETPOINT_FAULT";

/// The seed to run with.
const SEED: &str = "SETPOINT_SEED";

/// The seed that the environment asks for.
pub(crate) fn seed() -> Option<u64> {
    asked(SEED, |_| "must be a whole number".to_owned())
}

/// The faults that the environment asks for.
pub(crate) fn plan() -> Option<Plan> {
    asked(FAULT, |why: String| why)
}

fn asked<T: FromStr>(variable: &str, why: impl Fn(T::Err) -> String) -> Option<T> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|error| panic!("{variable}: {}", why(error))))
}

/// How to run one thing again.
pub(crate) struct Again {
    pub(crate) seed: u64,
    pub(crate) plan: Plan,
    pub(crate) test: &'static str,
}

impl fmt::Display for Again {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Again { seed, plan, test } = self;
        // Cargo says whose test it is.
        let package = std::env::var("CARGO_PKG_NAME").map_or(String::new(), |package| format!("-p {package} "));
        write!(f, "run it again: {SEED}={seed} {FAULT}={plan} cargo test {package}{test} -- --nocapture")
    }
}
