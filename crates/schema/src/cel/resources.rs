//! Quantities, versions and named formats.

use std::cmp::Ordering;

use setpoint_api::Quantity;
use setpoint_api::quantity::Format;

use super::EvalError;
use super::calls::{Evaluated, Run, unfit};
use super::formats;
use super::semver::Semver;
use super::value::{Special, Value};

pub(super) fn run(name: &str) -> Option<Run> {
    Some(match name {
        "quantity" => quantity,
        "isQuantity" => is_quantity,
        "isInteger" => |args| of_quantity(args, |quantity| Ok(Value::Bool(quantity.as_i64().is_some()))),
        "asInteger" => |args| of_quantity(args, as_integer),
        "asApproximateFloat" => |args| of_quantity(args, |quantity| Ok(Value::Double(quantity.as_f64()))),
        "sign" => |args| of_quantity(args, |quantity| Ok(Value::Int(sign(quantity)))),
        "add" => |args| changed(args, Quantity::add),
        "sub" => |args| changed(args, Quantity::sub),
        "isGreaterThan" => |args| compared(args, |order| Value::Bool(order.is_gt())),
        "isLessThan" => |args| compared(args, |order| Value::Bool(order.is_lt())),
        "compareTo" => |args| compared(args, |order| Value::Int(order as i64)),
        "semver" => semver,
        "isSemver" => is_semver,
        "major" => |args| of_version(args, |version| version.major),
        "minor" => |args| of_version(args, |version| version.minor),
        "patch" => |args| of_version(args, |version| version.patch),
        "format.named" => named,
        "validate" => validate,
        _ => return formats::constant(name.strip_prefix("format.")?),
    })
}

fn quantity<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    match args {
        [Value::String(text)] => match Quantity::parse(text.as_str()) {
            Ok(quantity) => Ok(Value::special(Special::Quantity(quantity))),
            Err(error) => Err(EvalError::failed(error.to_string())),
        },
        _ => unfit(),
    }
}

fn is_quantity<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    match args {
        [Value::String(text)] => Ok(Value::Bool(Quantity::parse(text.as_str()).is_ok())),
        _ => unfit(),
    }
}

fn of_quantity<'a>(args: &[Value<'a>], part: fn(&Quantity) -> Evaluated<'static>) -> Evaluated<'a> {
    match args {
        [Value::Special(special)] => match &**special {
            Special::Quantity(quantity) => part(quantity),
            _ => unfit(),
        },
        _ => unfit(),
    }
}

fn as_integer(quantity: &Quantity) -> Evaluated<'static> {
    quantity.as_i64().map(Value::Int).ok_or_else(|| EvalError::failed("cannot convert value to integer"))
}

fn sign(quantity: &Quantity) -> i64 {
    match (quantity.is_zero(), quantity.is_negative()) {
        (true, _) => 0,
        (false, true) => -1,
        (false, false) => 1,
    }
}

fn changed<'a>(args: &[Value<'a>], change: fn(&mut Quantity, &Quantity)) -> Evaluated<'a> {
    let [Value::Special(special), by] = args else { return unfit() };
    let Special::Quantity(quantity) = &**special else { return unfit() };
    let mut quantity = quantity.clone();
    match by {
        Value::Int(by) => change(&mut quantity, &Quantity::new(*by, Format::DecimalExponent)),
        Value::Special(by) => match &**by {
            Special::Quantity(by) => change(&mut quantity, by),
            _ => return unfit(),
        },
        _ => return unfit(),
    }
    Ok(Value::special(Special::Quantity(quantity)))
}

fn compared<'a>(args: &[Value<'a>], gives: fn(Ordering) -> Value<'static>) -> Evaluated<'a> {
    let [Value::Special(a), Value::Special(b)] = args else { return unfit() };
    match (&**a, &**b) {
        (Special::Quantity(a), Special::Quantity(b)) => Ok(gives(a.cmp(b))),
        (Special::Semver(a), Special::Semver(b)) => Ok(gives(a.compare(b))),
        _ => unfit(),
    }
}

fn version(args: &[Value<'_>]) -> Option<Result<Semver, String>> {
    match args {
        [Value::String(text)] => Some(Semver::parse(text.as_str(), false)),
        [Value::String(text), Value::Bool(sloppy)] => Some(Semver::parse(text.as_str(), *sloppy)),
        _ => None,
    }
}

fn semver<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    match version(args) {
        Some(Ok(version)) => Ok(Value::special(Special::Semver(version))),
        Some(Err(why)) => Err(EvalError::failed(why)),
        None => unfit(),
    }
}

fn is_semver<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    version(args).map_or_else(unfit, |version| Ok(Value::Bool(version.is_ok())))
}

fn of_version<'a>(args: &[Value<'a>], part: fn(&Semver) -> u64) -> Evaluated<'a> {
    let [Value::Special(special)] = args else { return unfit() };
    match &**special {
        Special::Semver(version) => Ok(Value::Int(i64::try_from(part(version)).unwrap_or(i64::MAX))),
        _ => unfit(),
    }
}

fn named<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    let [Value::String(name)] = args else { return unfit() };
    match formats::find(name.as_str()) {
        Some(name) => Ok(Value::some(Value::special(Special::Format(name)))),
        None => Ok(Value::Optional(None)),
    }
}

fn validate<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    let [Value::Special(special), Value::String(text)] = args else { return unfit() };
    let Special::Format(name) = &**special else { return unfit() };
    let wrong = formats::complaints(name, text.as_str());
    Ok(match wrong.is_empty() {
        true => Value::Optional(None),
        false => Value::some(Value::list(wrong.into_iter().map(Value::text).collect())),
    })
}
