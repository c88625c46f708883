//! What expressions do with regular expressions.

use super::EvalError;
use super::calls::{Evaluated, Run, unfit};
use super::value::Value;
use crate::regexp::Regexp;

pub(super) fn run(name: &str) -> Option<Run> {
    Some(match name {
        "matches" => matches,
        "find" => find,
        "findAll" => find_all,
        _ => return None,
    })
}

/// A pattern made ready.
pub(super) fn compile(pattern: &str) -> Result<Regexp, EvalError> {
    Regexp::new(pattern).map_err(EvalError::failed)
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
    Ok(Value::text(pattern.find(text.as_str()).unwrap_or("")))
}

fn find_all<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    let (text, pattern, most) = match args {
        [Value::String(text), Value::String(pattern)] => (text, pattern, -1),
        [Value::String(text), Value::String(pattern), Value::Int(most)] => (text, pattern, *most),
        _ => return unfit(),
    };
    let pattern = compile(pattern.as_str()).map_err(illegal)?;
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    Ok(Value::list(pattern.find_all(text.as_str(), most).into_iter().map(Value::text).collect()))
}
