//! Evaluating: every step counts what it costs, and the expression ends when it has cost too much.

use std::borrow::Cow;
use std::sync::Arc;

use super::cost::{self, Cost};
use super::equality::equal;
use super::plan::{Chain, Fold, Key, Link, Plan, Root, Step};
use super::value::{List, Text, Value, Weighed};
use super::{Bindings, EvalError};

type Evaluated<'a> = Result<Value<'a>, EvalError>;

/// The most items that a list may be made of: adding lists costs little, however long they get.
const LIST_ITEMS_MAX: usize = 1 << 20;

/// The most parts that a value may have in all.
const WEIGHT_MAX: u64 = 1 << 22;

/// The value of an expression, and what it cost.
pub(super) fn evaluate<'a>(plan: &'a Plan, bindings: &Bindings<'a>, limit: u64) -> (Evaluated<'a>, u64) {
    let globals = plan.globals.iter().map(|name| bindings.get(name)).collect();
    let mut machine = Machine { globals, names: &plan.globals, locals: Vec::new(), cost: 0, limit };
    let value = machine.step(&plan.root);
    (value, machine.cost)
}

struct Machine<'a> {
    globals: Vec<Option<Evaluated<'a>>>,
    names: &'a [String],
    /// What loops gather and go over. A part that failed is kept until it is asked for.
    locals: Vec<Evaluated<'a>>,
    cost: u64,
    limit: u64,
}

impl<'a> Machine<'a> {
    fn spend(&mut self, cost: u64) -> Result<(), EvalError> {
        self.cost = self.cost.saturating_add(cost);
        if self.cost > self.limit { Err(EvalError::CostExceeded) } else { Ok(()) }
    }

    fn step(&mut self, step: &'a Step) -> Evaluated<'a> {
        match step {
            Step::Constant(value) => Ok(borrowed(value)),
            Step::Chain(chain) => {
                let value = self.chain(chain);
                // A choice costs nothing itself, and neither does asking whether something is there.
                let free = matches!(chain.root, Root::Choice(_)) || chain.links.last().is_some_and(|link| link.test);
                if !free && !matches!(value, Err(EvalError::CostExceeded)) {
                    self.spend(1)?;
                }
                value
            }
            Step::Logic(end, terms) => self.logic(*end, terms),
            Step::Equal(wanted, pair) => self.equal(*wanted, pair),
            Step::Among(value, items) => {
                let value = self.step(value)?;
                Ok(Value::Bool(items.iter().any(|item| equal(item, &value).unwrap_or(false))))
            }
            Step::Or(stays, pair) => self.or(*stays, pair),
            Step::Call(call) => self.call(call),
            Step::List(items) => self.list(items),
            Step::Map(entries) => self.map(entries),
            Step::Struct(name, fields) => self.built(name, fields),
            Step::Loop(fold) => self.fold(fold),
            Step::Gather(place, list) => self.gather(*place, list),
        }
    }

    fn logic(&mut self, end: bool, terms: &'a [Step]) -> Evaluated<'a> {
        let mut failed = None;
        for term in terms {
            match self.step(term) {
                Ok(Value::Bool(value)) if value == end => return Ok(Value::Bool(end)),
                Ok(Value::Bool(_)) => {}
                Ok(_) => failed = failed.or_else(|| Some(EvalError::no_such_overload())),
                Err(EvalError::Failed(message)) => failed = failed.or(Some(EvalError::Failed(message))),
                Err(other) => return Err(other),
            }
        }
        failed.map_or(Ok(Value::Bool(!end)), Err)
    }

    fn equal(&mut self, wanted: bool, pair: &'a [Step; 2]) -> Evaluated<'a> {
        let a = self.tried(&pair[0])?;
        let b = self.tried(&pair[1])?;
        match (a, b) {
            (Ok(a), Ok(b)) => {
                self.spend(cost::equality(wanted, &a, &b))?;
                match equal(&a, &b) {
                    Ok(same) => Ok(Value::Bool(same == wanted)),
                    // Whatever is not true is unequal.
                    Err(EvalError::Failed(_)) if !wanted => Ok(Value::Bool(true)),
                    Err(error) => Err(error),
                }
            }
            (Err(error), b) => {
                self.spend(cost::equality(wanted, &Value::Null, &b.unwrap_or(Value::Null)))?;
                Err(error)
            }
            (Ok(a), Err(error)) => {
                self.spend(cost::equality(wanted, &a, &Value::Null))?;
                Err(error)
            }
        }
    }

    /// A step whose failure does not keep the next from being taken.
    fn tried(&mut self, step: &'a Step) -> Result<Evaluated<'a>, EvalError> {
        match self.step(step) {
            Err(EvalError::CostExceeded) => Err(EvalError::CostExceeded),
            other => Ok(other),
        }
    }

    fn or(&mut self, stays: bool, pair: &'a [Step; 2]) -> Evaluated<'a> {
        let Value::Optional(first) = self.step(&pair[0])? else { return Err(EvalError::no_such_overload()) };
        match first {
            None => self.step(&pair[1]),
            Some(value) if stays => Ok(Value::Optional(Some(value))),
            Some(value) => Ok(Value::clone(&value)),
        }
    }

    fn call(&mut self, call: &'a super::plan::Call) -> Evaluated<'a> {
        if let (Some(pattern), Some(text)) = (&call.pattern, call.args.first()) {
            let text = self.step(text)?;
            let Some(found) = text.as_str().map(|text| pattern.is_match(text)) else {
                return Err(EvalError::no_such_overload());
            };
            if let Step::Constant(written) = &call.args[1] {
                self.spend(call.cost.count(&[text, written.clone()], &Value::Null))?;
            }
            return Ok(Value::Bool(found));
        }
        let mut given: Vec<Value<'a>> = Vec::with_capacity(call.args.len());
        let mut failed = None;
        for arg in &call.args {
            match self.tried(arg)? {
                Ok(value) => given.push(value),
                Err(error) if call.eager => return Err(error),
                Err(error) => {
                    failed = failed.or(Some(error));
                    given.push(Value::Null);
                }
            }
        }
        // What can be paid beforehand is, so that nothing is computed that is too dear.
        let late = matches!(call.cost, Cost::Joined | Cost::NewItems);
        if !late {
            self.spend(call.cost.count(&given, &Value::Null))?;
        }
        let value = match failed {
            Some(_) if call.name == "@not_strictly_false" => Ok(Value::Bool(true)),
            Some(error) => Err(error),
            None => (call.run)(&given).map_err(|error| error.named(call.name)),
        };
        if late {
            self.spend(call.cost.count(&given, value.as_ref().unwrap_or(&Value::Null)))?;
        }
        self.bounded(value?)
    }

    /// The value, if it can be gone over in reasonable time.
    fn bounded(&self, value: Value<'a>) -> Evaluated<'a> {
        if value.weight() > WEIGHT_MAX { Err(EvalError::CostExceeded) } else { Ok(value) }
    }

    fn list(&mut self, items: &'a [(Step, bool)]) -> Evaluated<'a> {
        let mut found = Vec::with_capacity(items.len());
        let mut failed = None;
        for (item, optional) in items {
            match (self.tried(item)?, *optional) {
                (Err(error), _) => {
                    failed = Some(error);
                    break;
                }
                (Ok(value), false) => found.push(value),
                (Ok(Value::Optional(inner)), true) => found.extend(inner.map(|inner| Value::clone(&inner))),
                (Ok(other), true) => {
                    let message = format!("cannot initialize optional list element from non-optional value {other}");
                    failed = Some(EvalError::failed(message));
                    break;
                }
            }
        }
        self.spend(cost::LIST)?;
        failed.map_or_else(|| self.bounded(Value::list(found)), Err)
    }

    fn map(&mut self, entries: &'a [(Step, Step, bool)]) -> Evaluated<'a> {
        let entries = self.entries(entries);
        if !matches!(entries, Err(EvalError::CostExceeded)) {
            self.spend(cost::MAP)?;
        }
        self.bounded(Value::map(entries?))
    }

    fn entries(&mut self, entries: &'a [(Step, Step, bool)]) -> Result<Vec<(Value<'a>, Value<'a>)>, EvalError> {
        let mut found: Vec<(Value<'a>, Value<'a>)> = Vec::with_capacity(entries.len());
        for (key, value, optional) in entries {
            let key = self.step(key)?;
            let mut value = self.step(value)?;
            let known = found.iter().position(|(known, _)| super::equality::same_key(known, &key));
            if *optional {
                match value {
                    Value::Optional(Some(inner)) => value = Value::clone(&inner),
                    Value::Optional(None) => {
                        known.map(|place| found.remove(place));
                        continue;
                    }
                    other => {
                        let message =
                            format!("cannot initialize optional entry '{key}' from non-optional value {other}");
                        return Err(EvalError::failed(message));
                    }
                }
            }
            match known {
                Some(place) => found[place].1 = value,
                None => found.push((key, value)),
            }
        }
        Ok(found)
    }

    fn built(&mut self, _name: &str, fields: &'a [(Box<str>, Step, bool)]) -> Evaluated<'a> {
        let mut found = Vec::with_capacity(fields.len());
        for (field, value, optional) in fields {
            let value = match (self.step(value)?, *optional) {
                (Value::Optional(Some(inner)), true) => Value::clone(&inner),
                (Value::Optional(None), true) => continue,
                (value, _) => value,
            };
            // Names that CEL keeps for itself are written otherwise than they are called.
            let name = match super::escape::unescape(field) {
                Some(Cow::Owned(name)) => Value::text(name),
                _ => Value::String(Text::Borrowed(field)),
            };
            found.push((name, value));
        }
        self.spend(cost::STRUCT)?;
        self.bounded(Value::map(found))
    }

    fn fold(&mut self, fold: &'a Fold) -> Evaluated<'a> {
        let range = self.step(&fold.range)?;
        let place = self.locals.len();
        debug_assert_eq!(place, fold.place);
        let init = self.tried(&fold.init);
        // What is gathered is only computed if it is asked for; only names that are bound may cost something here.
        self.locals.push(init?);
        let outcome = self.rounds(fold, &range, place);
        self.locals.truncate(place + 1);
        let outcome = outcome.and_then(|()| self.step(&fold.result));
        self.locals.truncate(place);
        outcome
    }

    fn rounds(&mut self, fold: &'a Fold, range: &Value<'a>, place: usize) -> Result<(), EvalError> {
        let round = |machine: &mut Self, first: Evaluated<'a>, second: Option<Evaluated<'a>>| {
            machine.locals.truncate(place + 1);
            machine.locals.push(first);
            machine.locals.extend(second);
            if let Ok(Value::Bool(false)) = machine.tried(&fold.condition)? {
                return Ok(false);
            }
            let gathered = machine.tried(&fold.step)?;
            machine.locals[place] = gathered;
            Ok::<bool, EvalError>(true)
        };
        match range {
            Value::List(list) => {
                for at in 0..list.len() {
                    let (first, second) = match fold.two {
                        true => (Ok(Value::Int(i64::try_from(at).unwrap_or(i64::MAX))), Some(list.get(at))),
                        false => (list.get(at), None),
                    };
                    if !round(self, first, second)? {
                        break;
                    }
                }
            }
            Value::Map(map) => {
                for key in map.keys() {
                    let second = match fold.two {
                        true => Some(map.find(&key).and_then(|value| value.ok_or_else(EvalError::no_such_overload))),
                        false => None,
                    };
                    if !round(self, Ok(key), second)? {
                        break;
                    }
                }
            }
            other => {
                return Err(EvalError::failed(format!("got '{}', expected iterable type", go_name(other))));
            }
        }
        Ok(())
    }

    fn gather(&mut self, place: usize, list: &'a Step) -> Evaluated<'a> {
        let more = self.tried(list)?;
        // The name of what is gathered, and adding to it.
        self.spend(1 + 1)?;
        let Value::List(more) = more? else { return Err(EvalError::no_such_overload()) };
        let gathered = std::mem::replace(&mut self.locals[place], Ok(Value::Null))?;
        let Value::List(List::Items(mut items, reading)) = gathered else {
            return Err(EvalError::no_such_overload());
        };
        if items.len() + more.len() > LIST_ITEMS_MAX {
            return Err(EvalError::CostExceeded);
        }
        Arc::make_mut(&mut items).extend(more.items()?);
        self.bounded(Value::List(List::Items(items, reading)))
    }

    /// The value of a chain, without what its first step costs.
    fn chain(&mut self, chain: &'a Chain) -> Evaluated<'a> {
        let value = match &chain.root {
            Root::Global(place) => match &self.globals[*place] {
                Some(value) => value.clone()?,
                None => return Err(EvalError::failed(format!("no such attribute(s): {}", self.names[*place]))),
            },
            Root::Local(place) => self.locals[*place].clone()?,
            Root::Step(step) => self.step(step)?,
            Root::Choice(parts) => {
                let (test, yes, no) = &**parts;
                let Value::Bool(test) = self.step(test)? else { return Err(EvalError::no_such_overload()) };
                self.chain(if test { yes } else { no })?
            }
        };
        self.follow(value, &chain.links)
    }

    fn follow(&mut self, value: Value<'a>, links: &'a [Link]) -> Evaluated<'a> {
        if links.is_empty() {
            return Ok(value);
        }
        let (mut value, mut optional) = match value {
            Value::Optional(None) => {
                return Ok(if links.iter().any(|link| link.test) { Value::Bool(false) } else { Value::Optional(None) });
            }
            Value::Optional(Some(inner)) => (Value::clone(&inner), true),
            other => (other, false),
        };
        for link in links {
            optional = optional || link.optional;
            let key = match &link.key {
                Key::Constant(key) => Ok(borrowed(key)),
                Key::Chain(chain) => self.chain(chain),
                Key::Step(step) => self.step(step),
            };
            let found = match key {
                Ok(key) => find(&value, &key, optional || link.test).map(|found| (key, found)),
                Err(EvalError::CostExceeded) => return Err(EvalError::CostExceeded),
                Err(error) => Err(error),
            };
            if optional && !link.test {
                let Some(next) = found?.1 else { return Ok(Value::Optional(None)) };
                self.spend(1)?;
                value = next;
                continue;
            }
            if !optional || found.as_ref().is_ok_and(|(_, found)| found.is_some()) {
                self.spend(1)?;
            }
            let (key, found) = found?;
            if link.test {
                return Ok(Value::Bool(found.is_some()));
            }
            value = found.ok_or_else(|| missing(&value, &key))?;
        }
        Ok(if optional { Value::some(value) } else { value })
    }
}

/// A constant without a new reference to its text.
fn borrowed<'a>(value: &'a Value<'static>) -> Value<'a> {
    match value {
        Value::String(text) => Value::String(Text::Borrowed(text.as_str())),
        other => other.clone(),
    }
}

fn missing(value: &Value<'_>, key: &Value<'_>) -> EvalError {
    match value {
        Value::List(_) => EvalError::failed(format!("index out of bounds: {}", plain(key))),
        _ => EvalError::failed(format!("no such key: {}", plain(key))),
    }
}

/// A key as messages show it.
fn plain(key: &Value<'_>) -> String {
    match key {
        Value::String(text) => text.as_str().to_owned(),
        other => other.to_string(),
    }
}

/// A number without the mark of its type.
fn plain_index(key: &Value<'_>) -> String {
    match key {
        Value::Double(number) => super::convert::double_text(*number),
        Value::Uint(number) => number.to_string(),
        other => plain(other),
    }
}

/// What is at a key. Values that have no parts have nothing there.
fn find<'a>(value: &Value<'a>, key: &Value<'_>, _test: bool) -> Result<Option<Value<'a>>, EvalError> {
    match value {
        Value::Map(map) => match key {
            Value::String(text) => map.find_text(text.as_str()),
            key => map.find(key),
        },
        Value::List(list) => {
            let place = match key {
                Value::Int(place) => Some(*place),
                Value::Uint(place) => i64::try_from(*place).ok(),
                Value::Double(place) if place.fract() == 0.0 && place.abs() < 1e15 => Some(*place as i64),
                Value::Double(place) => {
                    return Err(EvalError::failed(format!("unsupported index value {place} in list")));
                }
                other => {
                    let message = format!("unsupported index type '{}' in list", other.type_name());
                    return Err(EvalError::failed(message));
                }
            };
            if let (List::Json(_, reading), false) = (list, matches!(key, Value::Int(_)))
                && reading.items().is_some()
            {
                return Err(EvalError::failed(format!("unsupported index: {}", plain_index(key))));
            }
            match place.and_then(|place| usize::try_from(place).ok()).filter(|place| *place < list.len()) {
                Some(place) => list.get(place).map(Some),
                None => Ok(None),
            }
        }
        _ => Ok(None),
    }
}

/// What Go calls the type of a value, which shows in a few messages.
fn go_name(value: &Value<'_>) -> &'static str {
    match value {
        Value::Null => "types.Null",
        Value::Bool(_) => "types.Bool",
        Value::Int(_) => "types.Int",
        Value::Uint(_) => "types.Uint",
        Value::Double(_) => "types.Double",
        Value::String(_) => "types.String",
        Value::Bytes(_) => "types.Bytes",
        Value::Timestamp(_) => "types.Timestamp",
        Value::Duration(_) => "types.Duration",
        _ => "ref.Val",
    }
}

impl Cost {
    fn count(&self, args: &[Value<'_>], result: &Value<'_>) -> u64 {
        cost::count(self, args, result)
    }
}
