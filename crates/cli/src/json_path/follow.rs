//! Follows the steps of a template through an object.

use serde_json::Value;

use super::{Filter, Part, Slice, Step};

/// Most values that one step may find: a path with many wildcards ends instead of growing.
const FOUND_MAX: usize = 1_000_000;

pub(super) fn parts(parts: &[Part], object: &Value) -> Result<Vec<Vec<Value>>, String> {
    let mut found = Vec::new();
    for part in parts {
        match part {
            Part::Text(text) => found.push(vec![text.clone().into()]),
            Part::Steps(list) => found.push(steps(list, vec![object.clone()])?),
            Part::Range(list, inner) => {
                for value in steps(list, vec![object.clone()])? {
                    found.extend(self::parts(inner, &value)?);
                }
            }
        }
    }
    Ok(found)
}

fn steps(list: &[Step], mut values: Vec<Value>) -> Result<Vec<Value>, String> {
    for step in list {
        values = follow(step, values)?;
        if values.len() > FOUND_MAX {
            return Err(format!("it finds more than {FOUND_MAX} values"));
        }
    }
    Ok(values)
}

fn follow(step: &Step, values: Vec<Value>) -> Result<Vec<Value>, String> {
    let mut found = Vec::new();
    match step {
        Step::Text(text) => found.push(text.clone().into()),
        Step::Literal(literal) => found.extend(values.iter().map(|_| literal.clone())),
        Step::Field(name) if name.is_empty() => found = values,
        Step::Field(name) => found.extend(values.iter().filter_map(|value| value.get(name)).cloned()),
        Step::All => found.extend(values.iter().flat_map(children).cloned()),
        Step::Everything => values.iter().for_each(|value| everything(value, &mut found)),
        Step::Slice(slice) => {
            for value in values.iter().filter(|value| !value.is_null()) {
                let items = value.as_array().ok_or_else(|| format!("{} is not array or slice", kind(value)))?;
                found.extend(slice.of(items)?.cloned());
            }
        }
        Step::Filter(filter) => {
            for value in &values {
                let items = value.as_array();
                let items = items.ok_or_else(|| {
                    format!("{} is not array or slice and cannot be filtered", crate::go::text(value))
                })?;
                for item in items {
                    if filter.takes(item)? {
                        found.push(item.clone());
                    }
                }
            }
        }
        Step::Union(lists) => {
            for list in lists {
                found.extend(steps(list, values.clone())?);
            }
        }
    }
    Ok(found)
}

impl Slice {
    fn of<'a>(&self, items: &'a [Value]) -> Result<impl Iterator<Item = &'a Value> + use<'a>, String> {
        let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
        let from_end = |index: i64| if index < 0 { index + length } else { index };
        let from = from_end(self.from.unwrap_or(0));
        let to = if self.single { from + 1 } else { from_end(self.to.unwrap_or(length)) };
        let outside = |index: i64| format!("array index out of bounds: index {index}, length {length}");
        let step = self.step.unwrap_or(1);
        if from != to {
            if from >= length || from < 0 {
                return Err(outside(from));
            }
            if to > length || to < 0 {
                return Err(outside(to - 1));
            }
            if from > to {
                return Err(format!("starting index {from} is greater than ending index {to}"));
            }
        }
        if step <= 0 {
            return Err("step must be > 0".into());
        }
        let place = |index: i64| usize::try_from(index).unwrap_or(0);
        let taken = if from == to { &items[..0] } else { &items[place(from)..place(to)] };
        Ok(taken.iter().step_by(place(step)))
    }
}

impl Filter {
    fn takes(&self, item: &Value) -> Result<bool, String> {
        let mut left = steps(&self.left, vec![item.clone()])?;
        let Some((sign, right)) = &self.test else { return Ok(!left.is_empty()) };
        let mut right = steps(right, vec![item.clone()])?;
        if left.len() > 1 || right.len() > 1 {
            return Err("can only compare one element at a time".into());
        }
        let (Some(left), Some(right)) = (left.pop(), right.pop()) else { return Ok(false) };
        holds(sign, &left, &right)
    }
}

fn holds(sign: &str, left: &Value, right: &Value) -> Result<bool, String> {
    let order = match (left, right) {
        (Value::Number(a), Value::Number(b)) => a.as_f64().partial_cmp(&b.as_f64()),
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        _ => return Err("incompatible types for comparison".into()),
    };
    Ok(order.is_some_and(|order| match sign {
        "==" => order.is_eq(),
        "!=" => order.is_ne(),
        "<" => order.is_lt(),
        "<=" => order.is_le(),
        ">" => order.is_gt(),
        _ => order.is_ge(),
    }))
}

fn children(value: &Value) -> Box<dyn Iterator<Item = &Value> + '_> {
    match value {
        Value::Array(items) => Box::new(items.iter()),
        Value::Object(fields) => Box::new(fields.values()),
        _ => Box::new(std::iter::empty()),
    }
}

fn everything(value: &Value, found: &mut Vec<Value>) {
    if found.len() <= FOUND_MAX && children(value).next().is_some() {
        found.push(value.clone());
        children(value).for_each(|child| everything(child, found));
    }
}

/// What Go calls the type of a value.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nil",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}
