//! Expressions of the Common Expression Language: what is wrong with them, what they may cost, and what they give.
//!
//! [`Program::compile`] reads and checks an expression once; [`Program::evaluate`] runs it on borrowed JSON. Functions,
//! costs and messages are those of cel-go as Kubernetes sets it up, so that a rule means the same here and there.
//!
//! Our own parser reads expressions; what it can't read is given to that of the `cel` crate, which knows cel-go's words
//! for what is wrong but is slow and needs a stack of its own.

use std::fmt;

mod authorizer;
mod base64;
mod calls;
mod check;
mod convert;
mod cost;
mod declared;
mod environment;
mod equality;
mod escape;
mod estimate;
mod evaluate;
mod formats;
mod functions;
mod kind_type;
mod lists;
mod literals;
mod macros;
mod network;
mod parse;
mod patterns;
mod plan;
mod reading;
mod resources;
mod semver;
mod strings;
mod syntax;
mod text_format;
mod time;
mod times;
mod to_json;
mod token;
mod tree;
mod types;
mod unify;
mod url;
mod value;

pub use authorizer::{Asked, Authorizer, Decision, Handle, Resource, Target, authorizer, request_resource};
pub use declared::Declared;
pub(crate) use declared::knows_metadata;
pub use environment::Environment;
pub(crate) use escape::{escape, identifiers};
pub use estimate::Range;
pub use reading::{Kind, Order, Reading, Readings};
pub use types::Type;
pub use value::{List, Map, Special, Text, Value};

use escape::RESERVED;

/// Longest expression, in characters. cel-go takes 100 000; nobody writes them.
pub const EXPRESSION_CHARS_MAX: usize = 16 * 1024;

/// The most that one evaluation of an expression may cost. As upstream.
pub const CALL_COST_MAX: u64 = 1_000_000;

/// The most that all expressions for one object may cost together. As upstream.
pub const BUDGET_COST_MAX: u64 = 10_000_000;

/// An expression made ready to be evaluated.
#[derive(Debug)]
pub struct Program {
    plan: plan::Plan,
    ty: Type,
    estimate: Range,
    deep: bool,
}

impl Program {
    /// Reads and checks an expression, or tells why it can't be evaluated, in the words of Kubernetes.
    pub fn compile(expression: &str, environment: &Environment) -> Result<Self, String> {
        let deep = is_deep(expression);
        with_stack(deep, || {
            let (tree, root, checked) = checked(expression, environment)?;
            let plan =
                plan::plan(&tree, root, &checked).map_err(|why| format!("program instantiation failed: {why}"))?;
            let estimate = estimate::estimate(&tree, root, &checked, environment.declared.as_deref());
            Ok(Self { plan, ty: checked.types[root].clone(), estimate, deep })
        })
    }

    /// What one evaluation may cost, by the sizes that the schema allows.
    pub fn estimate(&self) -> Range {
        self.estimate
    }

    /// The type of what it gives.
    pub fn ty(&self) -> &Type {
        &self.ty
    }

    /// The variables that it uses.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.plan.globals.iter().map(String::as_str)
    }

    /// Whether it uses a variable.
    pub fn uses(&self, variable: &str) -> bool {
        self.plan.globals.iter().any(|name| name == variable)
    }

    /// Evaluates it and takes what that cost from the budget.
    pub fn evaluate<'a>(&'a self, bindings: &Bindings<'a>, budget: &mut Budget) -> Result<Value<'a>, EvalError> {
        let (value, cost) = with_stack(self.deep, || evaluate::evaluate(&self.plan, bindings, CALL_COST_MAX));
        budget.spend(cost)?;
        value
    }
}

/// The values of the variables of an expression.
#[derive(Debug, Clone, Default)]
pub struct Bindings<'a> {
    values: Vec<(&'a str, Result<Value<'a>, EvalError>)>,
}

impl<'a> Bindings<'a> {
    /// Gives a variable its value.
    pub fn bind(&mut self, name: &'a str, value: Value<'a>) {
        self.set(name, Ok(value));
    }

    /// Says why a variable has no value. Expressions fail that ask for it.
    pub fn fail(&mut self, name: &'a str, why: impl Into<String>) {
        self.set(name, Err(EvalError::failed(why)));
    }

    fn set(&mut self, name: &'a str, value: Result<Value<'a>, EvalError>) {
        self.values.retain(|(known, _)| *known != name);
        self.values.push((name, value));
    }

    fn get(&self, name: &str) -> Option<Result<Value<'a>, EvalError>> {
        self.values.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone())
    }
}

/// What the expressions for one object may still cost.
#[derive(Debug)]
pub struct Budget {
    left: u64,
}

impl Budget {
    /// All that may be spent on one object.
    pub fn full() -> Self {
        Self::of(BUDGET_COST_MAX)
    }

    /// So much.
    pub fn of(cost: u64) -> Self {
        Self { left: cost }
    }

    /// What is left of it.
    pub fn left(&self) -> u64 {
        self.left
    }

    fn spend(&mut self, cost: u64) -> Result<(), EvalError> {
        match self.left.checked_sub(cost) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                self.left = 0;
                Err(EvalError::OutOfBudget)
            }
        }
    }
}

/// Why an expression gave no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EvalError {
    /// It cost more than one evaluation may.
    CostExceeded,
    /// It cost more than was left for the object.
    OutOfBudget,
    /// A function could not do what was asked.
    Failed(Box<str>),
}

impl EvalError {
    fn failed(message: impl Into<String>) -> Self {
        Self::Failed(message.into().into_boxed_str())
    }

    fn no_such_overload() -> Self {
        Self::failed(NO_SUCH_OVERLOAD)
    }

    /// With the function that takes no such arguments, where cel-go names it.
    fn named(self, function: &str) -> Self {
        match self {
            Self::Failed(message) if *message == *NO_SUCH_OVERLOAD && function == "size" => {
                Self::failed(format!("{NO_SUCH_OVERLOAD}: {function}"))
            }
            other => other,
        }
    }
}

const NO_SUCH_OVERLOAD: &str = "no such overload";

impl fmt::Display for EvalError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::CostExceeded => "operation cancelled: actual cost limit exceeded",
            Self::OutOfBudget => {
                "validation failed due to running out of cost budget, no further validation rules will be run"
            }
            Self::Failed(message) => message,
        })
    }
}

impl std::error::Error for EvalError {}

/// The type that an expression gives, or why it can't be compiled, in the words of Kubernetes.
pub fn compile(expression: &str, environment: &Environment) -> Result<Type, String> {
    let ty = || checked(expression, environment).map(|(_, root, checked)| checked.types[root].clone());
    with_stack(is_deep(expression), ty)
}

/// Whether an expression may be nested so deep that a small stack is not enough.
fn is_deep(expression: &str) -> bool {
    const SHALLOW: usize = 40;
    expression.bytes().filter(|byte| b"([{?.+-*/%<>=!&|".contains(byte)).count() > SHALLOW
}

/// Runs with room for the deepest expression that can be read.
fn with_stack<T>(deep: bool, run: impl FnOnce() -> T) -> T {
    const NEEDED_BYTES: usize = 8 * 1024 * 1024;
    if deep { stacker::maybe_grow(NEEDED_BYTES, 2 * NEEDED_BYTES, run) } else { run() }
}

/// Whether a text can name a variable.
pub fn is_identifier(text: &str) -> bool {
    let first = text.bytes().next();
    first.is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && !RESERVED.contains(&text)
}

fn checked(expression: &str, environment: &Environment) -> Result<(tree::Tree, tree::Id, check::Checked), String> {
    let size = expression.chars().count();
    if size > EXPRESSION_CHARS_MAX {
        return Err(format!(
            "compilation failed: ERROR: <input>:-1:0: expression code point size exceeds limit: size: {size}, limit \
             {EXPRESSION_CHARS_MAX}"
        ));
    }
    let (tree, root) = parse::parse(expression)
        .map_err(|refusal| format!("compilation failed: {}", syntax::words(expression, refusal)))?;
    match check::check(&tree, root, environment) {
        Ok(checked) => Ok((tree, root, checked)),
        Err(complaints) => Err(format!("compilation failed: {}", syntax::shown(expression, complaints))),
    }
}

/// What is wrong at one place, by its offset in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Complaint {
    offset: usize,
    message: String,
}

#[cfg(test)]
mod tests;
