//! Where a pod may run: affinity, tolerations, spreading, gates.

use std::collections::BTreeSet;

use setpoint_api::labels::ValueRules;
use setpoint_api::name;

use super::options::Options;
use crate::builtin::label_selector;
use crate::errors::Errors;
use crate::node::Node;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const WITHOUT_SELECTOR: &str = "must not be specified when labelSelector is not set";
const KEY_TWICE: &str = "exists in both matchLabelKeys and labelSelector";
const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// The rules for affinity.
pub fn validate_affinity(spec: &Node<'_>, options: &Options, errs: &mut Errors) {
    let node = spec.get("affinity").get("nodeAffinity");
    if node.has(REQUIRED) {
        validate_node_selector(&node.get(REQUIRED), rules(options.invalid_node_affinity_values), errs);
    }
    for term in node.items(PREFERRED) {
        validate_weight(&term, errs);
        validate_node_term(&term.get("preference"), ValueRules::Lenient, errs);
    }
    let values = rules(options.invalid_affinity_values);
    for kind in ["podAffinity", "podAntiAffinity"] {
        let pods = spec.get("affinity").get(kind);
        pods.items(REQUIRED).for_each(|term| validate_pod_term(&term, values, errs));
        for weighted in pods.items(PREFERRED) {
            validate_weight(&weighted, errs);
            validate_pod_term(&weighted.get("podAffinityTerm"), values, errs);
        }
    }
}

/// All terms of pod affinity and anti-affinity, with those inside of weighted ones.
pub fn pod_affinity_terms<'a>(spec: &Node<'a>) -> impl Iterator<Item = Node<'a>> + use<'a> {
    let affinity = spec.get("affinity");
    ["podAffinity", "podAntiAffinity"].into_iter().flat_map(move |kind| {
        let pods = affinity.get(kind);
        let weighted = pods.items(PREFERRED).map(|term| term.get("podAffinityTerm"));
        pods.items(REQUIRED).chain(weighted).collect::<Vec<_>>()
    })
}

/// The rules for a selector of nodes.
pub fn validate_node_selector(selector: &Node<'_>, values: ValueRules, errs: &mut Errors) {
    let terms = selector.get("nodeSelectorTerms");
    if terms.is_empty() {
        errs.required(&terms, "must have at least one node selector term");
    }
    terms.into_items().for_each(|term| validate_node_term(&term, values, errs));
}

/// The rules for tolerations.
pub fn validate_tolerations(list: &Node<'_>, options: &Options, errs: &mut Errors) {
    for toleration in list.clone().into_items() {
        let (key, operator, value) = (toleration.str("key"), toleration.get("operator"), toleration.str("value"));
        let effect = toleration.get("effect");
        if key.is_empty() {
            if operator.as_str() != "Exists" {
                let detail =
                    "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
                errs.invalid(&operator, operator.as_str(), detail);
            }
        } else {
            errs.invalid_each(&toleration.get("key"), key, name::qualified_name(key));
        }
        if toleration.has("tolerationSeconds") && effect.as_str() != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errs.invalid(&effect, effect.as_str(), detail);
        }
        validate_operator(&toleration, &operator, value, options, errs);
        if !effect.as_str().is_empty() && !EFFECTS.contains(&effect.as_str()) {
            errs.not_supported(&effect, effect.as_str(), &EFFECTS);
        }
    }
}

/// The rules for spreading over parts of the cluster.
pub fn validate_spread(spec: &Node<'_>, options: &Options, errs: &mut Errors) {
    let constraints: Vec<Node<'_>> = spec.items("topologySpreadConstraints").collect();
    for (index, constraint) in constraints.iter().enumerate() {
        validate_positive(&constraint.get("maxSkew"), errs);
        let (key, when) = (constraint.str("topologyKey"), constraint.get("whenUnsatisfiable"));
        if key.is_empty() {
            errs.required(&constraint.get("topologyKey"), "can not be empty");
        }
        let actions = ["DoNotSchedule", "ScheduleAnyway"];
        if !actions.contains(&when.as_str()) {
            errs.not_supported(&when, when.as_str(), &actions);
        }
        let pair = |other: &Node<'_>| (other.str("topologyKey").to_owned(), other.str("whenUnsatisfiable").to_owned());
        if constraints[index + 1..].iter().any(|other| pair(other) == pair(constraint)) {
            let at = constraint.at_child("{topologyKey, whenUnsatisfiable}");
            errs.duplicate(&at, format!("{{{key}, {}}}", when.as_str()));
        }
        validate_min_domains(constraint, when.as_str(), errs);
        for policy in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            let at = constraint.get(policy);
            if at.is_set() && !["Honor", "Ignore"].contains(&at.as_str()) {
                errs.not_supported(&at, at.as_str(), &["Honor", "Ignore"]);
            }
        }
        if options.spread_keys_in_selector {
            validate_legacy_label_keys(constraint, errs);
        } else {
            validate_label_keys(constraint, false, errs);
        }
        if !options.invalid_spread_selector {
            label_selector::validate(&constraint.get("labelSelector"), ValueRules::Strict, errs);
        }
    }
}

/// The rules for keys whose values come from the pod itself, and that the selector must not have already.
pub fn validate_label_keys(term: &Node<'_>, has_mismatch: bool, errs: &mut Errors) {
    let lists: &[&'static str] =
        if has_mismatch { &["matchLabelKeys", "mismatchLabelKeys"] } else { &["matchLabelKeys"] };
    let selector = term.get("labelSelector");
    for list in lists {
        if selector.is_set() {
            for key in term.items(list) {
                errs.invalid_each(&key, key.as_str(), name::qualified_name(key.as_str()));
            }
        } else if term.count(list) > 0 {
            errs.forbidden(&term.get(list), WITHOUT_SELECTOR);
        }
    }
    // A key that the server merged into the selector stands there once; twice means that the author wrote it too.
    let keys: Vec<&str> = term.strings("matchLabelKeys").collect();
    let mut seen: BTreeSet<&str> = selector.entries("matchLabels").map(|(key, _)| key).collect();
    for key in selector.items("matchExpressions").map(|expression| expression.str("key")) {
        if let Some(index) = keys.iter().rposition(|other| *other == key).filter(|_| seen.contains(key)) {
            errs.invalid(&term.at_index(index), key, KEY_TWICE);
        }
        seen.insert(key);
    }
    if has_mismatch {
        let mismatched: BTreeSet<&str> = term.strings("mismatchLabelKeys").collect();
        for key in term.items("matchLabelKeys").filter(|key| mismatched.contains(key.as_str())) {
            errs.invalid(&key, key.as_str(), "exists in both matchLabelKeys and mismatchLabelKeys");
        }
    }
}

/// The rules for readiness gates and scheduling gates.
pub fn validate_gates(spec: &Node<'_>, errs: &mut Errors) {
    for gate in spec.items("readinessGates") {
        let condition = gate.str("conditionType");
        errs.invalid_each(&gate.at_child("conditionType"), condition, name::qualified_name(condition));
    }
    let mut seen = BTreeSet::new();
    for gate in spec.items("schedulingGates") {
        let name = gate.str("name");
        errs.invalid_each(&gate, name, name::qualified_name(name));
        if !seen.insert(name) {
            errs.duplicate(&gate, name);
        }
    }
}

fn validate_legacy_label_keys(constraint: &Node<'_>, errs: &mut Errors) {
    let selector = constraint.get("labelSelector");
    let list = constraint.get("matchLabelKeys");
    if list.is_empty() {
        return;
    }
    if !selector.is_set() {
        errs.forbidden(&list, WITHOUT_SELECTOR);
    }
    let labels = selector.entries("matchLabels").map(|(key, _)| key);
    let known: BTreeSet<&str> = labels.chain(selector.items("matchExpressions").map(|e| e.str("key"))).collect();
    for key in list.into_items() {
        errs.invalid_each(&key, key.as_str(), name::qualified_name(key.as_str()));
        if known.contains(key.as_str()) {
            errs.invalid(&key, key.as_str(), KEY_TWICE);
        }
    }
}

fn validate_min_domains(constraint: &Node<'_>, when: &str, errs: &mut Errors) {
    let at = constraint.get("minDomains");
    if at.is_set() {
        validate_positive(&at, errs);
        if when != "DoNotSchedule" {
            let detail = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {when}");
            errs.invalid_here(&at, detail);
        }
    }
}

fn validate_positive(at: &Node<'_>, errs: &mut Errors) {
    let number = at.as_int().unwrap_or(0);
    if number <= 0 {
        errs.invalid(at, number, "must be greater than zero");
    }
}

fn validate_operator(toleration: &Node<'_>, operator: &Node<'_>, value: &str, options: &Options, errs: &mut Errors) {
    match operator.as_str() {
        "Equal" | "" => {
            let complaints = name::label_value(value);
            if !complaints.is_empty() {
                errs.invalid(&toleration.get("value").at(operator.path()), value, complaints.join(";"));
            }
        }
        "Exists" => {
            if !value.is_empty() {
                let at = toleration.get("value").at(operator.path());
                errs.invalid(&at, value, "value must be empty when `operator` is 'Exists'");
            }
        }
        compared @ ("Lt" | "Gt") if !options.comparing_tolerations => {
            errs.not_supported(operator, compared, &["Equal", "Exists", "Lt", "Gt"]);
        }
        "Lt" | "Gt" => {
            let is_number = value.parse::<i64>().is_ok_and(|number| number.to_string() == value);
            if !is_number {
                errs.invalid(&toleration.get("value"), value, "must be a valid decimal integer in canonical form");
            }
        }
        other => errs.not_supported(operator, other, &["Equal", "Exists"]),
    }
}

fn validate_weight(term: &Node<'_>, errs: &mut Errors) {
    let weight = term.int("weight").unwrap_or(0);
    if !(1..=100).contains(&weight) {
        errs.invalid(&term.get("weight"), weight, "must be in the range 1-100");
    }
}

fn validate_pod_term(term: &Node<'_>, values: ValueRules, errs: &mut Errors) {
    for selector in ["labelSelector", "namespaceSelector"] {
        label_selector::validate(&term.get(selector), values, errs);
    }
    for namespace in term.strings("namespaces") {
        errs.invalid_each(&term.at_child("namespace"), namespace, name::dns1123_label(namespace));
    }
    validate_label_keys(term, true, errs);
    let key = term.get("topologyKey");
    if key.as_str().is_empty() {
        errs.required(&key, "can not be empty");
    }
    errs.invalid_each(&key, key.as_str(), name::qualified_name(key.as_str()));
}

fn validate_node_term(term: &Node<'_>, values: ValueRules, errs: &mut Errors) {
    for expression in term.items("matchExpressions") {
        validate_node_expression(&expression, values, errs);
    }
    for requirement in term.items("matchFields") {
        validate_node_field(&requirement, errs);
    }
}

fn validate_node_expression(expression: &Node<'_>, values: ValueRules, errs: &mut Errors) {
    let (operator, list) = (expression.get("operator"), expression.get("values"));
    let count = expression.count("values");
    match operator.as_str() {
        "In" | "NotIn" if count == 0 => {
            errs.required(&list, "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if count > 0 => {
            errs.forbidden(&list, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
        }
        "Gt" | "Lt" if count != 1 => {
            errs.required(&list, "must be specified single value when `operator` is 'Lt' or 'Gt'");
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        other => errs.invalid(&operator, other, "not a valid selector operator"),
    }
    let key = expression.get("key");
    errs.invalid_each(&key, key.as_str(), name::qualified_name(key.as_str()));
    if values == ValueRules::Strict {
        for value in list.into_items() {
            errs.invalid_each(&value, value.as_str(), name::label_value(value.as_str()));
        }
    }
}

fn validate_node_field(requirement: &Node<'_>, errs: &mut Errors) {
    let (operator, key) = (requirement.get("operator"), requirement.get("key"));
    match operator.as_str() {
        "In" | "NotIn" => {
            if requirement.count("values") != 1 {
                let detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
                errs.required(&requirement.get("values"), detail);
            }
        }
        other => errs.invalid(&operator, other, "not a valid selector operator"),
    }
    if key.as_str() != "metadata.name" {
        errs.invalid(&key, key.as_str(), "not a valid field selector key");
        return;
    }
    for value in requirement.items("values") {
        errs.invalid_each(&value, value.as_str(), name::dns1123_subdomain(value.as_str()));
    }
}

fn rules(lenient: bool) -> ValueRules {
    if lenient { ValueRules::Lenient } else { ValueRules::Strict }
}
