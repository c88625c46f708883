//! Regular expressions.

use regex::Regex;

use super::EvalError;
use super::calls::{Evaluated, Run, unfit};
use super::value::Value;

/// The most memory that a compiled pattern may take.
const PATTERN_BYTES_MAX: usize = 1 << 20;

pub(super) fn run(name: &str) -> Option<Run> {
    Some(match name {
        "matches" => matches,
        "find" => find,
        "findAll" => find_all,
        _ => return None,
    })
}

/// A pattern made ready.
pub(super) fn compile(pattern: &str) -> Result<Regex, EvalError> {
    let compiled = regex::RegexBuilder::new(pattern).size_limit(PATTERN_BYTES_MAX).build();
    compiled.map_err(|_| EvalError::failed(complaint(pattern)))
}

fn complaint(pattern: &str) -> String {
    crate::builtin::apiextensions::pattern::complaint(pattern).unwrap_or_else(|| "expression is too large".to_owned())
}

fn matches<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    match args {
        [Value::String(text), Value::String(pattern)] => {
            Ok(Value::Bool(compile(pattern.as_str())?.is_match(text.as_str())))
        }
        _ => unfit(),
    }
}

fn illegal(error: EvalError) -> EvalError {
    EvalError::failed(format!("Illegal regex: {error}"))
}

fn find<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    let [Value::String(text), Value::String(pattern)] = args else { return unfit() };
    let pattern = compile(pattern.as_str()).map_err(illegal)?;
    Ok(Value::text(pattern.find(text.as_str()).map_or("", |found| found.as_str())))
}

fn find_all<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    let (text, pattern, most) = match args {
        [Value::String(text), Value::String(pattern)] => (text, pattern, -1),
        [Value::String(text), Value::String(pattern), Value::Int(most)] => (text, pattern, *most),
        _ => return unfit(),
    };
    let pattern = compile(pattern.as_str()).map_err(illegal)?;
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let found = pattern.find_iter(text.as_str()).take(most).map(|found| Value::text(found.as_str()));
    Ok(Value::list(found.collect()))
}
