//! FlowSchema: which requests belong to which priority level.

use std::borrow::Cow;

use serde_json::{Value, json};
use setpoint_api::{BadValue, name};

use super::super::go_value::{self, Layout};
use super::{keep_all_but_status, validate_conditions};
use crate::behaviour::{Behaviour, Context, Generation, keep};
use crate::columns::{Column, field};
use crate::edit::Edit;
use crate::equality;
use crate::errors::Errors;
use crate::kind::Kind;
use crate::node::Node;

const PRECEDENCE_MAX: i64 = 10_000;
const DISTINGUISHERS: &[&str] = &["ByNamespace", "ByUser"];
const VERBS: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];

const SPEC: &str = "io.k8s.api.flowcontrol.v1.FlowSchemaSpec";

const COLUMNS: &[Column<'static>] = &[
    Column::NAME,
    Column::new("PriorityLevel", "string", |object, _| field(object, &["spec", "priorityLevelConfiguration", "name"]))
        .about_field("io.k8s.api.flowcontrol.v1.PriorityLevelConfigurationReference", "name"),
    Column::new("MatchingPrecedence", "string", |object, _| field(object, &["spec", "matchingPrecedence"]))
        .about_field(SPEC, "matchingPrecedence"),
    Column::new("DistinguisherMethod", "string", |object, _| {
        object.find(&["spec", "distinguisherMethod", "type"]).cloned().unwrap_or_else(|| json!("<none>"))
    })
    .about_field(SPEC, "distinguisherMethod"),
    Column::AGE,
    Column::new("MissingPL", "string", missing_level)
        .about("references a broken or non-existent PriorityLevelConfiguration"),
];

const LAYOUT: Layout = Layout::Struct(&[
    ("PriorityLevelConfiguration", "priorityLevelConfiguration", Layout::Struct(&[("Name", "name", Layout::Text)])),
    ("MatchingPrecedence", "matchingPrecedence", Layout::Number),
    ("DistinguisherMethod", "distinguisherMethod", Layout::Pointer(&DISTINGUISHER)),
    ("Rules", "rules", Layout::List(&RULE)),
]);
const DISTINGUISHER: Layout = Layout::Struct(&[("Type", "type", Layout::Text)]);
const NAMED: Layout = Layout::Struct(&[("Name", "name", Layout::Text)]);
const ACCOUNT: Layout = Layout::Struct(&[("Namespace", "namespace", Layout::Text), ("Name", "name", Layout::Text)]);
const RULE: Layout = Layout::Struct(&[
    (
        "Subjects",
        "subjects",
        Layout::List(&Layout::Struct(&[
            ("Kind", "kind", Layout::Text),
            ("User", "user", Layout::Pointer(&NAMED)),
            ("Group", "group", Layout::Pointer(&NAMED)),
            ("ServiceAccount", "serviceAccount", Layout::Pointer(&ACCOUNT)),
        ])),
    ),
    (
        "ResourceRules",
        "resourceRules",
        Layout::List(&Layout::Struct(&[
            ("Verbs", "verbs", Layout::Json),
            ("APIGroups", "apiGroups", Layout::Json),
            ("Resources", "resources", Layout::Json),
            ("ClusterScope", "clusterScope", Layout::Flag),
            ("Namespaces", "namespaces", Layout::Json),
        ])),
    ),
    (
        "NonResourceRules",
        "nonResourceRules",
        Layout::List(&Layout::Struct(&[
            ("Verbs", "verbs", Layout::Json),
            ("NonResourceURLs", "nonResourceURLs", Layout::Json),
        ])),
    ),
]);

/// The decisions of FlowSchema.
#[derive(Debug)]
pub struct FlowSchema;

impl Behaviour for FlowSchema {
    fn default(&self, object: &mut Value) {
        let spec = object.ensure("spec");
        if spec.number("matchingPrecedence").unwrap_or(0) == 0 {
            spec.set("matchingPrecedence", 1000);
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
        let (spec, name) = (object.get("spec"), object.get("metadata").str("name"));
        validate_spec(&spec, name, errs);
        if fixed(name).is_some_and(|fixed| !equality::semantic(spec.json(), &fixed, spec.ty())) {
            let shown = BadValue::Json(go_value::laid_out(spec.value(), &LAYOUT));
            errs.invalid(&spec, shown, format!("spec of '{name}' must equal the fixed value"));
        }
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

/// The schemas that nobody can change, so that the server stays reachable.
fn fixed(name: &str) -> Option<Value> {
    let groups = |names: &[&str]| -> Value {
        names.iter().map(|name| json!({"kind": "Group", "group": {"name": name}})).collect()
    };
    let rules = |subjects: Value| {
        json!([{
            "subjects": subjects,
            "resourceRules": [{
                "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true, "namespaces": ["*"],
            }],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
        }])
    };
    match name {
        "exempt" => Some(json!({
            "priorityLevelConfiguration": {"name": "exempt"},
            "matchingPrecedence": 1,
            "rules": rules(groups(&["system:masters"])),
        })),
        "catch-all" => Some(json!({
            "priorityLevelConfiguration": {"name": "catch-all"},
            "matchingPrecedence": PRECEDENCE_MAX,
            "distinguisherMethod": {"type": "ByUser"},
            "rules": rules(groups(&["system:unauthenticated", "system:authenticated"])),
        })),
        _ => None,
    }
}

fn validate_spec(spec: &Node<'_>, own_name: &str, errs: &mut Errors) {
    let precedence = spec.get("matchingPrecedence");
    match precedence.as_int().unwrap_or(0) {
        ..=0 => errs.invalid_here(&precedence, "must be a positive value"),
        1 if own_name != "exempt" => {
            errs.invalid_here(&precedence, "only the schema named 'exempt' may have matchingPrecedence 1");
        }
        number if number > PRECEDENCE_MAX => {
            errs.invalid_here(&precedence, format!("must not be greater than {PRECEDENCE_MAX}"));
        }
        _ => {}
    }
    let distinguisher = spec.get("distinguisherMethod");
    if distinguisher.is_set() && !DISTINGUISHERS.contains(&distinguisher.str("type")) {
        let shown = BadValue::Json(go_value::laid_out(distinguisher.value(), &DISTINGUISHER));
        errs.not_supported(&distinguisher.get("type"), shown, DISTINGUISHERS);
    }
    let level = spec.get("priorityLevelConfiguration").get("name");
    if level.is_empty() {
        errs.required(&level, "must reference a priority level");
    } else {
        errs.invalid_each(&level, level.as_str(), name::dns1123_subdomain(level.as_str()));
    }
    for rule in spec.items("rules") {
        validate_rule(&rule, errs);
    }
}

fn validate_rule(rule: &Node<'_>, errs: &mut Errors) {
    if rule.count("subjects") == 0 {
        errs.required(&rule.get("subjects"), "subjects must contain at least one value");
    }
    for subject in rule.items("subjects") {
        validate_subject(&subject, errs);
    }
    if rule.count("resourceRules") == 0 && rule.count("nonResourceRules") == 0 {
        errs.required(rule, "at least one of resourceRules and nonResourceRules has to be non-empty");
    }
    for resources in rule.items("resourceRules") {
        validate_resources(&resources, errs);
    }
    for urls in rule.items("nonResourceRules") {
        validate_verbs(&urls.get("verbs"), errs);
        validate_urls(&urls.get("nonResourceURLs"), errs);
    }
}

/// A subject has what its kind says and nothing else.
fn validate_subject(subject: &Node<'_>, errs: &mut Errors) {
    const KINDS: [(&str, &str); 3] = [("ServiceAccount", "serviceAccount"), ("User", "user"), ("Group", "group")];
    let kind = subject.get("kind");
    let Some((_, own)) = KINDS.iter().find(|(known, _)| *known == kind.as_str()) else {
        return errs.not_supported(&kind, kind.as_str(), &["Group", "ServiceAccount", "User"]);
    };
    let who = subject.get(own);
    if !who.is_set() {
        errs.required(&who, format!("{own} is required when subject kind is '{}'", kind.as_str()));
    } else if *own == "serviceAccount" {
        validate_account(&who, errs);
    } else if who.str("name").is_empty() {
        errs.required(&who.get("name"), "");
    }
    for (other, field) in KINDS.iter().filter(|(_, field)| field != own && subject.has(field)) {
        errs.forbidden(&subject.get(field), format!("{field} is forbidden when subject kind is not '{other}'"));
    }
}

fn validate_account(account: &Node<'_>, errs: &mut Errors) {
    let (who, namespace) = (account.get("name"), account.get("namespace"));
    match who.as_str() {
        "" => errs.required(&who, ""),
        "*" => {}
        text => errs.invalid_each(&who, text, name::dns1123_subdomain(text)),
    }
    if namespace.is_empty() {
        errs.required(&namespace, "must specify namespace for service account");
    } else {
        errs.invalid_each(&namespace, namespace.as_str(), name::dns1123_label(namespace.as_str()));
    }
}

fn validate_resources(rule: &Node<'_>, errs: &mut Errors) {
    validate_verbs(&rule.get("verbs"), errs);
    for (field, one, many) in [("apiGroups", "api group", "api groups"), ("resources", "resource", "resources")] {
        let list = rule.get(field);
        if list.is_empty() {
            errs.required(&list, format!("resource rules must supply at least one {one}"));
        }
        star_stands_alone(&list, many, errs);
    }
    let namespaces = rule.get("namespaces");
    if namespaces.is_empty() && !rule.bool("clusterScope") {
        let detail = "resource rules that are not cluster scoped must supply at least one namespace";
        return errs.required(&namespaces, detail);
    }
    if star_stands_alone(&namespaces, "namespaces", errs) {
        return;
    }
    for namespace in namespaces.into_items() {
        for complaint in name::dns1123_label(namespace.as_str()) {
            let detail = format!("each member of this list must be '*' or a DNS-1123 label; {complaint}");
            errs.invalid_here(&namespace, detail);
        }
    }
}

fn validate_verbs(verbs: &Node<'_>, errs: &mut Errors) {
    if verbs.is_empty() {
        errs.required(verbs, "verbs must contain at least one value");
    } else if !star_stands_alone(verbs, "verbs", errs)
        && !verbs.clone().into_items().all(|verb| VERBS.contains(&verb.as_str()))
    {
        errs.not_supported(verbs, verbs.json(), VERBS);
    }
}

fn validate_urls(urls: &Node<'_>, errs: &mut Errors) {
    if urls.is_empty() {
        return errs.required(urls, "nonResourceURLs must contain at least one value");
    }
    if star_stands_alone(urls, "non-resource URLs", errs) {
        return;
    }
    for url in urls.clone().into_items() {
        let text = url.as_str();
        let stars = text.matches('*').count();
        let complaint = match text {
            "" => "must not be empty",
            "/" => continue,
            _ if !text.starts_with('/') => "must start with slash",
            _ if text.contains(' ') => "must not contain white-space",
            _ if text.contains("//") => "must not contain double slash",
            _ if stars > 1 || (stars == 1 && !text.ends_with("/*")) => "wildcard can only do suffix matching",
            _ => continue,
        };
        errs.invalid_here(&url, complaint);
    }
}

/// Whether the list has a star; then it may have nothing else.
fn star_stands_alone(list: &Node<'_>, what: &str, errs: &mut Errors) -> bool {
    let mut items = list.clone().into_items();
    let count = items.len();
    let star = items.any(|item| item.as_str() == "*");
    if star && count > 1 {
        errs.invalid_here(list, format!("if '*' is present, must not specify other {what}"));
    }
    star
}

fn missing_level(object: &Value, _now: i64) -> Value {
    let conditions = object.find(&["status", "conditions"]).and_then(Value::as_array);
    let dangling = conditions.into_iter().flatten().find(|condition| condition.text("type") == "Dangling");
    json!(dangling.map_or("?", |condition| condition.text("status")))
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{columns, create, create_fails};
    use super::*;

    const V1: &str = "flowcontrol.apiserver.k8s.io/v1";

    fn schema(rules: Value) -> Value {
        json!({"metadata": {"name": "s"}, "spec": {"priorityLevelConfiguration": {"name": "p"}, "rules": rules}})
    }

    #[test]
    fn a_schema_has_a_precedence_and_shows_what_is_missing() {
        let object = create(V1, "flowschemas", schema(json!([])));
        assert_eq!(columns(V1, "flowschemas", &object), json!(["s", "p", 1000, "<none>", "<unknown>", "?"]));
    }

    #[test]
    fn a_subject_has_what_its_kind_says() {
        let subjects = json!([{"kind": "User", "group": {"name": "g"}}]);
        create_fails(
            V1,
            "flowschemas",
            schema(json!([{"subjects": subjects, "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["/a*"]}]}])),
            "[spec.rules[0].subjects[0].user: Required value: user is required when subject kind is 'User', \
             spec.rules[0].subjects[0].group: Forbidden: group is forbidden when subject kind is not 'Group', \
             spec.rules[0].nonResourceRules[0].nonResourceURLs[0]: Invalid value: \"/a*\": wildcard can only do suffix matching]",
        );
    }

    #[test]
    fn the_schemas_of_the_server_itself_are_fixed() {
        let body = |spec: Value| json!({"metadata": {"name": "exempt"}, "spec": spec});
        create(V1, "flowschemas", body(fixed("exempt").unwrap()));
        create_fails(
            V1,
            "flowschemas",
            body(json!({"priorityLevelConfiguration": {"name": "exempt"}, "matchingPrecedence": 1})),
            "spec: Invalid value: {\"PriorityLevelConfiguration\":{\"Name\":\"exempt\"},\"MatchingPrecedence\":1,\
             \"DistinguisherMethod\":null,\"Rules\":null}: spec of 'exempt' must equal the fixed value",
        );
    }
}
