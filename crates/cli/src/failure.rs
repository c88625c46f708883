//! What a person reads when something failed: what, on what, why, and what to do next.

use std::fmt;
use std::io::Write;
use std::process::ExitCode;

/// Why a command ended without doing what it was asked.
#[derive(Debug)]
pub struct Failure {
    text: String,
    hint: Option<String>,
    code: u8,
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

impl Failure {
    /// The asked thing failed.
    pub fn new(what: impl fmt::Display, why: impl fmt::Display) -> Failure {
        Failure::said(format!("error: {what}: {why}"))
    }

    /// What was asked can't be.
    pub fn usage(what: impl fmt::Display, why: impl fmt::Display) -> Failure {
        Failure { code: USAGE, ..Failure::new(what, why) }
    }

    /// In words that are known already, such as kubectl's.
    pub fn said(text: impl Into<String>) -> Failure {
        Failure { text: text.into(), hint: None, code: FAILED }
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

    /// Another exit code.
    pub fn with_code(self, code: u8) -> Failure {
        Failure { code, ..self }
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
    fn several_failures_are_told_once_each() {
        let failures = ["a", "b", "a"].map(|text| Failure::error(text).hint(text)).into_iter().collect();
        assert_eq!(Failure::all(failures).unwrap_err().to_string(), "error: a\nerror: b\n  hint: a");
        assert!(Failure::all(Vec::new()).is_ok());
    }
}
