//! `x-kubernetes-validations`: rules in CEL that values must keep, compiled against the schema they stand in.
//! What they may cost is told from the sizes that the schema allows, and limited.

use std::sync::Arc;

use setpoint_api::BadValue;

use super::super::go_value::{self, Layout};
use super::field_path::{Brackets, resolve};
use super::schema::Surrounding;
use super::structural;
use crate::cel::{Declared, Environment, Program, Type};
use crate::errors::Errors;
use crate::node::Node;

const REASONS: &[&str] = &["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

const LAYOUT: Layout = Layout::Struct(&[
    ("Rule", "rule", Layout::Text),
    ("Message", "message", Layout::Text),
    ("MessageExpression", "messageExpression", Layout::Text),
    ("Reason", "reason", Layout::Json),
    ("FieldPath", "fieldPath", Layout::Text),
    ("OptionalOldSelf", "optionalOldSelf", Layout::Json),
]);

/// The most that one rule may cost. As upstream.
const RULE_COST_MAX: u64 = 10_000_000;
/// The most that all rules of a schema may cost together. As upstream.
const SCHEMA_COST_MAX: u64 = 100_000_000;
/// How many of the dearest rules are told when all cost too much. As upstream.
const DEAREST_MAX: usize = 4;

/// Where rules stand.
pub(super) struct Place<'a> {
    pub(super) around: &'a Surrounding,
    /// What rules see of values here; None if they can't be compiled.
    pub(super) seen: Option<&'a Arc<Declared>>,
}

/// What all rules of a schema may cost.
#[derive(Debug, Default)]
pub(super) struct Costs {
    total: u64,
    /// Paths of rules that cost much, dearest first.
    dearest: Vec<(String, u64)>,
}

impl Costs {
    fn add(&mut self, at: &Node<'_>, cost: u64) {
        self.total = self.total.saturating_add(cost);
        if cost < SCHEMA_COST_MAX / 100 {
            return;
        }
        self.dearest.push((at.path(), cost));
        self.dearest.sort_by_key(|(_, cost)| std::cmp::Reverse(*cost));
        self.dearest.truncate(DEAREST_MAX);
    }

    /// That all rules together don't cost too much.
    pub(super) fn validate(&self, root: &Node<'_>, errs: &mut Errors) {
        if self.total <= SCHEMA_COST_MAX {
            return;
        }
        for (path, _) in &self.dearest {
            let detail = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
            errs.forbidden(&root.at(path.clone()), detail);
        }
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        errs.forbidden(root, too_dear(what, self.total, SCHEMA_COST_MAX));
    }
}

fn too_dear(what: &str, cost: u64, limit: u64) -> String {
    let times = cost as f64 / limit as f64;
    let factor = match times {
        times if times > 100.0 => "more than 100x".to_owned(),
        times if times < 1.5 => format!("{times:.6}x"),
        times => format!("{times:.1}x"),
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and \
         maxLength where arrays, maps, and strings are declared)"
    )
}

/// The rules of one schema. They are compiled only if the schema itself is sound and its type is known.
pub(super) fn validate_rules(
    schema: &Node<'_>,
    place: &Place<'_>,
    errs: &mut Errors,
    rule_errs: &mut Errors,
    costs: &mut Costs,
) {
    let before = errs.len();
    for rule in schema.items("x-kubernetes-validations") {
        validate_texts(&rule, schema, errs);
    }
    let Some(seen) = place.seen.filter(|_| errs.len() == before) else { return };
    for rule in schema.items("x-kubernetes-validations") {
        compile(&rule, place.around, seen, rule_errs, costs);
    }
}

fn validate_texts(rule: &Node<'_>, schema: &Node<'_>, errs: &mut Errors) {
    let (text, message) = (rule.get("rule"), rule.get("message"));
    let breaks = |text: &str| text.contains(['\n', '\r']);
    let (trimmed, said) = (text.as_str().trim(), message.as_str().trim());
    if trimmed.is_empty() {
        errs.required(&text, "rule is not specified");
    } else if !message.is_empty() && said.is_empty() {
        errs.invalid_here(&message, "must be non-empty if specified");
    } else if breaks(said) {
        errs.invalid_here(&message, "must not contain line breaks");
    } else if breaks(trimmed) && said.is_empty() {
        errs.required(&message, "message must be specified if rule contains line breaks");
    }
    let explains = rule.get("messageExpression");
    if !explains.is_empty() && explains.as_str().trim().is_empty() {
        errs.required(&explains, "messageExpression must be non-empty if specified");
    }
    let reason = rule.get("reason");
    if reason.is_set() && !REASONS.contains(&reason.as_str()) {
        errs.not_supported(&reason, reason.as_str(), REASONS);
    }
    let path = rule.get("fieldPath");
    if path.is_empty() {
        return;
    }
    if path.as_str().trim().is_empty() {
        errs.invalid_here(&path, "must be non-empty if specified");
    }
    if breaks(path.as_str()) {
        errs.invalid_here(&path, "must not contain line breaks");
    }
    // In a schema that has no structure there is nothing to find.
    let has_structure = structural::obstacle(schema.json()).is_none();
    if has_structure && resolve(path.as_str(), schema.json(), Brackets::Allowed).is_err() {
        errs.invalid_here(&path, "must be a valid path");
    }
}

fn compile(rule: &Node<'_>, here: &Surrounding, seen: &Arc<Declared>, errs: &mut Errors, costs: &mut Costs) {
    let (text, optional) = (rule.get("rule"), rule.get("optionalOldSelf"));
    let mut environment = Environment::default();
    environment.declare_schema("self", seen);
    let old = seen.ty().clone();
    environment.declare("oldSelf", if optional.as_bool() == Some(true) { Type::optional(old) } else { old });
    let shown = || BadValue::Json(go_value::laid_out(rule.value(), &LAYOUT));
    let program = match Program::compile(text.as_str(), &environment) {
        Err(detail) => return errs.invalid(&text, shown(), detail),
        Ok(program) if *program.ty() == Type::Bool => program,
        Ok(_) => return errs.invalid(&text, shown(), "cel expression must evaluate to a bool"),
    };
    let count = here.cardinality.unwrap_or_else(|| seen.cardinality_max());
    let cost = program.estimate().max.saturating_mul(count);
    if cost > RULE_COST_MAX {
        errs.forbidden(&text, too_dear("estimated rule cost", cost, RULE_COST_MAX));
    }
    costs.add(&text, cost);
    let explains = rule.get("messageExpression");
    if !explains.is_empty() {
        match Program::compile(explains.as_str(), &environment) {
            Err(detail) => errs.invalid(&explains, shown(), format!("messageExpression {detail}")),
            Ok(explanation) if *explanation.ty() == Type::String => {
                let cost = explanation.estimate().max;
                if cost > RULE_COST_MAX {
                    errs.forbidden(&explains, too_dear("estimated messageExpression cost", cost, RULE_COST_MAX));
                }
                costs.add(&explains, cost);
            }
            Ok(_) => errs.invalid(&explains, shown(), "messageExpression must evaluate to a string"),
        }
    }
    if program.uses("oldSelf") {
        if let Some(around) = &here.uncorrelated {
            let detail = format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {around}");
            errs.invalid_here(&text, detail);
        }
    } else if optional.is_set() {
        errs.invalid_here(&optional, "may not be set if oldSelf is not used in rule");
    }
}
