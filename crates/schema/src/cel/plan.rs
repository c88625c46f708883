//! An expression made ready to be evaluated: names resolved to places, functions to code, what is constant computed.
//!
//! The shape is that of cel-go's plan, because what an expression costs follows from it: a chain of selections is one
//! step, and a step that only hands on to another costs nothing.

use std::sync::Arc;

use super::calls::{self, Run};
use super::check::{Checked, Reference};
use super::cost::Cost;
use super::tree::{Expr, Id, Literal, Loop, Tree};
use super::value::{Text, Value};
use crate::regexp::Regexp;

/// One step.
#[derive(Debug)]
pub(super) enum Step {
    Constant(Value<'static>),
    Chain(Box<Chain>),
    /// `&&` or `||`, by the value that ends it.
    Logic(bool, Box<[Step]>),
    /// `==`, or `!=` if false.
    Equal(bool, Box<[Step; 2]>),
    /// Whether a value is one of these constants.
    Among(Box<Step>, Box<[Value<'static>]>),
    /// The first if it is there, or the second; whether the first stays optional.
    Or(bool, Box<[Step; 2]>),
    Call(Box<Call>),
    List(Box<[(Step, bool)]>),
    Map(Box<[(Step, Step, bool)]>),
    Struct(Box<str>, Box<[(Box<str>, Step, bool)]>),
    Loop(Box<Fold>),
    /// What a loop gathers, with this list added to it.
    Gather(usize, Box<Step>),
}

/// A value and what is selected from it.
#[derive(Debug)]
pub(super) struct Chain {
    pub(super) root: Root,
    pub(super) links: Vec<Link>,
}

#[derive(Debug)]
pub(super) enum Root {
    /// A variable that the caller binds.
    Global(usize),
    /// A variable of a loop.
    Local(usize),
    Step(Step),
    /// One or the other; the links are those of both.
    Choice(Box<(Step, Chain, Chain)>),
}

#[derive(Debug)]
pub(super) struct Link {
    pub(super) key: Key,
    pub(super) optional: bool,
    /// Only whether it is there is asked.
    pub(super) test: bool,
}

#[derive(Debug)]
pub(super) enum Key {
    Constant(Value<'static>),
    /// A chain, whose own first step costs nothing here.
    Chain(Chain),
    Step(Step),
}

#[derive(Debug)]
pub(super) struct Call {
    pub(super) name: &'static str,
    pub(super) run: Run,
    pub(super) cost: Cost,
    /// Whether the first argument that fails ends it, so that it costs nothing.
    pub(super) eager: bool,
    pub(super) args: Box<[Step]>,
    /// A pattern that is constant, ready to be used.
    pub(super) pattern: Option<Arc<Regexp>>,
}

#[derive(Debug)]
pub(super) struct Fold {
    pub(super) range: Step,
    pub(super) two: bool,
    pub(super) init: Step,
    pub(super) condition: Step,
    pub(super) step: Step,
    pub(super) result: Step,
    /// The place of what is gathered; the names of the loop come after it.
    pub(super) place: usize,
}

/// What an expression needs: its first step, and the variables that the caller has to bind.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) root: Step,
    pub(super) globals: Vec<String>,
}

/// Makes an expression ready, or tells what can't be computed in it.
pub(super) fn plan(tree: &Tree, root: Id, checked: &Checked) -> Result<Plan, String> {
    let mut planner = Planner { tree, checked, locals: Vec::new(), globals: Vec::new() };
    let root = planner.step(root)?;
    Ok(Plan { root, globals: planner.globals })
}

struct Planner<'a> {
    tree: &'a Tree,
    checked: &'a Checked,
    locals: Vec<&'a str>,
    globals: Vec<String>,
}

impl<'a> Planner<'a> {
    fn step(&mut self, id: Id) -> Result<Step, String> {
        match &self.tree.nodes[id].expr {
            Expr::Literal(literal) => Ok(Step::Constant(constant(literal))),
            Expr::Ident(_) => Ok(self.named(id)),
            Expr::Select { operand, field, test } => {
                if !matches!(self.checked.references[id], Reference::None) {
                    return Ok(self.named(id));
                }
                let operand = self.step(*operand)?;
                let key = Key::Constant(Value::text(field.as_str()));
                Ok(linked(operand, Link { key, optional: false, test: *test }))
            }
            Expr::Call { target, args, .. } => self.call(id, *target, args),
            Expr::List(items) => {
                let items = items.iter().map(|(item, optional)| Ok((self.step(*item)?, *optional)));
                let items: Vec<_> = items.collect::<Result<_, String>>()?;
                match items.iter().map(|(item, _)| as_constant(item)).collect::<Option<Vec<_>>>() {
                    Some(values) if items.iter().all(|(_, optional)| !optional) => {
                        Ok(Step::Constant(Value::list(values)))
                    }
                    _ => Ok(Step::List(items.into())),
                }
            }
            Expr::Map(entries) => self.map(entries),
            Expr::Struct { name, fields } => {
                let fields = fields
                    .iter()
                    .map(|(field, value, optional, _)| Ok((field.as_str().into(), self.step(*value)?, *optional)));
                Ok(Step::Struct(name.as_str().into(), fields.collect::<Result<Vec<_>, String>>()?.into()))
            }
            Expr::Loop(parts) => self.looped(parts),
        }
    }

    fn named(&mut self, id: Id) -> Step {
        let root = match &self.checked.references[id] {
            Reference::TypeName(name) => return Step::Constant(Value::Type(name.as_str().into())),
            Reference::Variable(name) => match self.locals.iter().rposition(|local| local == name) {
                Some(place) => Root::Local(place),
                None => Root::Global(self.globals.iter().position(|known| known == name).unwrap_or_else(|| {
                    self.globals.push(name.clone());
                    self.globals.len() - 1
                })),
            },
            Reference::None | Reference::Function(..) => Root::Step(Step::Constant(Value::Null)),
        };
        Step::Chain(Box::new(Chain { root, links: Vec::new() }))
    }

    fn call(&mut self, id: Id, target: Option<Id>, args: &[Id]) -> Result<Step, String> {
        let Reference::Function(function, overloads) = &self.checked.references[id] else {
            return Err("no such overload".to_owned());
        };
        let overload = if overloads.len() == 1 { overloads[0].id } else { "" };
        // A target that only is the first part of the function's name is none.
        let target = target.filter(|_| overloads.first().is_some_and(|overload| overload.member));
        let given = target.iter().chain(args).map(|arg| self.step(*arg));
        let mut given: Vec<Step> = given.collect::<Result<_, String>>()?;
        let pair = |given: Vec<Step>| -> Result<Box<[Step; 2]>, String> {
            let given: Result<[Step; 2], _> = given.try_into();
            Ok(Box::new(given.map_err(|_| "no such overload".to_owned())?))
        };
        match function.name {
            "_&&_" => return Ok(Step::Logic(false, given.into())),
            "_||_" => return Ok(Step::Logic(true, given.into())),
            "_==_" => return Ok(Step::Equal(true, pair(given)?)),
            "_!=_" => return Ok(Step::Equal(false, pair(given)?)),
            "or" => return Ok(Step::Or(true, pair(given)?)),
            "orValue" => return Ok(Step::Or(false, pair(given)?)),
            "_?_:_" => {
                let (no, yes) = (given.pop(), given.pop());
                let (Some(no), Some(yes), Some(test)) = (no, yes, given.pop()) else {
                    return Err("no such overload".into());
                };
                let root = Root::Choice(Box::new((test, chained(yes), chained(no))));
                return Ok(Step::Chain(Box::new(Chain { root, links: Vec::new() })));
            }
            "_[_]" | "_[?_]" | "_?._" => {
                let (Some(index), Some(operand)) = (given.pop(), given.pop()) else {
                    return Err("no such overload".into());
                };
                let key = match index {
                    Step::Constant(value) => Key::Constant(value),
                    Step::Chain(chain) => Key::Chain(*chain),
                    other => Key::Step(other),
                };
                return Ok(linked(operand, Link { key, optional: function.name != "_[_]", test: false }));
            }
            "_+_" => {
                if let (Step::Chain(first), Step::List(_)) = (&given[0], &given[1])
                    && let Root::Local(place) = first.root
                    && first.links.is_empty()
                    && self.locals[place] == super::macros::ACCUMULATOR
                    && let Some(list) = given.pop()
                {
                    return Ok(Step::Gather(place, Box::new(list)));
                }
            }
            "@in" if overload == "in_list" => {
                if let Step::Constant(Value::List(list)) = &given[1] {
                    if list.is_empty() {
                        return Ok(Step::Constant(Value::Bool(false)));
                    }
                    let items = list.items().map_err(|error| error.to_string())?;
                    if items.iter().all(is_primitive) {
                        given.truncate(1);
                        let value = given.pop().ok_or("no such overload")?;
                        return Ok(Step::Among(Box::new(value), items.into()));
                    }
                }
            }
            _ => {}
        }
        let run = calls::run(function.name).ok_or_else(|| format!("no such overload: {}", function.name))?;
        if CONVERSIONS.contains(&function.name)
            && let [Step::Constant(value)] = given.as_slice()
        {
            let value = run(std::slice::from_ref(value)).map_err(|error| error.to_string())?;
            return Ok(Step::Constant(value));
        }
        let pattern = match (function.name, given.get(1)) {
            ("matches", Some(Step::Constant(Value::String(text)))) => {
                Some(Arc::new(super::patterns::compile(text.as_str()).map_err(|error| error.to_string())?))
            }
            _ => None,
        };
        let eager = given.len() != 1 && given.len() != 2 || pattern.is_some();
        let cost = Cost::of(function.name, overload);
        Ok(Step::Call(Box::new(Call { name: function.name, run, cost, eager, args: given.into(), pattern })))
    }

    fn map(&mut self, entries: &[(Id, Id, bool)]) -> Result<Step, String> {
        let mut found = Vec::with_capacity(entries.len());
        for (key, value, optional) in entries {
            found.push((self.step(*key)?, self.step(*value)?, *optional));
        }
        let constants: Option<Vec<_>> = found
            .iter()
            .map(|(key, value, optional)| if *optional { None } else { Some((as_constant(key)?, as_constant(value)?)) })
            .collect();
        Ok(match constants {
            Some(entries) => {
                let mut unique: Vec<(Value<'static>, Value<'static>)> = Vec::with_capacity(entries.len());
                for (key, value) in entries {
                    match unique.iter_mut().find(|(known, _)| super::equality::same_key(known, &key)) {
                        Some(entry) => entry.1 = value,
                        None => unique.push((key, value)),
                    }
                }
                Step::Constant(Value::map(unique))
            }
            None => Step::Map(found.into()),
        })
    }

    fn looped(&mut self, parts: &'a Loop) -> Result<Step, String> {
        let range = self.step(parts.range)?;
        let init = self.step(parts.init)?;
        let place = self.locals.len();
        self.locals.push(&parts.accumulator);
        self.locals.push(&parts.first);
        self.locals.extend(parts.second.as_deref());
        let condition = self.step(parts.condition)?;
        let step = self.step(parts.step)?;
        self.locals.truncate(place + 1);
        let result = self.step(parts.result)?;
        self.locals.truncate(place);
        let two = parts.second.is_some();
        Ok(Step::Loop(Box::new(Fold { range, two, init, condition, step, result, place })))
    }
}

/// Functions that are computed beforehand if what they are given is constant.
const CONVERSIONS: &[&str] =
    &["bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"];

fn is_primitive(value: &Value<'_>) -> bool {
    matches!(value, Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::String(_))
}

fn as_constant(step: &Step) -> Option<Value<'static>> {
    match step {
        Step::Constant(value) => Some(value.clone()),
        _ => None,
    }
}

fn chained(step: Step) -> Chain {
    match step {
        Step::Chain(chain) => *chain,
        other => Chain { root: Root::Step(other), links: Vec::new() },
    }
}

/// The step with one more selection from what it gives.
fn linked(operand: Step, link: Link) -> Step {
    let mut chain = chained(operand);
    chain.links.push(link);
    Step::Chain(Box::new(chain))
}

fn constant(literal: &Literal) -> Value<'static> {
    match literal {
        Literal::Null => Value::Null,
        Literal::Bool(value) => Value::Bool(*value),
        Literal::Int(value) => Value::Int(*value),
        Literal::Uint(value) => Value::Uint(*value),
        Literal::Double(value) => Value::Double(*value),
        Literal::String(text) => Value::String(Text::Shared(text.as_str().into())),
        Literal::Bytes(bytes) => Value::Bytes(bytes.as_slice().into()),
    }
}
