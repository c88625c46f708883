//! Policies that judge objects.

use std::sync::Arc;

use serde_json::{Value, json};
use setpoint_api::{Status, StatusCause};
use setpoint_schema::Edit;
use setpoint_schema::builtin::admissionregistration::Scope;
use setpoint_schema::cel::{self, Budget};

use super::{Binding, Bound, Common, inputs, namespace_seen, select, shown_name};
use crate::admission::expression::{Evaluation, Expression, Inputs, Met, Seen};
use crate::admission::notes::Notes;
use crate::admission::pod_resources::items;
use crate::admission::request::Request;
use crate::registry::Served;

/// Longest message that an expression may make. As upstream.
const MESSAGE_BYTES_MAX: usize = 5 * 1024;

/// Longest annotation. As upstream.
const ANNOTATION_BYTES_MAX: usize = 10 * 1024;

const FAILURE: &str = "validation.policy.admission.k8s.io/validation_failure";

/// A ValidatingAdmissionPolicy.
pub(in crate::admission) struct Validating {
    common: Common,
    validations: Vec<Validation>,
    annotations: Vec<(String, Expression)>,
}

impl AsRef<Common> for Validating {
    fn as_ref(&self) -> &Common {
        &self.common
    }
}

struct Validation {
    expression: Expression,
    message: String,
    message_expression: Option<Expression>,
    reason: String,
}

impl Validation {
    fn read(validation: &Value, scope: &Scope) -> Validation {
        let message = validation.text("messageExpression");
        Validation {
            expression: Expression::compile(validation.text("expression"), scope),
            message: validation.text("message").trim().to_owned(),
            message_expression: (!message.is_empty())
                .then(|| Expression::compile(message, &scope.without_authorizer())),
            reason: validation.text("reason").to_owned(),
        }
    }
}

/// What one expression of a policy says against a request.
struct Complaint {
    message: String,
    reason: String,
    /// The place of the expression.
    index: usize,
}

/// What a policy says of a request.
#[derive(Default)]
struct Judgement {
    complaints: Vec<Complaint>,
    annotations: Vec<(String, String)>,
    /// What is wrong with annotations: refused whatever the binding says.
    wrong: Vec<String>,
}

impl Validating {
    pub(in crate::admission) fn read(policy: &Value) -> Arc<Validating> {
        let (common, scope) = Common::read(policy);
        let spec = &policy["spec"];
        let validations = items(spec, "validations").map(|one| Validation::read(one, &scope)).collect();
        let plain = scope.without_authorizer();
        let annotations = items(spec, "auditAnnotations")
            .map(|one| (one.text("key").to_owned(), Expression::compile(one.text("valueExpression"), &plain)));
        Arc::new(Validating { validations, annotations: annotations.collect(), common })
    }

    fn judge(&self, inputs: &Inputs) -> Judgement {
        let mut judgement = Judgement::default();
        let fails = |message: String| Judgement {
            complaints: match self.common.strict {
                true => vec![Complaint { message, reason: String::new(), index: 0 }],
                false => Vec::new(),
            },
            ..Judgement::default()
        };
        let mut evaluation = Evaluation::new(inputs, &self.common.variables);
        match self.common.conditions.judge(&mut evaluation) {
            Met::Yes => {}
            Met::No => return judgement,
            Met::Unknown(why) => return fails(why),
        }
        let mut budget = Budget::full();
        let mut results = Vec::with_capacity(self.validations.len());
        for validation in &self.validations {
            match evaluation.run(&validation.expression, &mut budget) {
                Ok(result) => results.push(result),
                Err(over) => return fails(over),
            }
        }
        for (index, (validation, result)) in self.validations.iter().zip(results).enumerate() {
            let said = match result {
                Ok(cel::Value::Bool(true)) => None,
                Ok(_) => match message(validation, &mut evaluation, &mut budget) {
                    Ok(message) => {
                        let reason = if validation.reason.is_empty() { "Invalid" } else { &validation.reason };
                        Some((message, reason.to_owned()))
                    }
                    Err(over) => {
                        self.common.strict.then(|| (format!("failed messageExpression: {over}"), String::new()))
                    }
                },
                Err(why) => self.common.strict.then_some((why, String::new())),
            };
            judgement.complaints.extend(said.map(|(message, reason)| Complaint { message, reason, index }));
        }
        self.annotate(&mut evaluation, &mut judgement);
        judgement
    }

    fn annotate<'a>(&'a self, evaluation: &mut Evaluation<'a>, judgement: &mut Judgement) {
        let mut budget = Budget::full();
        for (key, expression) in &self.annotations {
            let value = match evaluation.run(expression, &mut budget) {
                Ok(Ok(value)) => value,
                Ok(Err(why)) | Err(why) => {
                    judgement.wrong.extend(self.common.strict.then_some(why));
                    continue;
                }
            };
            if let Some(text) = value.as_str().map(str::trim).filter(|text| !text.is_empty()) {
                let mut end = text.len().min(ANNOTATION_BYTES_MAX);
                while !text.is_char_boundary(end) {
                    end -= 1;
                }
                judgement.annotations.push((key.clone(), text[..end].to_owned()));
            }
        }
    }
}

/// What is told of a validation that failed. Only a lack of budget is an error.
fn message<'a>(
    validation: &'a Validation,
    evaluation: &mut Evaluation<'a>,
    budget: &mut Budget,
) -> Result<String, String> {
    if let Some(expression) = &validation.message_expression
        && let Ok(value) = evaluation.run(expression, budget)?
    {
        let text = value.as_str().map(str::trim).unwrap_or_default();
        if !text.is_empty() && text.len() <= MESSAGE_BYTES_MAX && !text.contains('\n') {
            return Ok(text.to_owned());
        }
    }
    Ok(match &*validation.message {
        "" => format!("failed expression: {}", validation.expression.text.trim()),
        message => message.to_owned(),
    })
}

/// Lets policies judge an object.
pub(in crate::admission) async fn validate(
    policies: &[Bound<Validating>],
    request: &Request<'_>,
    object: Option<&Value>,
    old: Option<&Value>,
    notes: &mut Notes,
) -> Result<(), Box<Status>> {
    let (invocations, wrong) = select(policies, request, object, old).await;
    let mut denied: Option<(String, String)> = None;
    for one in wrong.iter().filter(|one| one.policy.strict) {
        let name = &one.policy.name;
        let message = match one.binding {
            Some(binding) => {
                let (binding, why) = (&binding.name, &one.why);
                format!(
                    "ValidatingAdmissionPolicy '{name}' with binding '{binding}' denied request: failed to configure binding: {why}"
                )
            }
            None => {
                format!("ValidatingAdmissionPolicy '{name}' denied request: failed to configure policy: {}", one.why)
            }
        };
        denied.get_or_insert((message, String::new()));
    }
    if invocations.is_empty() && denied.is_none() {
        return Ok(());
    }
    let namespace = namespace_seen(request)?;
    let mut published: Vec<(String, String)> = Vec::new();
    // Once for each version, however many policies look at it.
    let mut versions: Vec<(&Arc<Served>, Arc<Seen>)> = Vec::new();
    for invocation in &invocations {
        let known = versions.iter().find(|(served, _)| Arc::ptr_eq(&served.kind, &invocation.served.kind));
        let seen = match known {
            Some((_, seen)) => Arc::clone(seen),
            None => {
                let seen = Seen::new(request, &invocation.served, object, old, &namespace).await?;
                versions.push((&invocation.served, Arc::clone(&seen)));
                seen
            }
        };
        let inputs = inputs(invocation, &seen);
        let judgement = invocation.policy.judge(&inputs);
        let (policy, binding) = (&invocation.policy.common.name, invocation.binding);
        let told = |message: &str| {
            let binding = &binding.name;
            format!("ValidatingAdmissionPolicy '{policy}' with binding '{binding}' denied request: {message}")
        };
        for complaint in &judgement.complaints {
            for action in &binding.actions {
                match &**action {
                    "Deny" => drop(denied.get_or_insert_with(|| (told(&complaint.message), complaint.reason.clone()))),
                    "Warn" => notes.warnings.push(format!(
                        "Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{}': {}",
                        binding.name, complaint.message
                    )),
                    "Audit" => notes.annotate(FAILURE, failure(complaint, policy, binding)),
                    _ => {}
                }
            }
        }
        for why in &judgement.wrong {
            denied.get_or_insert_with(|| (told(why), String::new()));
        }
        for (key, value) in judgement.annotations {
            publish(&mut published, format!("{policy}/{key}"), value);
        }
    }
    notes.annotations.extend(published);
    match denied {
        None => Ok(()),
        Some((message, reason)) => Err(refusal(request, object, message, &reason)),
    }
}

/// Several bindings that say the same say it once.
fn publish(published: &mut Vec<(String, String)>, key: String, value: String) {
    match published.iter_mut().find(|(known, _)| *known == key) {
        Some((_, known)) if known.split(", ").any(|one| one == value) => {}
        Some((_, known)) => *known = format!("{known}, {value}"),
        None => published.push((key, value)),
    }
}

/// What the audit log is told of a failure.
fn failure(complaint: &Complaint, policy: &str, binding: &Binding) -> String {
    json!([{
        "message": complaint.message, "policy": policy, "binding": binding.name,
        "expressionIndex": complaint.index, "validationActions": binding.actions,
    }])
    .to_string()
}

fn refusal(request: &Request<'_>, object: Option<&Value>, message: String, reason: &str) -> Box<Status> {
    let mut status = Status::forbidden(&request.resource(), &shown_name(request, object), &message);
    let reason = if reason.is_empty() { "Invalid" } else { reason };
    status.reason = reason.to_owned();
    status.code = match reason {
        "Forbidden" => 403,
        "Unauthorized" => 401,
        "RequestEntityTooLarge" => 413,
        _ => 422,
    };
    Box::new(status.with_cause(StatusCause { message, ..StatusCause::default() }))
}
