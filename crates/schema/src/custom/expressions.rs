//! `x-kubernetes-validations`: the rules in CEL, asked about every value whose schema has some.
//!
//! Expressions are compiled when they are first asked, and kept with the type. One budget is for the whole object.

use std::sync::{Arc, OnceLock};

use serde_json::Value;
use setpoint_api::quote::quote;
use setpoint_api::{BadValue, FieldError, Path};

use super::correlation::{Correlation, find_item};
use super::embedded::child;
use super::reading::type_for;
use super::rules::Validation;
use super::tree::Place;
use crate::cel::{Bindings, Budget, Environment, EvalError, Program, Reading, Type};
use crate::types::ListType;

/// Longest message that an expression may make.
const MESSAGE_BYTES_MAX: usize = 5 * 1024;

/// What the rules say about an object.
pub(super) struct Said {
    pub(super) found: Vec<FieldError>,
    /// What is wrong with values that did not change.
    pub(super) forgiven: Vec<FieldError>,
}

/// Asks the rules about an object.
pub(super) fn check(new: &Value, old: Option<&Value>, root: Place<'_>) -> Said {
    let mut walk = Walk { budget: &mut Budget::full(), found: Vec::new(), forgiven: Vec::new() };
    let ratchet = Ratchet { now: old.map(|old| Correlation { old, new, place: root }), above: None };
    // The walk ends early when the budget does; what it found until then says so.
    let _ = walk.value(new, old, root, "", ratchet);
    Said { found: walk.found, forgiven: walk.forgiven }
}

/// What the rules say about a value that is to be filled in, as one that stays and as one that is new.
pub(super) fn check_default(value: &Value, place: Place<'_>, path: &str, budget: &mut Budget) -> Vec<FieldError> {
    let mut walk = Walk { budget, found: Vec::new(), forgiven: Vec::new() };
    for old in [Some(value), None] {
        let _ = walk.value(value, old, place, path, Ratchet { now: None, above: None });
        if !walk.found.is_empty() {
            break;
        }
    }
    walk.found
}

/// The rules of one schema.
#[derive(Debug)]
pub(super) struct Validations {
    rules: Box<[Validation]>,
    programs: OnceLock<Box<[Compiled]>>,
}

#[derive(Debug)]
struct Compiled {
    rule: Result<Program, String>,
    message: Option<Program>,
    uses_old: bool,
}

impl Validations {
    /// The rules of a schema; None if it has none.
    pub(super) fn read(schema: &Value) -> Option<Self> {
        let rules = Validation::read_all(schema);
        (!rules.is_empty()).then(|| Self { rules, programs: OnceLock::new() })
    }

    /// The programs of the rules, which stand in this schema.
    fn programs(&self, place: Place<'_>) -> &[Compiled] {
        self.programs.get_or_init(|| {
            let texts = self.rules.iter().flat_map(|rule| [&*rule.rule, &*rule.message_expression]);
            let ty = type_for(place, texts);
            self.rules.iter().map(|rule| Compiled::new(rule, &ty)).collect()
        })
    }
}

impl Compiled {
    fn new(rule: &Validation, ty: &Type) -> Self {
        let mut environment = Environment::default();
        environment.declare("self", ty.clone());
        let old = ty.clone();
        environment.declare("oldSelf", if rule.optional_old_self { Type::optional(old) } else { old });
        let program = Program::compile(rule.rule.trim(), &environment);
        let uses_old = program.as_ref().is_ok_and(|program| program.uses("oldSelf"));
        let message = Some(&rule.message_expression).filter(|text| !text.is_empty());
        let message = message.and_then(|text| Program::compile(text, &environment).ok());
        Self { rule: program, message, uses_old }
    }
}

/// Whether errors count although nothing changed.
#[derive(Clone, Copy)]
struct Ratchet<'a> {
    /// The value with its old one, if they belong together.
    now: Option<Correlation<'a>>,
    /// The nearest value above for which that is known.
    above: Option<Correlation<'a>>,
}

impl<'a> Ratchet<'a> {
    fn is_unchanged(self) -> bool {
        self.now.or(self.above).is_some_and(Correlation::is_unchanged)
    }

    fn key(self, name: &str) -> Self {
        let Some(now) = self.now else { return self };
        if self.above.is_none() && matches!(name, "apiVersion" | "kind") {
            return Self { now: None, above: None };
        }
        Self { now: now.key(name), above: Some(now) }
    }

    fn index(self, index: usize) -> Self {
        let Some(now) = self.now else { return self };
        Self { now: now.index(index), above: Some(now) }
    }
}

/// The budget is spent.
struct Spent;

struct Walk<'b> {
    budget: &'b mut Budget,
    found: Vec<FieldError>,
    forgiven: Vec<FieldError>,
}

impl Walk<'_> {
    fn value(
        &mut self,
        new: &Value,
        old: Option<&Value>,
        place: Place<'_>,
        path: &str,
        ratchet: Ratchet<'_>,
    ) -> Result<(), Spent> {
        if new.is_null() || !place.node().below.validations {
            return Ok(());
        }
        let old = old.filter(|old| !old.is_null());
        if let Some(validations) = place.facet().and_then(|facet| facet.validations.as_ref()) {
            self.rules(new, old, place, validations, path, ratchet)?;
        }
        match new {
            Value::Object(fields) => {
                for (name, value) in fields {
                    let before = old.and_then(|old| old.get(name));
                    let (inner, inside) = match (place.field(name), place.additional()) {
                        (Some(inner), _) => (inner, child(path, name)),
                        (None, Some(inner)) => (inner, format!("{path}[{name}]")),
                        (None, None) => continue,
                    };
                    self.value(value, before, inner, &inside, ratchet.key(name))?;
                }
            }
            Value::Array(items) => {
                let Some(inner) = place.item() else { return Ok(()) };
                let keys = match place.list_type() {
                    Some(ListType::Map(keys)) => Some(keys),
                    _ => None,
                };
                let known = old.and_then(Value::as_array);
                for (index, item) in items.iter().enumerate() {
                    let before = keys.zip(known).and_then(|(keys, known)| find_item(known, item, keys));
                    self.value(item, before, inner, &format!("{path}[{index}]"), ratchet.index(index))?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn rules(
        &mut self,
        new: &Value,
        old: Option<&Value>,
        place: Place<'_>,
        validations: &Validations,
        path: &str,
        ratchet: Ratchet<'_>,
    ) -> Result<(), Spent> {
        let ty = place.node().ty.name();
        let reading = Reading::new(place.tree(), place.id().0);
        for (rule, compiled) in validations.rules.iter().zip(validations.programs(place)) {
            let program = match &compiled.rule {
                Ok(program) => program,
                Err(error) => {
                    self.invalid(path, ty, format!("rule compile error: {error}"));
                    continue;
                }
            };
            if compiled.uses_old && old.is_none() && !rule.optional_old_self {
                continue;
            }
            let outcome = bindings(new, old, reading, rule.optional_old_self).and_then(|bindings| {
                program.evaluate(&bindings, self.budget).map(|value| value.as_bool() == Some(true))
            });
            match outcome {
                Ok(true) => continue,
                Ok(false) => {}
                Err(EvalError::OutOfBudget) => {
                    self.invalid(path, ty, EvalError::OutOfBudget.to_string());
                    return Err(Spent);
                }
                Err(error @ EvalError::CostExceeded) => {
                    let what = "no further validation rules will be run due to call cost exceeds limit for rule";
                    self.invalid(path, ty, format!("'{error}': {what}: {}", said(rule)));
                    return Err(Spent);
                }
                Err(error) => {
                    self.invalid(path, ty, failure(&error.to_string(), rule));
                    continue;
                }
            }
            let at = match &*rule.field_path {
                "" => path.to_owned(),
                field if path.is_empty() => field_path(field).trim_start_matches('.').to_owned(),
                field => format!("{path}{}", field_path(field)),
            };
            let unchanged = !compiled.uses_old && ratchet.is_unchanged();
            let message = match &compiled.message {
                Some(program) => self.message(program, new, old, reading, rule),
                None => Ok(None),
            };
            let shown = match new {
                Value::Object(_) | Value::Array(_) => BadValue::Omitted,
                scalar => BadValue::from(scalar),
            };
            let detail = match message {
                Ok(message) => message.unwrap_or_else(|| default_message(rule)),
                Err(detail) => {
                    let error = FieldError::invalid(&Path::nil(), ty, detail).at(shown_path(&at));
                    if unchanged {
                        self.forgiven.push(error)
                    } else {
                        self.found.push(error)
                    }
                    return Err(Spent);
                }
            };
            let error = of_reason(&rule.reason, shown, detail).at(shown_path(&at));
            if unchanged { self.forgiven.push(error) } else { self.found.push(error) }
        }
        Ok(())
    }

    /// The message that an expression makes; None if it makes none that can be used.
    fn message(
        &mut self,
        program: &Program,
        new: &Value,
        old: Option<&Value>,
        reading: Reading<'_>,
        rule: &Validation,
    ) -> Result<Option<String>, String> {
        let made = bindings(new, old, reading, rule.optional_old_self).and_then(|bindings| {
            program.evaluate(&bindings, self.budget).map(|value| value.as_str().map(|text| text.trim().to_owned()))
        });
        match made {
            Ok(message) => {
                Ok(message.filter(|text| !text.is_empty() && !text.contains('\n') && text.len() <= MESSAGE_BYTES_MAX))
            }
            Err(EvalError::OutOfBudget) => {
                Err("messageExpression evaluation failed due to running out of cost budget, \
                                                no further validation rules will be run"
                    .to_owned())
            }
            Err(EvalError::CostExceeded) => Err(format!(
                "no further validation rules will be run due to call cost exceeds limit for messageExpression: {}",
                quote(&rule.message_expression)
            )),
            Err(EvalError::Failed(_)) => Ok(None),
        }
    }

    fn invalid(&mut self, path: &str, ty: &str, detail: String) {
        self.found.push(FieldError::invalid(&Path::nil(), ty, detail).at(shown_path(path)));
    }
}

fn bindings<'a>(
    new: &'a Value,
    old: Option<&'a Value>,
    reading: Reading<'a>,
    optional: bool,
) -> Result<Bindings<'a>, EvalError> {
    use crate::cel::Value as Seen;
    let mut bindings = Bindings::default();
    bindings.bind("self", Seen::under(new, reading)?);
    let old = old.map(|old| Seen::under(old, reading)).transpose()?;
    match (old, optional) {
        (old, true) => bindings.bind("oldSelf", Seen::Optional(old.map(Arc::new))),
        (Some(old), false) => bindings.bind("oldSelf", old),
        (None, false) => {}
    }
    Ok(bindings)
}

fn of_reason(reason: &str, shown: BadValue, detail: String) -> FieldError {
    let nil = Path::nil();
    match reason {
        "FieldValueForbidden" => FieldError::forbidden(&nil, detail),
        "FieldValueRequired" => FieldError::required(&nil, detail),
        "FieldValueDuplicate" => FieldError::duplicate(&nil, shown),
        _ => FieldError::invalid(&nil, shown, detail),
    }
}

fn failure(error: &str, rule: &Validation) -> String {
    if error.starts_with("no such overload") {
        let what = "call arguments did not match a supported operator, function or macro signature for rule";
        return format!("'{error}': {what}: {}", said(rule));
    }
    format!("{error} evaluating rule: {}", said(rule))
}

/// What a rule is called in messages.
fn said(rule: &Validation) -> &str {
    if rule.message.is_empty() { rule.rule.trim() } else { rule.message.trim() }
}

fn default_message(rule: &Validation) -> String {
    if rule.message.is_empty() { format!("failed rule: {}", said(rule)) } else { said(rule).to_owned() }
}

fn shown_path(path: &str) -> &str {
    if path.is_empty() { "<nil>" } else { path }
}

/// `.a['b']` as paths are shown: `.a.b`.
fn field_path(path: &str) -> String {
    path.replace("['", ".").replace("']", "")
}
