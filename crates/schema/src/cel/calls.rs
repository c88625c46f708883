//! The functions themselves, by name. Those that are operators stand here.

use super::EvalError;
use super::equality::{compare, equal, same_key, same_place};
use super::reading::Reading;
use super::value::{List, Made, Map, Value};
use super::{authorizer, convert, lists, network, patterns, resources, strings, times};

pub(super) type Evaluated<'a> = Result<Value<'a>, EvalError>;

/// A function; its target is its first argument.
pub(super) type Run = for<'a> fn(&[Value<'a>]) -> Evaluated<'a>;

/// The most items of a list that is made of two.
const LIST_ITEMS_MAX: usize = 1 << 20;

/// The function of this name.
pub(super) fn run(name: &str) -> Option<Run> {
    let operator: Option<Run> = Some(match name {
        "!_" => not,
        "-_" => negate,
        "_+_" => add,
        "_-_" => subtract,
        "_*_" => multiply,
        "_/_" => divide,
        "_%_" => modulo,
        "_<_" => less,
        "_<=_" => less_or_equal,
        "_>_" => greater,
        "_>=_" => greater_or_equal,
        "@in" => is_in,
        "@not_strictly_false" => not_strictly_false,
        "cel.@mapInsert" => insert,
        "size" => size,
        "dyn" => same,
        "type" => type_of,
        "optional.of" => optional_of,
        "optional.none" => optional_none,
        "optional.ofNonZeroValue" => optional_of_something,
        "hasValue" => has_value,
        "value" => value,
        "optional.unwrap" | "unwrapOpt" => unwrap,
        _ => return others(name),
    });
    operator
}

fn others(name: &str) -> Option<Run> {
    convert::run(name)
        .or_else(|| strings::run(name))
        .or_else(|| lists::run(name))
        .or_else(|| times::run(name))
        .or_else(|| patterns::run(name))
        .or_else(|| network::run(name))
        .or_else(|| resources::run(name))
        .or_else(|| authorizer::run(name))
}

/// No function takes these.
pub(super) fn unfit<'a>() -> Evaluated<'a> {
    Err(EvalError::no_such_overload())
}

fn failed<'a>(message: &str) -> Evaluated<'a> {
    Err(EvalError::failed(message))
}

fn not<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    match args {
        [Value::Bool(value)] => Ok(Value::Bool(!value)),
        _ => unfit(),
    }
}

fn negate<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    match args {
        [Value::Int(number)] => whole(number.checked_neg()),
        [Value::Double(number)] => Ok(Value::Double(-number)),
        [Value::Duration(nanos)] => span(nanos.checked_neg()),
        _ => unfit(),
    }
}

fn whole<'a>(number: Option<i64>) -> Evaluated<'a> {
    number.map_or_else(|| failed("integer overflow"), |number| Ok(Value::Int(number)))
}

fn unsigned<'a>(number: Option<u64>) -> Evaluated<'a> {
    number.map_or_else(|| failed("unsigned integer overflow"), |number| Ok(Value::Uint(number)))
}

fn span<'a>(nanos: Option<i64>) -> Evaluated<'a> {
    nanos.map_or_else(|| failed("duration overflow"), |nanos| Ok(Value::Duration(nanos)))
}

fn time<'a>(time: Option<super::time::Instant>) -> Evaluated<'a> {
    time.map_or_else(|| failed("timestamp overflow"), |time| Ok(Value::Timestamp(time)))
}

pub(super) fn add<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    match args {
        [Value::Int(a), Value::Int(b)] => whole(a.checked_add(*b)),
        [Value::Uint(a), Value::Uint(b)] => unsigned(a.checked_add(*b)),
        [Value::Double(a), Value::Double(b)] => Ok(Value::Double(a + b)),
        [Value::String(a), Value::String(b)] => Ok(Value::text([a.as_str(), b.as_str()].concat())),
        [Value::Bytes(a), Value::Bytes(b)] => Ok(Value::Bytes([a.as_ref(), b.as_ref()].concat().into())),
        [Value::Duration(a), Value::Duration(b)] => span(a.checked_add(*b)),
        [Value::Timestamp(a), Value::Duration(b)] | [Value::Duration(b), Value::Timestamp(a)] => time(a.plus(*b)),
        [Value::List(a), Value::List(b)] => join(a, b),
        _ => unfit(),
    }
}

/// Two lists as one. Where order doesn't matter, what is there twice is there once, and the second wins.
fn join<'a>(a: &List<'a>, b: &List<'a>) -> Evaluated<'a> {
    if a.len() + b.len() > LIST_ITEMS_MAX {
        return Err(EvalError::CostExceeded);
    }
    let reading = a.unordered();
    let mut items = a.items()?;
    let Some(order) = reading.and_then(Reading::unordered) else {
        items.extend(b.items()?);
        return Ok(Value::list(items));
    };
    for item in b.items()? {
        let mut place = None;
        for (at, known) in items.iter().enumerate() {
            if same_place(order, known, &item)? {
                place = Some(at);
                break;
            }
        }
        match place {
            Some(place) => items[place] = item,
            None => items.push(item),
        }
    }
    Ok(Value::List(List::Items(Made::shared(items), reading)))
}

fn subtract<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    match args {
        [Value::Int(a), Value::Int(b)] => whole(a.checked_sub(*b)),
        [Value::Uint(a), Value::Uint(b)] => unsigned(a.checked_sub(*b)),
        [Value::Double(a), Value::Double(b)] => Ok(Value::Double(a - b)),
        [Value::Duration(a), Value::Duration(b)] => span(a.checked_sub(*b)),
        [Value::Timestamp(a), Value::Timestamp(b)] => span(a.since(*b)),
        [Value::Timestamp(a), Value::Duration(b)] => time(b.checked_neg().and_then(|nanos| a.plus(nanos))),
        _ => unfit(),
    }
}

fn multiply<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    match args {
        [Value::Int(a), Value::Int(b)] => whole(a.checked_mul(*b)),
        [Value::Uint(a), Value::Uint(b)] => unsigned(a.checked_mul(*b)),
        [Value::Double(a), Value::Double(b)] => Ok(Value::Double(a * b)),
        _ => unfit(),
    }
}

fn divide<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    match args {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => failed("division by zero"),
        [Value::Int(a), Value::Int(b)] => whole(a.checked_div(*b)),
        [Value::Uint(a), Value::Uint(b)] => Ok(Value::Uint(a / b)),
        [Value::Double(a), Value::Double(b)] => Ok(Value::Double(a / b)),
        _ => unfit(),
    }
}

fn modulo<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    match args {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => failed("modulus by zero"),
        [Value::Int(a), Value::Int(b)] => whole(a.checked_rem(*b)),
        [Value::Uint(a), Value::Uint(b)] => Ok(Value::Uint(a % b)),
        _ => unfit(),
    }
}

fn ordered<'a>(args: &[Value<'a>], fits: fn(std::cmp::Ordering) -> bool) -> Evaluated<'a> {
    let [a, b] = args else { return unfit() };
    let number = |value: &Value<'_>| matches!(value, Value::Int(_) | Value::Uint(_) | Value::Double(_));
    match compare(a, b) {
        Some(order) => Ok(Value::Bool(fits(order))),
        None if number(a) && number(b) => failed("NaN values cannot be ordered"),
        None => unfit(),
    }
}

fn less<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    ordered(args, std::cmp::Ordering::is_lt)
}

fn less_or_equal<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    ordered(args, std::cmp::Ordering::is_le)
}

fn greater<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    ordered(args, std::cmp::Ordering::is_gt)
}

fn greater_or_equal<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    ordered(args, std::cmp::Ordering::is_ge)
}

fn is_in<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    match args {
        [item, Value::List(list)] => contains(list, item).map(Value::Bool),
        [key, Value::Map(map)] => Ok(Value::Bool(map.find(key)?.is_some())),
        _ => unfit(),
    }
}

/// Whether an item is in a list. One that can't be compared only matters if none is equal.
pub(super) fn contains(list: &List<'_>, item: &Value<'_>) -> Result<bool, EvalError> {
    let mut failed = None;
    for place in 0..list.len() {
        match list.get(place).and_then(|known| equal(&known, item)) {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    failed.map_or(Ok(false), Err)
}

fn not_strictly_false<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    Ok(Value::Bool(!matches!(args, [Value::Bool(false)])))
}

fn insert<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    let (map, more) = match args {
        [Value::Map(map), key, value] => (map, vec![(key.clone(), value.clone())]),
        [Value::Map(map), Value::Map(more)] => (map, entries(more)?),
        _ => return unfit(),
    };
    let mut found = entries(map)?;
    for (key, value) in more {
        if found.iter().any(|(known, _)| same_key(known, &key)) {
            let shown = key.as_str().map_or_else(|| key.to_string(), str::to_owned);
            return failed(&format!("insert failed: key {shown} already exists"));
        }
        found.push((key, value));
    }
    Ok(Value::map(found))
}

fn entries<'a>(map: &Map<'a>) -> Result<Vec<(Value<'a>, Value<'a>)>, EvalError> {
    let mut found = Vec::with_capacity(map.len());
    for key in map.keys() {
        if let Some(value) = map.find(&key)? {
            found.push((key, value));
        }
    }
    Ok(found)
}

fn size<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    match args {
        [value @ (Value::String(_) | Value::Bytes(_) | Value::List(_) | Value::Map(_))] => {
            whole(i64::try_from(value.size()).ok())
        }
        _ => unfit(),
    }
}

fn same<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    args.first().cloned().map_or_else(unfit, Ok)
}

fn type_of<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    args.first().map_or_else(unfit, |value| Ok(Value::Type(value.type_name().into())))
}

fn optional_of<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    args.first().map_or_else(unfit, |value| Ok(Value::some(value.clone())))
}

fn optional_none<'a>(_args: &[Value<'a>]) -> Evaluated<'a> {
    Ok(Value::Optional(None))
}

fn optional_of_something<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    let [value] = args else { return unfit() };
    let nothing = match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Int(number) => *number == 0,
        Value::Uint(number) => *number == 0,
        Value::Double(number) => *number == 0.0,
        Value::Duration(nanos) => *nanos == 0,
        Value::Optional(inner) => inner.is_none(),
        Value::String(_) | Value::Bytes(_) => value.size() == 0,
        // Those of the object are never taken for nothing.
        Value::List(List::Items(items, None)) => items.is_empty(),
        Value::Map(Map::Entries(entries)) => entries.is_empty(),
        _ => false,
    };
    Ok(if nothing { Value::Optional(None) } else { Value::some(value.clone()) })
}

fn has_value<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    match args {
        [Value::Optional(inner)] => Ok(Value::Bool(inner.is_some())),
        _ => unfit(),
    }
}

fn value<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    match args {
        [Value::Optional(Some(inner))] => Ok(Value::clone(inner)),
        [Value::Optional(None)] => failed("optional.none() dereference"),
        _ => unfit(),
    }
}

fn unwrap<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    let [Value::List(list)] = args else { return unfit() };
    let mut found = Vec::new();
    for item in list.items()? {
        match item {
            Value::Optional(inner) => found.extend(inner.map(|inner| Value::clone(&inner))),
            other => return failed(&format!("value {other} is not optional")),
        }
    }
    Ok(Value::list(found))
}
