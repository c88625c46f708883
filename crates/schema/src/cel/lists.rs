//! Functions of lists.

use std::cmp::Ordering;

use super::EvalError;
use super::calls::{Evaluated, Run, add, contains, unfit};
use super::equality::{compare, equal};
use super::value::{List, Value};

/// The most items of a list that is made from nothing.
const RANGE_MAX: i64 = 1 << 20;
/// The most items of a list that is made of lists.
const ITEMS_MAX: usize = 1 << 20;

pub(super) fn run(name: &str) -> Option<Run> {
    Some(match name {
        "isSorted" => is_sorted,
        "sum" => sum,
        "min" => min,
        "max" => max,
        "first" => first,
        "last" => last,
        "slice" => slice,
        "flatten" => flatten,
        "reverse" => reverse,
        "distinct" => distinct,
        "sort" => sort,
        "@sortByAssociatedKeys" => sort_by_keys,
        "lists.range" => range,
        "sets.contains" => sets_contains,
        "sets.equivalent" => sets_equivalent,
        "sets.intersects" => sets_intersects,
        _ => return None,
    })
}

fn failed<'a>(message: impl Into<String>) -> Evaluated<'a> {
    Err(EvalError::failed(message))
}

/// The place of the first or last item that is equal.
pub(super) fn index_of<'a>(list: &List<'a>, item: &Value<'a>, last: bool) -> Evaluated<'a> {
    let mut found = -1;
    for place in 0..list.len() {
        if matches!(list.get(place).and_then(|known| equal(&known, item)), Ok(true)) {
            found = i64::try_from(place).unwrap_or(i64::MAX);
            if !last {
                break;
            }
        }
    }
    Ok(Value::Int(found))
}

fn is_sorted<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    let [Value::List(list)] = args else { return unfit() };
    let items = list.items()?;
    let sorted = items.windows(2).all(|pair| compare(&pair[0], &pair[1]) != Some(Ordering::Greater));
    Ok(Value::Bool(sorted))
}

fn sum<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    let [Value::List(list)] = args else { return unfit() };
    let mut total: Option<Value<'a>> = None;
    for item in list.items()? {
        total = Some(match total {
            Some(total) => add(&[total, item])?,
            None => item,
        });
    }
    Ok(total.unwrap_or(Value::Int(0)))
}

fn min<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    extreme(args, Ordering::Less, "min")
}

fn max<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    extreme(args, Ordering::Greater, "max")
}

fn extreme<'a>(args: &[Value<'a>], wanted: Ordering, name: &str) -> Evaluated<'a> {
    let [Value::List(list)] = args else { return unfit() };
    let mut found: Option<Value<'a>> = None;
    for item in list.items()? {
        found = match found {
            Some(best) if compare(&item, &best) != Some(wanted) => Some(best),
            _ => Some(item),
        };
    }
    found.map_or_else(|| failed(format!("{name} called on empty list")), Ok)
}

fn first<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    match args {
        [Value::List(list)] if list.is_empty() => Ok(Value::Optional(None)),
        [Value::List(list)] => list.get(0).map(Value::some),
        _ => unfit(),
    }
}

fn last<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    match args {
        [Value::List(list)] if list.is_empty() => Ok(Value::Optional(None)),
        [Value::List(list)] => list.get(list.len() - 1).map(Value::some),
        _ => unfit(),
    }
}

fn slice<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    let [Value::List(list), Value::Int(start), Value::Int(end)] = args else { return unfit() };
    let (Ok(from), Ok(to)) = (usize::try_from(*start), usize::try_from(*end)) else {
        return failed(format!("cannot slice({start}, {end}), negative indexes not supported"));
    };
    if from > to {
        return failed(format!("cannot slice({start}, {end}), start index must be less than or equal to end index"));
    }
    if to > list.len() {
        return failed(format!("cannot slice({start}, {end}), list is length {}", list.len()));
    }
    Ok(Value::list((from..to).map(|place| list.get(place)).collect::<Result<_, _>>()?))
}

fn flatten<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    let (list, depth) = match args {
        [Value::List(list)] => (list, 1),
        [Value::List(list), Value::Int(depth)] => (list, *depth),
        _ => return unfit(),
    };
    if depth < 0 {
        return failed("level must be non-negative");
    }
    let mut items = Vec::new();
    flatten_into(list, depth, &mut items)?;
    Ok(Value::list(items))
}

fn flatten_into<'a>(list: &List<'a>, depth: i64, items: &mut Vec<Value<'a>>) -> Result<(), EvalError> {
    for item in list.items()? {
        match item {
            Value::List(inner) if depth > 0 => flatten_into(&inner, depth - 1, items)?,
            other => items.push(other),
        }
        if items.len() > ITEMS_MAX {
            return Err(EvalError::CostExceeded);
        }
    }
    Ok(())
}

fn reverse<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    let [Value::List(list)] = args else { return unfit() };
    let mut items = list.items()?;
    items.reverse();
    Ok(Value::list(items))
}

fn distinct<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    let [Value::List(list)] = args else { return unfit() };
    let mut found: Vec<Value<'a>> = Vec::new();
    for item in list.items()? {
        if !found.iter().any(|known| equal(&item, known).unwrap_or(false)) {
            found.push(item);
        }
    }
    Ok(Value::list(found))
}

fn sort<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    let [Value::List(list)] = args else { return unfit() };
    let items = list.items()?;
    sorted(items.clone(), items)
}

fn sort_by_keys<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    let [Value::List(list), Value::List(keys)] = args else { return unfit() };
    if list.len() != keys.len() {
        let message = format!(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got {} and {} \
             elements respectively",
            list.len(),
            keys.len()
        );
        return failed(message);
    }
    sorted(list.items()?, keys.items()?)
}

fn sorted<'a>(items: Vec<Value<'a>>, keys: Vec<Value<'a>>) -> Evaluated<'a> {
    if let Some(first) = keys.first() {
        if compare(first, first).is_none() {
            return failed("list elements must be comparable");
        }
        if keys.iter().any(|key| key.type_name() != first.type_name()) {
            return failed("list elements must have the same type");
        }
    }
    let mut pairs: Vec<_> = keys.into_iter().zip(items).collect();
    pairs.sort_by(|a, b| compare(&a.0, &b.0).unwrap_or(Ordering::Equal));
    Ok(Value::list(pairs.into_iter().map(|(_, item)| item).collect()))
}

fn range<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    match args {
        [Value::Int(count)] if *count > RANGE_MAX => Err(EvalError::CostExceeded),
        [Value::Int(count)] => Ok(Value::list((0..*count).map(Value::Int).collect())),
        _ => unfit(),
    }
}

fn sets_contains<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    let [Value::List(list), Value::List(items)] = args else { return unfit() };
    all_in(items, list).map(Value::Bool)
}

fn all_in(items: &List<'_>, list: &List<'_>) -> Result<bool, EvalError> {
    for item in items.items()? {
        if !contains(list, &item)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn sets_equivalent<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    let [Value::List(a), Value::List(b)] = args else { return unfit() };
    Ok(Value::Bool(all_in(a, b)? && all_in(b, a)?))
}

fn sets_intersects<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    let [Value::List(a), Value::List(b)] = args else { return unfit() };
    for item in a.items()? {
        if contains(b, &item)? {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}
