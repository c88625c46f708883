//! What a person reads when something failed: what, on what, why, and what to do next.

use std::fmt;
use std::io::Write;
use std::process::ExitCode;

/// Why a command ended without doing what it was asked.
#[derive(Debug)]
pub struct Failure {
    what: String,
    why: String,
    hint: Option<String>,
    code: u8,
}

impl Failure {
    /// The asked thing failed.
    pub fn new(what: impl Into<String>, why: impl fmt::Display) -> Failure {
        Failure { what: what.into(), why: why.to_string(), hint: None, code: 1 }
    }

    /// What was asked can't be.
    pub fn usage(what: impl Into<String>, why: impl fmt::Display) -> Failure {
        Failure { code: 2, ..Failure::new(what, why) }
    }

    /// Adds what to do next.
    pub fn hint(self, hint: impl Into<String>) -> Failure {
        Failure { hint: Some(hint.into()), ..self }
    }

    /// 1 for failed, 2 for wrong usage.
    pub fn code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}: {}", self.what, self.why)?;
        match &self.hint {
            Some(hint) => write!(f, "\n  hint: {hint}"),
            None => Ok(()),
        }
    }
}

/// Prints a line of the answer. A reader that has gone away is no reason to stop.
pub fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}
