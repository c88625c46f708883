//! PriorityLevelConfiguration: how many requests of one level run at once, and what happens to the others.

use std::borrow::Cow;

use serde_json::{Value, json};
use setpoint_api::BadValue;

use super::super::go_value::{self, Layout};
use super::{keep_all_but_status, validate_conditions};
use crate::behaviour::{Behaviour, Context, Generation, keep};
use crate::columns::{Column, field};
use crate::edit::Edit;
use crate::equality;
use crate::errors::Errors;
use crate::kind::Kind;
use crate::node::Node;

const QUEUES_MAX: i64 = 10_000_000;
/// Bits of the hash that requests are dealt to queues by.
const HASH_BITS_MAX: i64 = 60;
/// An annotation of older versions that says zero was meant; new objects say so themselves.
const ZERO_SHARES_ANNOTATION: &str = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares";

const QUEUING: &str = "io.k8s.api.flowcontrol.v1.QueuingConfiguration";

const COLUMNS: &[Column<'static>] = &[
    Column::NAME,
    Column::new("Type", "string", |object, _| field(object, &["spec", "type"]))
        .about_field("io.k8s.api.flowcontrol.v1.PriorityLevelConfigurationSpec", "type"),
    Column::new("NominalConcurrencyShares", "string", |object, _| limited(object, &["nominalConcurrencyShares"]))
        .about_field("io.k8s.api.flowcontrol.v1.LimitedPriorityLevelConfiguration", "nominalConcurrencyShares"),
    Column::new("Queues", "string", |object, _| queuing(object, "queues")).about_field(QUEUING, "queues"),
    Column::new("HandSize", "string", |object, _| queuing(object, "handSize")).about_field(QUEUING, "handSize"),
    Column::new("QueueLengthLimit", "string", |object, _| queuing(object, "queueLengthLimit"))
        .about_field(QUEUING, "queueLengthLimit"),
    Column::AGE,
];

const LAYOUT: Layout = Layout::Struct(&[
    ("Type", "type", Layout::Text),
    (
        "Limited",
        "limited",
        Layout::Pointer(&Layout::Struct(&[
            ("NominalConcurrencyShares", "nominalConcurrencyShares", Layout::Number),
            ("LimitResponse", "limitResponse", RESPONSE),
            ("LendablePercent", "lendablePercent", Layout::Json),
            ("BorrowingLimitPercent", "borrowingLimitPercent", Layout::Json),
        ])),
    ),
    (
        "Exempt",
        "exempt",
        Layout::Pointer(&Layout::Struct(&[
            ("NominalConcurrencyShares", "nominalConcurrencyShares", Layout::Json),
            ("LendablePercent", "lendablePercent", Layout::Json),
        ])),
    ),
]);
const RESPONSE: Layout = Layout::Struct(&[
    ("Type", "type", Layout::Text),
    (
        "Queuing",
        "queuing",
        Layout::Pointer(&Layout::Struct(&[
            ("Queues", "queues", Layout::Number),
            ("HandSize", "handSize", Layout::Number),
            ("QueueLengthLimit", "queueLengthLimit", Layout::Number),
        ])),
    ),
]);

/// The decisions of PriorityLevelConfiguration.
#[derive(Debug)]
pub struct PriorityLevelConfiguration;

impl Behaviour for PriorityLevelConfiguration {
    fn default(&self, object: &mut Value) {
        let spec = object.ensure("spec");
        if let Some(limited) = spec.child("limited") {
            limited.default_absent("nominalConcurrencyShares", 30);
            limited.default_absent("lendablePercent", 0);
            if let Some(queuing) = limited.find_mut(&["limitResponse", "queuing"]) {
                for (field, number) in [("handSize", 8), ("queues", 64), ("queueLengthLimit", 50)] {
                    if queuing.number(field).unwrap_or(0) == 0 {
                        queuing.set(field, number);
                    }
                }
            }
        }
        if let Some(exempt) = spec.child("exempt") {
            exempt.default_absent("nominalConcurrencyShares", 0);
            exempt.default_absent("lendablePercent", 0);
        }
    }

    fn prepare_create(&self, object: &mut Value, _context: &Context) {
        object.remove("status");
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, _context: &Context) {
        keep(new, old, &["status"]);
    }

    fn prepare_status_update(&self, new: &mut Value, old: &Value, _context: &Context) {
        keep_all_but_status(new, old);
    }

    fn validate(&self, object: &Node<'_>, errs: &mut Errors) {
        let annotations = object.get("metadata").get("annotations");
        if annotations.entry(ZERO_SHARES_ANNOTATION).is_set() {
            errs.forbidden(&annotations, format!("annotation '{ZERO_SHARES_ANNOTATION}' is forbidden"));
        }
        let (spec, name) = (object.get("spec"), object.get("metadata").str("name"));
        validate_spec(&spec, name, errs);
        validate_fixed(&spec, name, errs);
        validate_conditions(object, errs);
    }

    fn check_update(&self, kind: &Kind, new: &Node<'_>, _old: &Node<'_>, errs: &mut Errors) {
        self.check_create(kind, new, errs);
    }

    fn check_status_update(&self, _kind: &Kind, new: &Node<'_>, _old: &Node<'_>, errs: &mut Errors) {
        validate_conditions(new, errs);
    }

    fn generation(&self) -> Generation {
        Generation::On(&["spec"])
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        match subresource {
            "status" => &["metadata", "spec"],
            _ => &["status"],
        }
    }

    fn columns(&self) -> Cow<'_, [Column<'_>]> {
        COLUMNS.into()
    }
}

fn validate_spec(spec: &Node<'_>, own_name: &str, errs: &mut Errors) {
    let ty = spec.get("type");
    if (own_name == "exempt") != (ty.as_str() == "Exempt") {
        errs.invalid(&ty, ty.as_str(), "must be 'Exempt' if and only if `name` is 'exempt'");
    }
    let (limited, exempt) = (spec.get("limited"), spec.get("exempt"));
    match ty.as_str() {
        "Exempt" => {
            if limited.is_set() {
                errs.forbidden(&limited, "must be nil if the type is not Limited");
            }
            validate_not_negative(&exempt.get("nominalConcurrencyShares"), "must be a non-negative integer", errs);
            validate_percent(&exempt.get("lendablePercent"), errs);
        }
        "Limited" => {
            if exempt.is_set() {
                errs.forbidden(&exempt, "must be nil if the type is Limited");
            }
            if limited.is_set() {
                validate_limited(&limited, errs);
            } else {
                errs.required(&limited, "must not be empty when type is Limited");
            }
        }
        "" => errs.required(&ty, ""),
        other => errs.not_supported(&ty, other, &["Exempt", "Limited"]),
    }
}

fn validate_limited(limited: &Node<'_>, errs: &mut Errors) {
    validate_not_negative(&limited.get("nominalConcurrencyShares"), "must be a non-negative integer", errs);
    validate_response(&limited.get("limitResponse"), errs);
    validate_percent(&limited.get("lendablePercent"), errs);
    let borrowing = limited.get("borrowingLimitPercent");
    validate_not_negative(&borrowing, "if specified, must be a non-negative integer", errs);
}

fn validate_response(response: &Node<'_>, errs: &mut Errors) {
    let (ty, queuing) = (response.get("type"), response.get("queuing"));
    match ty.as_str() {
        "Reject" if queuing.is_set() => {
            errs.forbidden(&queuing, "must be nil if limited.limitResponse.type is not Limited");
        }
        "Reject" => {}
        "Queue" if queuing.is_set() => validate_queuing(&queuing, errs),
        "Queue" => errs.required(&queuing, "must not be empty if limited.limitResponse.type is Limited"),
        "" => errs.required(&ty, ""),
        other => errs.not_supported(&ty, other, &["Queue", "Reject"]),
    }
}

fn validate_queuing(queuing: &Node<'_>, errs: &mut Errors) {
    let number = |field: &'static str| queuing.int(field).unwrap_or(0);
    let (length, queues, hand) = (number("queueLengthLimit"), number("queues"), number("handSize"));
    if length <= 0 {
        errs.invalid(&queuing.get("queueLengthLimit"), length, "must be positive");
    }
    if queues <= 0 {
        errs.invalid(&queuing.get("queues"), queues, "must be positive");
    } else if queues > QUEUES_MAX {
        errs.invalid(&queuing.get("queues"), queues, format!("must not be greater than {QUEUES_MAX}"));
    }
    let at = queuing.get("handSize");
    if hand <= 0 {
        errs.invalid(&at, hand, "must be positive");
    } else if hand > queues {
        errs.invalid(&at, hand, format!("should not be greater than queues ({queues})"));
    } else if entropy_bits(queues, hand) > HASH_BITS_MAX {
        let detail = format!(
            "required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {HASH_BITS_MAX}"
        );
        errs.invalid(&at, hand, detail);
    }
}

/// How many bits choose a hand of queues.
fn entropy_bits(queues: i64, hand: i64) -> i64 {
    ((queues as f64).log2() * hand as f64).ceil() as i64
}

fn validate_not_negative(at: &Node<'_>, detail: &str, errs: &mut Errors) {
    if at.as_int().is_some_and(|number| number < 0) {
        errs.invalid_here(at, detail);
    }
}

fn validate_percent(at: &Node<'_>, errs: &mut Errors) {
    if at.as_int().is_some_and(|number| !(0..=100).contains(&number)) {
        errs.invalid_here(at, "must be between 0 and 100, inclusive");
    }
}

/// The levels that the server itself relies on are fixed, but for the shares of `exempt`.
fn validate_fixed(spec: &Node<'_>, own_name: &str, errs: &mut Errors) {
    let detail = match own_name {
        "exempt" if spec.str("type") != "Exempt" || spec.has("limited") => {
            "spec of 'exempt' except the 'spec.exempt' field must equal the fixed value"
        }
        "catch-all" => {
            let response = json!({"type": "Reject"});
            let limited = json!({"nominalConcurrencyShares": 5, "lendablePercent": 0, "limitResponse": response});
            if equality::semantic(spec.json(), &json!({"type": "Limited", "limited": limited}), spec.ty()) {
                return;
            }
            "spec of 'catch-all' must equal the fixed value"
        }
        _ => return,
    };
    errs.invalid(spec, BadValue::Json(go_value::laid_out(spec.value(), &LAYOUT)), detail);
}

fn limited(object: &Value, way: &[&str]) -> Value {
    let found = object.find(&["spec", "limited"]).and_then(|limited| limited.find(way));
    found.cloned().unwrap_or_else(|| json!("<none>"))
}

fn queuing(object: &Value, field: &str) -> Value {
    limited(object, &["limitResponse", "queuing", field])
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{columns, create, create_fails};
    use super::*;

    const V1: &str = "flowcontrol.apiserver.k8s.io/v1";

    fn level(limited: Value) -> Value {
        json!({"metadata": {"name": "p"}, "spec": {"type": "Limited", "limited": limited}})
    }

    #[test]
    fn shares_and_queues_have_defaults() {
        let body = level(json!({"limitResponse": {"type": "Queue", "queuing": {}}}));
        let object = create(V1, "prioritylevelconfigurations", body);
        let row = columns(V1, "prioritylevelconfigurations", &object);
        assert_eq!(row, json!(["p", "Limited", 30, 64, 8, 50, "<unknown>"]));
    }

    #[test]
    fn a_hand_is_not_too_large_to_be_dealt() {
        let queuing = json!({"queues": QUEUES_MAX, "handSize": 20});
        create_fails(
            V1,
            "prioritylevelconfigurations",
            level(json!({"limitResponse": {"type": "Queue", "queuing": queuing}})),
            "spec.limited.limitResponse.queuing.handSize: Invalid value: 20: required entropy bits of deckSize 10000000 and \
             handSize 20 should not be greater than 60",
        );
    }

    #[test]
    fn only_exempt_is_exempt() {
        create_fails(
            V1,
            "prioritylevelconfigurations",
            json!({"metadata": {"name": "p"}, "spec": {"type": "Exempt"}}),
            "spec.type: Invalid value: \"Exempt\": must be 'Exempt' if and only if `name` is 'exempt'",
        );
    }
}
