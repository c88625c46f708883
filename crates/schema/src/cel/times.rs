//! Parts of points in time and of spans.

use super::EvalError;
use super::calls::{Evaluated, Run, unfit};
use super::time::{Civil, Instant, zone_offset};
use super::value::Value;

const NANOS_PER_MILLI: i64 = 1_000_000;
const NANOS_PER_SECOND: i64 = 1_000_000_000;

pub(super) fn run(name: &str) -> Option<Run> {
    Some(match name {
        "getFullYear" => |args| part(args, |civil| civil.year, None),
        "getMonth" => |args| part(args, |civil| civil.month - 1, None),
        "getDate" => |args| part(args, |civil| civil.day, None),
        "getDayOfMonth" => |args| part(args, |civil| civil.day - 1, None),
        "getDayOfWeek" => |args| part(args, |civil| civil.weekday, None),
        "getDayOfYear" => |args| part(args, |civil| civil.day_of_year, None),
        "getHours" => |args| part(args, |civil| civil.hour, Some(3600 * NANOS_PER_SECOND)),
        "getMinutes" => |args| part(args, |civil| civil.minute, Some(60 * NANOS_PER_SECOND)),
        "getSeconds" => |args| part(args, |civil| civil.second, Some(NANOS_PER_SECOND)),
        "getMilliseconds" => milliseconds,
        _ => return None,
    })
}

/// A part of a date, or the whole units that a span has.
fn part<'a>(args: &[Value<'a>], of: fn(&Civil) -> i64, unit: Option<i64>) -> Evaluated<'a> {
    match (args, unit) {
        ([Value::Timestamp(time)], _) => Ok(Value::Int(of(&time.civil(0)))),
        ([Value::Timestamp(time), Value::String(zone)], _) => {
            Ok(Value::Int(of(&time.civil(offset(zone.as_str(), *time)?))))
        }
        ([Value::Duration(nanos)], Some(unit)) => Ok(Value::Int(nanos / unit)),
        _ => unfit(),
    }
}

fn milliseconds<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    match args {
        [Value::Timestamp(time)] => Ok(Value::Int(i64::from(time.nanos) / NANOS_PER_MILLI)),
        [Value::Timestamp(time), Value::String(zone)] => {
            offset(zone.as_str(), *time)?;
            Ok(Value::Int(i64::from(time.nanos) / NANOS_PER_MILLI))
        }
        [Value::Duration(nanos)] => Ok(Value::Int(nanos / NANOS_PER_MILLI)),
        _ => unfit(),
    }
}

fn offset(zone: &str, at: Instant) -> Result<i64, EvalError> {
    zone_offset(zone, at).map_err(EvalError::failed)
}
