//! What a person reads when something failed: what, on what, why, and what to do next.

use std::fmt;
use std::io::Write;
use std::process::ExitCode;

use serde_json::{Value, json};

/// Why a command ended without doing what it was asked.
#[derive(Debug)]
pub struct Failure {
    text: String,
    hint: Option<String>,
    code: u8,
    /// Whether the answer on standard output tells of it already.
    is_answered: bool,
}

/// The asked thing failed or is not so: what kubectl ends with in every such case.
pub const FAILED: u8 = 1;
/// Wrong usage.
pub const USAGE: u8 = 2;
/// The API server can't be reached, or doesn't know who asks.
pub const UNREACHABLE: u8 = 3;
/// Who asks may not.
pub const FORBIDDEN: u8 = 4;
/// Somebody else changed the same thing.
pub const CONFLICT: u8 = 5;
/// Somebody ended it: what a shell says of a process that SIGINT killed.
pub const INTERRUPTED: u8 = 130;

impl Failure {
    /// The asked thing failed.
    pub fn new(what: impl fmt::Display, why: impl fmt::Display) -> Failure {
        Failure::said(format!("error: {what}: {why}"))
    }

    /// What was asked can't be.
    pub fn usage(what: impl fmt::Display, why: impl fmt::Display) -> Failure {
        Failure { code: USAGE, ..Failure::new(what, why) }
    }

    /// Ended before its end, with what is so now; nothing for what has no other end.
    pub fn interrupted(left: &str) -> Failure {
        let text = if left.is_empty() { String::new() } else { format!("interrupted: {left}") };
        Failure { code: INTERRUPTED, ..Failure::said(text) }
    }

    /// In words that are known already, such as kubectl's.
    pub fn said(text: impl Into<String>) -> Failure {
        Failure { text: text.into(), hint: None, code: FAILED, is_answered: false }
    }

    /// `error: ` and what is wrong.
    pub fn error(text: impl fmt::Display) -> Failure {
        Failure::said(format!("error: {text}"))
    }

    /// A file or a folder can't be used; what to do follows from why.
    pub fn of_file(what: impl fmt::Display, error: &std::io::Error) -> Failure {
        use std::io::ErrorKind;
        let hint = match error.kind() {
            ErrorKind::NotFound => "name one that is there: `ls -l` shows what is",
            ErrorKind::PermissionDenied => "check who may read and write it: `ls -ld`",
            ErrorKind::AlreadyExists => "choose another name, or remove what is there",
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "make room on the disk: `df -h`",
            ErrorKind::ReadOnlyFilesystem => "choose a place that can be written",
            ErrorKind::NotADirectory | ErrorKind::IsADirectory => "a file stands where a folder should, or the reverse",
            _ => "`setpoint doctor` looks at the data directory and the disk",
        };
        Failure::new(what, error).hint(hint)
    }

    /// Several things failed: all are told, each once, with the first hint.
    pub fn all(failures: Vec<Failure>) -> Result<(), Failure> {
        let mut failures = failures.into_iter();
        let Some(mut first) = failures.next() else { return Ok(()) };
        for next in failures {
            if first.text.lines().all(|line| line != next.text) {
                first.text = format!("{}\n{}", first.text, next.text);
            }
            first.hint = first.hint.or(next.hint);
        }
        Err(first)
    }

    /// Adds what to do next.
    pub fn hint(self, hint: impl Into<String>) -> Failure {
        Failure { hint: Some(hint.into()), ..self }
    }

    /// Whether this is what to do next.
    pub fn advises(&self, hint: &str) -> bool {
        self.hint.as_deref() == Some(hint)
    }

    /// Another exit code.
    pub fn with_code(self, code: u8) -> Failure {
        Failure { code, ..self }
    }

    /// With the exit code that kubectl has for it: 1, but for what was interrupted.
    pub fn as_kubectl_ends(self) -> Failure {
        if self.code == INTERRUPTED { self } else { self.with_code(FAILED) }
    }

    /// Told of by the answer already.
    pub fn answered(self) -> Failure {
        Failure { is_answered: true, ..self }
    }

    /// Whether programs have an answer that tells of it.
    pub fn is_answered(&self) -> bool {
        self.is_answered
    }

    /// Whether there is nothing to say.
    pub fn is_silent(&self) -> bool {
        self.text.is_empty()
    }

    /// For programs: a `Status`, as servers answer.
    pub fn status(&self) -> Value {
        let message = self.text.strip_prefix("error: ").unwrap_or(&self.text);
        let mut status = json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "message": message});
        match self.code {
            FORBIDDEN => status["reason"] = "Forbidden".into(),
            CONFLICT => status["reason"] = "Conflict".into(),
            _ => {}
        }
        if let Some(hint) = &self.hint {
            status["details"] = json!({"causes": [{"reason": "Hint", "message": hint}]});
        }
        status
    }

    /// The exit code.
    pub fn code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        match &self.hint {
            Some(hint) => write!(f, "\n  hint: {hint}"),
            None => Ok(()),
        }
    }
}

/// Prints a line of the answer. A reader that has gone away is no reason to stop.
pub fn say(text: &str) {
    print(&format!("{text}\n"));
}

/// Prints a part of the answer as it is.
pub fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Prints a line that is no part of the answer.
pub fn note(text: &str) {
    // Where nobody can read it, nothing is lost.
    let _ = writeln!(std::io::stderr(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_told_with_what_to_do_next() {
        let failure = Failure::new("can't open the data in /a", "it is in use").hint("stop the other one");
        assert_eq!(failure.to_string(), "error: can't open the data in /a: it is in use\n  hint: stop the other one");
    }

    #[test]
    fn programs_get_a_failure_as_a_status() {
        let failure = Failure::error("deploy is forbidden").hint("ask somebody").with_code(FORBIDDEN);
        assert_eq!(
            failure.status(),
            json!({
                "apiVersion": "v1", "kind": "Status", "status": "Failure", "message": "deploy is forbidden",
                "reason": "Forbidden", "details": {"causes": [{"reason": "Hint", "message": "ask somebody"}]},
            })
        );
    }

    #[test]
    fn what_is_interrupted_is_never_taken_for_what_failed() {
        let ended = |failure: Failure| failure.as_kubectl_ends().code();
        assert_eq!(ended(Failure::interrupted("nothing was changed")), ExitCode::from(INTERRUPTED));
        assert_eq!(ended(Failure::error("no").with_code(FORBIDDEN)), ExitCode::from(FAILED));
        assert!(Failure::interrupted("").is_silent());
    }

    #[test]
    fn several_failures_are_told_once_each() {
        let failures = ["a", "b", "a"].map(|text| Failure::error(text).hint(text)).into_iter().collect();
        assert_eq!(Failure::all(failures).unwrap_err().to_string(), "error: a\nerror: b\n  hint: a");
        assert!(Failure::all(Vec::new()).is_ok());
    }
}
