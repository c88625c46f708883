//! Whether a document fits its type, in the words in which Kubernetes refuses an applied one.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::{Map, Value};
use setpoint_api::quote::quote;

use super::atom::{Atom, Form, ListAtom, MapAtom, Scalar};
use super::element::Element;
use super::field_set::path_text;
use crate::patch::value_text;

/// How many mistakes are told. A document with more is refused all the same.
pub const MISTAKES_MAX: usize = 100;

/// Whether a list may have several items of one identity. Clients that know nothing of identities write them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Duplicates {
    /// For what was written in other ways.
    Allowed,
    /// For what is applied.
    Refused,
}

/// What is wrong with a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
    /// Each with its path; never empty.
    mistakes: Vec<(String, String)>,
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |(path, message): &(String, String)| match path.is_empty() {
            true => message.clone(),
            false => format!("{path}: {message}"),
        };
        if let [only] = self.mistakes.as_slice() {
            return f.write_str(&line(only));
        }
        f.write_str("errors:")?;
        self.mistakes.iter().try_for_each(|mistake| write!(f, "\n  {}", line(mistake)))
    }
}

/// Checks that a value fits its form.
pub(super) fn validate(value: &Value, form: Form<'_>, duplicates: Duplicates) -> Result<(), Misfit> {
    run(value, None, form, duplicates)
}

/// Checks that the next version of a value fits its form. The last one does: fields that are as they were are passed over.
pub(super) fn validate_next(value: &Value, last: &Value, form: Form<'_>, duplicates: Duplicates) -> Result<(), Misfit> {
    run(value, Some(last), form, duplicates)
}

fn run(value: &Value, last: Option<&Value>, form: Form<'_>, duplicates: Duplicates) -> Result<(), Misfit> {
    let mut check = Check { duplicates, way: Vec::new(), mistakes: Vec::new() };
    check.value(value, last, form);
    if check.mistakes.is_empty() { Ok(()) } else { Err(Misfit { mistakes: check.mistakes }) }
}

struct Check<'v> {
    duplicates: Duplicates,
    way: Vec<Step<'v>>,
    mistakes: Vec<(String, String)>,
}

/// A step of the way to a value. Names are only copied when there is a mistake to tell.
enum Step<'v> {
    Field(&'v str),
    Item(Element),
}

impl<'v> Check<'v> {
    fn value(&mut self, value: &'v Value, last: Option<&Value>, form: Form<'_>) {
        if value.is_null() || form.is_anything() {
            return;
        }
        match (form.atom(Some(value)), value) {
            (Atom::Scalar(scalar), _) => self.scalar(value, scalar),
            (Atom::List(list), Value::Array(items)) => self.items(items, list),
            (Atom::List(_), _) => self.mistake(format!("expected list, got {}", printed(value))),
            (Atom::Map(map), Value::Object(fields)) => self.fields(fields, last.and_then(Value::as_object), map),
            (Atom::Map(_), _) => self.mistake(format!("expected map, got {}", printed(value))),
        }
    }

    fn scalar(&mut self, value: &Value, scalar: Scalar) {
        let message = match (scalar, value) {
            (Scalar::Number, Value::Number(_))
            | (Scalar::String, Value::String(_))
            | (Scalar::Bool, Value::Bool(_)) => return,
            (Scalar::Any, Value::Number(_) | Value::String(_) | Value::Bool(_)) => return,
            (Scalar::Number, _) => format!("expected numeric (int or float), got {}", go_type(value)),
            (Scalar::String, _) => {
                format!("expected string, got &value.valueUnstructured{{Value:{}}}", go_syntax(value))
            }
            (Scalar::Bool, _) => format!("expected boolean, got {}", printed(value)),
            (Scalar::Any, _) => format!("expected any scalar, got {}", printed(value)),
        };
        self.mistake(message);
    }

    fn items(&mut self, items: &'v [Value], list: ListAtom<'_>) {
        let mut seen = BTreeSet::new();
        for (index, item) in items.iter().enumerate() {
            let step = if list.is_atomic() {
                Element::Index(index as i64)
            } else {
                match list.element(item) {
                    Ok(step) => step,
                    // The place of the others is unknown too.
                    Err(message) => return self.mistake(format!("element {index}: {message}")),
                }
            };
            let told_apart = self.duplicates == Duplicates::Refused && !list.is_atomic();
            if told_apart && !seen.insert(step.clone()) {
                self.mistake(format!("duplicate entries for key {step}"));
            }
            self.below(Step::Item(step), item, None, list.item);
        }
    }

    fn fields(&mut self, fields: &'v Map<String, Value>, last: Option<&Map<String, Value>>, map: MapAtom<'_>) {
        for (name, value) in fields {
            let before = last.and_then(|last| last.get(name));
            if before == Some(value) {
                continue;
            }
            let step = Step::Field(name);
            match map.child(name) {
                Some(form) => self.below(step, value, before, form),
                None => {
                    self.way.push(step);
                    self.mistake("field not declared in schema".to_owned());
                    self.way.pop();
                    return;
                }
            }
        }
    }

    fn below(&mut self, step: Step<'v>, value: &'v Value, last: Option<&Value>, form: Form<'_>) {
        self.way.push(step);
        self.value(value, last, form);
        self.way.pop();
    }

    fn mistake(&mut self, message: String) {
        if self.mistakes.len() < MISTAKES_MAX {
            let way = self.way.iter().map(|step| match step {
                Step::Field(name) => Element::field(name),
                Step::Item(item) => item.clone(),
            });
            self.mistakes.push((path_text(&way.collect::<Vec<_>>()), message));
        }
    }
}

/// As Go prints a pointer to the value with `%v`.
fn printed(value: &Value) -> String {
    format!("&{{{}}}", value_text(value))
}

/// The type Go has for the value.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// As Go prints the value with `%#v`.
fn go_syntax(value: &Value) -> String {
    let joined = |parts: Vec<String>| parts.join(", ");
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::Bool(_) | Value::Number(_) => value_text(value),
        Value::String(text) => quote(text),
        Value::Array(items) => format!("{}{{{}}}", go_type(value), joined(items.iter().map(go_syntax).collect())),
        Value::Object(fields) => {
            let shown = fields.iter().map(|(name, value)| format!("{}:{}", quote(name), go_syntax(value))).collect();
            format!("{}{{{}}}", go_type(value), joined(shown))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::facts::kind_type;

    fn message(group_version: &str, kind: &str, value: Value) -> String {
        let form = Form::of(kind_type(group_version, kind).unwrap());
        validate(&value, form, Duplicates::Refused).map_or_else(|misfit| misfit.to_string(), |()| "fits".to_owned())
    }

    #[test]
    fn of_a_next_version_only_what_changed_is_looked_at() {
        let form = Form::of(kind_type("v1", "Service").unwrap());
        let next = |last: Value, next: Value| {
            let (last, next) = (json!({"spec": last}), json!({"spec": next}));
            validate_next(&next, &last, form, Duplicates::Allowed).map_err(|misfit| misfit.to_string())
        };
        let ports = |port: Value| json!({"type": "ClusterIP", "ports": [{"port": port}]});
        assert_eq!(next(ports(json!(1)), ports(json!(2))), Ok(()));
        let expected = r#".spec.ports[port="x",protocol="TCP"].port: expected numeric (int or float), got string"#;
        assert_eq!(next(ports(json!(1)), ports(json!("x"))), Err(expected.to_owned()));
        assert_eq!(next(json!({}), ports(json!("x"))), Err(expected.to_owned()));
        // What is stored is taken to fit.
        assert_eq!(next(ports(json!("x")), ports(json!("x"))), Ok(()));
    }

    #[test]
    fn what_does_not_fit_is_told_with_its_path() {
        for (spec, expected) in [
            (json!({"bogus": 1}), ".spec.bogus: field not declared in schema"),
            (json!(1), ".spec: expected map, got &{1}"),
            (json!({"ports": {"a": [1, "x"]}}), ".spec.ports: expected list, got &{map[a:[1 x]]}"),
            (
                json!({"ports": [{"port": "x"}]}),
                r#".spec.ports[port="x",protocol="TCP"].port: expected numeric (int or float), got string"#,
            ),
            (json!({"type": 1.5}), ".spec.type: expected string, got &value.valueUnstructured{Value:1.5}"),
            (
                json!({"type": {"a": [null, "b", true]}}),
                r#".spec.type: expected string, got &value.valueUnstructured{Value:map[string]interface {}{"a":[]interface {}{interface {}(nil), "b", true}}}"#,
            ),
            (json!({"publishNotReadyAddresses": "x"}), ".spec.publishNotReadyAddresses: expected boolean, got &{x}"),
            (
                json!({"externalIPs": [1]}),
                ".spec.externalIPs[0]: expected string, got &value.valueUnstructured{Value:1}",
            ),
            (
                json!({"ports": [{"port": 1, "targetPort": {}}]}),
                r#".spec.ports[port=1,protocol="TCP"].targetPort: expected any scalar, got &{map[]}"#,
            ),
            (
                json!({"ports": [{"port": 3}, {"port": 3}]}),
                r#".spec.ports: duplicate entries for key [port=3,protocol="TCP"]"#,
            ),
            (json!({"ports": [1]}), ".spec.ports: element 0: associative list with keys may not have non-map elements"),
            (json!({"ports": null, "type": null, "selector": null, "clusterIPs": null}), "fits"),
        ] {
            assert_eq!(message("v1", "Service", json!({"spec": spec})), expected);
        }
    }

    #[test]
    fn several_mistakes_are_listed_up_to_a_bound() {
        let found = message("v1", "ConfigMap", json!({"data": {"a": 1, "b": true}}));
        let line =
            |name, value| format!("  .data.{name}: expected string, got &value.valueUnstructured{{Value:{value}}}");
        assert_eq!(found, format!("errors:\n{}\n{}", line("a", "1"), line("b", "true")));
        let many: Map<_, _> = (0..1000).map(|n| (n.to_string(), json!(n))).collect();
        assert_eq!(message("v1", "ConfigMap", json!({"data": many})).lines().count(), 1 + MISTAKES_MAX);
    }

    #[test]
    fn duplicates_may_be_allowed() {
        let form = Form::of(kind_type("v1", "Service").unwrap());
        let twice = json!({"spec": {"ports": [{"port": 3}, {"port": 3}]}});
        assert_eq!(validate(&twice, form, Duplicates::Allowed), Ok(()));
    }
}
