//! Which requests are written down, and how much of them: the first rule that fits a request decides.

use std::fmt;

use serde_json::Value;
use setpoint_api::{BadValue, FieldError, Path, field, name};
use setpoint_schema::{Edit, yaml};

use super::{Level, Stage};
use crate::authorization::{Asked, What};
use crate::user::User;

/// Most rules of a policy: every request is compared with them.
const RULES_MAX: usize = 1000;

const API_VERSION: &str = "audit.k8s.io/v1";
const LEVELS: [&str; 4] = ["None", "Metadata", "Request", "RequestResponse"];
const STAGES: [&str; 4] = ["RequestReceived", "ResponseStarted", "ResponseComplete", "Panic"];

/// What is written down where nobody says: who did what, of everything but the pulse of the cluster.
const DEFAULT: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
# Probes and scrapes, some each second.
- level: None
  verbs: [get, head]
  nonResourceURLs: ["/healthz*", "/livez*", "/readyz*", "/version", "/metrics"]
# Heartbeats and elections of the cluster's own parts.
- level: None
  userGroups: ["system:nodes", "system:serviceaccounts:kube-system"]
  resources: [{group: coordination.k8s.io, resources: [leases]}]
# Events are a log themselves.
- level: None
  resources: [{group: "", resources: [events]}, {group: events.k8s.io, resources: [events]}]
- level: Metadata
"#;

/// What is written down of which requests.
#[derive(Clone, Debug)]
pub struct Policy {
    rules: Vec<Rule>,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy::parse(DEFAULT.as_bytes()).expect("the default is a policy")
    }
}

impl Policy {
    /// One that writes down nothing.
    pub fn none() -> Policy {
        Policy { rules: Vec::new() }
    }

    /// Reads a `Policy` of `audit.k8s.io/v1`, in YAML or JSON. All that is wrong is told at once, by field.
    pub fn parse(bytes: &[u8]) -> Result<Policy, PolicyError> {
        let document = yaml::parse(bytes).map_err(|error| PolicyError(format!("failed decoding: {error}")))?;
        let document = document.json.into_value();
        let (version, kind) = (document.text("apiVersion"), document.text("kind"));
        if version != API_VERSION || kind != "Policy" {
            let why =
                format!("expected apiVersion {API_VERSION:?} and kind \"Policy\", found {version:?} and {kind:?}");
            return Err(PolicyError(why));
        }
        let mut errors = Vec::new();
        let policy = read_policy(&document, &mut errors);
        match field::aggregate(&errors) {
            Some(all) => Err(PolicyError(all)),
            None if policy.rules.is_empty() => Err(PolicyError("loaded illegal policy with 0 rules".to_owned())),
            None => Ok(policy),
        }
    }

    /// How much of a request is written down.
    pub(super) fn decide(&self, user: Option<&User>, asked: &Asked<'_>) -> Decision {
        let found = self.rules.iter().find(|rule| rule.fits(user, asked));
        found.map_or(Decision::default(), |rule| rule.decision)
    }
}

/// How much of one request is written down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Decision {
    pub(super) level: Level,
    /// By the order of the stages.
    omitted: [bool; 4],
    pub(super) omit_managed_fields: bool,
}

impl Decision {
    pub(super) fn omits(&self, stage: Stage) -> bool {
        self.omitted[stage as usize]
    }
}

/// Why a policy can't be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyError(String);

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PolicyError {}

/// Everything that a rule names has to fit; what it names nothing of always does.
#[derive(Clone, Debug)]
struct Rule {
    decision: Decision,
    users: Vec<String>,
    groups: Vec<String>,
    verbs: Vec<String>,
    resources: Vec<Resources>,
    namespaces: Vec<String>,
    paths: Vec<String>,
}

/// Resources of a group; of all groups, if it is `*`.
#[derive(Clone, Debug)]
struct Resources {
    group: String,
    resources: Vec<String>,
    names: Vec<String>,
}

impl Rule {
    fn fits(&self, user: Option<&User>, asked: &Asked<'_>) -> bool {
        let by_name = self.users.is_empty() || user.is_some_and(|user| has(&self.users, &user.name));
        let by_group =
            self.groups.is_empty() || user.is_some_and(|user| user.groups.iter().any(|group| has(&self.groups, group)));
        let by_verb = self.verbs.is_empty() || has(&self.verbs, asked.verb);
        by_name && by_group && by_verb && self.fits_what(&asked.what)
    }

    fn fits_what(&self, what: &What<'_>) -> bool {
        match *what {
            What::Path(path) if self.namespaces.is_empty() && self.resources.is_empty() => {
                self.paths.is_empty() || self.paths.iter().any(|known| path_fits(path, known))
            }
            What::Path(_) => false,
            What::Resource { group, resource, subresource, namespace, name } => {
                let somewhere = self.namespaces.is_empty() || has(&self.namespaces, namespace);
                let known = self.resources.is_empty()
                    || self.resources.iter().any(|known| known.fits(group, resource, subresource, name));
                let any = self.namespaces.is_empty() && self.resources.is_empty();
                if any { self.paths.is_empty() } else { somewhere && known }
            }
        }
    }
}

impl Resources {
    fn fits(&self, group: &str, resource: &str, subresource: &str, name: &str) -> bool {
        let named = self.names.is_empty() || has(&self.names, name);
        let listed = || {
            named
                && self.resources.iter().any(|known| match known.split_once('/') {
                    None => known == "*" || known == resource && subresource.is_empty(),
                    Some(("*", part)) => !subresource.is_empty() && part == subresource,
                    Some((whole, "*")) => whole == resource,
                    Some((whole, part)) => whole == resource && !subresource.is_empty() && part == subresource,
                })
        };
        (self.group == group || self.group == "*") && (self.resources.is_empty() || listed())
    }
}

fn has(list: &[String], text: &str) -> bool {
    list.iter().any(|item| item == text)
}

fn path_fits(path: &str, known: &str) -> bool {
    known == path || known.strip_suffix('*').is_some_and(|start| path.starts_with(start))
}

fn read_policy(document: &Value, errors: &mut Vec<FieldError>) -> Policy {
    let omitted = read_stages(document, &Path::nil(), [false; 4], errors);
    let omit_managed_fields = read_flag(document, &Path::nil(), "omitManagedFields", errors).unwrap_or(false);
    let base = Decision { level: Level::None, omitted, omit_managed_fields };
    let path = Path::root("rules");
    let rules = read_list(document, "rules", &path, errors);
    if rules.len() > RULES_MAX {
        errors.push(FieldError::too_many(&path, Some(rules.len()), RULES_MAX));
        return Policy::none();
    }
    let rules = rules.iter().enumerate();
    Policy { rules: rules.map(|(index, rule)| read_rule(rule, &path.index(index), base, errors)).collect() }
}

fn read_rule(rule: &Value, path: &Path<'_>, base: Decision, errors: &mut Vec<FieldError>) -> Rule {
    let level = read_level(rule, &path.child("level"), errors);
    let texts = |name: &str, errors: &mut Vec<FieldError>| read_texts(rule, name, &path.child(name), errors);
    let paths = texts("nonResourceURLs", errors);
    check_paths(&paths, &path.child("nonResourceURLs"), errors);
    let known = path.child("resources");
    let resources = read_list(rule, "resources", &known, errors);
    let resources: Vec<Resources> =
        resources.iter().enumerate().map(|(at, one)| read_resources(one, &known.index(at), errors)).collect();
    let namespaces = texts("namespaces", errors);
    if !paths.is_empty() && (!resources.is_empty() || !namespaces.is_empty()) {
        let why = "rules cannot apply to both regular resources and non-resource URLs";
        errors.push(FieldError::invalid(&path.child("nonResourceURLs"), BadValue::encode(&paths), why));
    }
    let omitted = read_stages(rule, path, base.omitted, errors);
    let omit_managed_fields = read_flag(rule, path, "omitManagedFields", errors).unwrap_or(base.omit_managed_fields);
    Rule {
        decision: Decision { level, omitted, omit_managed_fields },
        users: texts("users", errors),
        groups: texts("userGroups", errors),
        verbs: texts("verbs", errors),
        resources,
        namespaces,
        paths,
    }
}

fn read_level(rule: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) -> Level {
    match rule.text("level") {
        "None" => Level::None,
        "Metadata" => Level::Metadata,
        "Request" => Level::Request,
        "RequestResponse" => Level::RequestResponse,
        "" => {
            errors.push(FieldError::required(path, ""));
            Level::None
        }
        other => {
            errors.push(FieldError::not_supported(path, other, &LEVELS));
            Level::None
        }
    }
}

fn read_resources(value: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) -> Resources {
    let group = value.text("group").to_owned();
    if !group.is_empty() && group != "*" {
        let complaints = name::dns1123_subdomain(&group);
        if !complaints.is_empty() {
            errors.push(FieldError::invalid(&path.child("group"), &group, complaints.join(",")));
        }
    }
    let resources = read_texts(value, "resources", &path.child("resources"), errors);
    let names = read_texts(value, "resourceNames", &path.child("resourceNames"), errors);
    if !names.is_empty() && resources.is_empty() {
        let why = "using resourceNames requires at least one resource";
        errors.push(FieldError::invalid(&path.child("resourceNames"), BadValue::encode(&names), why));
    }
    Resources { group, resources, names }
}

fn check_paths(paths: &[String], at: &Path<'_>, errors: &mut Vec<FieldError>) {
    for (index, path) in paths.iter().enumerate().filter(|(_, path)| *path != "*") {
        if !path.starts_with('/') {
            let why = "non-resource URL rules must begin with a '/' character";
            errors.push(FieldError::invalid(&at.index(index), path, why));
        }
        if path.find('*').is_some_and(|star| star + 1 < path.len()) {
            let why = "non-resource URL wildcards '*' must be the final character of the rule";
            errors.push(FieldError::invalid(&at.index(index), path, why));
        }
    }
}

/// The stages that are left out, with those that are anyway.
fn read_stages(value: &Value, path: &Path<'_>, base: [bool; 4], errors: &mut Vec<FieldError>) -> [bool; 4] {
    let path = path.child("omitStages");
    let mut omitted = base;
    for (index, text) in read_texts(value, "omitStages", &path, errors).iter().enumerate() {
        match STAGES.iter().position(|stage| stage == text) {
            Some(stage) => omitted[stage] = true,
            None => {
                let why = format!("allowed stages are {}", STAGES.join(","));
                errors.push(FieldError::invalid(&path.index(index), text, why));
            }
        }
    }
    omitted
}

fn read_flag(value: &Value, path: &Path<'_>, name: &str, errors: &mut Vec<FieldError>) -> Option<bool> {
    match value.get(name) {
        None | Some(Value::Null) => None,
        Some(Value::Bool(flag)) => Some(*flag),
        Some(other) => {
            errors.push(FieldError::type_invalid(&path.child(name), other, "must be a boolean"));
            None
        }
    }
}

fn read_list<'v>(value: &'v Value, name: &str, path: &Path<'_>, errors: &mut Vec<FieldError>) -> &'v [Value] {
    match value.get(name) {
        None | Some(Value::Null) => &[],
        Some(Value::Array(items)) => items,
        Some(other) => {
            errors.push(FieldError::type_invalid(path, other, "must be a list"));
            &[]
        }
    }
}

fn read_texts(value: &Value, name: &str, path: &Path<'_>, errors: &mut Vec<FieldError>) -> Vec<String> {
    let mut texts = Vec::new();
    for (index, item) in read_list(value, name, path, errors).iter().enumerate() {
        match item.as_str() {
            Some(text) => texts.push(text.to_owned()),
            None => errors.push(FieldError::type_invalid(&path.index(index), item, "must be a string")),
        }
    }
    texts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(rules: &str) -> String {
        let text = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\n{rules}");
        Policy::parse(text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn what_is_wrong_is_told_with_its_field() {
        let check = |rules: &str, expected: &str| assert_eq!(refused(rules), expected, "{rules}");
        check("rules: []", "loaded illegal policy with 0 rules");
        check("rules: 7", "rules: Invalid value: 7: must be a list");
        check("rules: [{}]", "rules[0].level: Required value");
        check(
            "rules: [{level: All}]",
            r#"rules[0].level: Unsupported value: "All": supported values: "None", "Metadata", "Request", "RequestResponse""#,
        );
        check(
            "rules: [{level: None, omitStages: [Start]}]",
            r#"rules[0].omitStages[0]: Invalid value: "Start": allowed stages are RequestReceived,ResponseStarted,ResponseComplete,Panic"#,
        );
        check(
            "rules: [{level: None, nonResourceURLs: [metrics]}]",
            r#"rules[0].nonResourceURLs[0]: Invalid value: "metrics": non-resource URL rules must begin with a '/' character"#,
        );
        check(
            "rules: [{level: None, nonResourceURLs: [/a*b]}]",
            r#"rules[0].nonResourceURLs[0]: Invalid value: "/a*b": non-resource URL wildcards '*' must be the final character of the rule"#,
        );
        check(
            "rules: [{level: None, nonResourceURLs: [/a], namespaces: [b]}]",
            r#"rules[0].nonResourceURLs: Invalid value: ["/a"]: rules cannot apply to both regular resources and non-resource URLs"#,
        );
        check(
            "rules: [{level: None, resources: [{resourceNames: [a]}]}]",
            r#"rules[0].resources[0].resourceNames: Invalid value: ["a"]: using resourceNames requires at least one resource"#,
        );
        check("rules: [{level: None, users: [7]}]", "rules[0].users[0]: Invalid value: 7: must be a string");
        assert!(
            refused("rules: [{level: None, resources: [{group: A/v1}]}]").starts_with("rules[0].resources[0].group")
        );
        let other = Policy::parse(b"apiVersion: v1\nkind: Policy").unwrap_err().to_string();
        assert!(other.contains("expected apiVersion \"audit.k8s.io/v1\""), "{other}");
    }

    /// The level of a policy with this one rule of level `Request`, for a request of alice, who is a developer.
    fn check(rule: &str, verb: &str, what: What<'_>, expected: Level) {
        let text = format!(
            "{{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{{level: Request, {rule}}}, {{level: None}}]}}"
        );
        let policy = Policy::parse(text.as_bytes()).unwrap();
        let alice = User { name: "alice".into(), groups: vec!["developers".into()], ..User::default() };
        assert_eq!(policy.decide(Some(&alice), &Asked::new(verb, what)).level, expected, "{rule}: {verb} {what:?}");
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        let resource =
            |subresource| What::Resource { group: "", resource: "pods", subresource, namespace: "a", name: "p" };
        let (pod, log, path) = (resource(""), resource("log"), What::Path("/healthz/etcd"));
        let (yes, no) = (Level::Request, Level::None);
        for (rule, what, expected) in [
            ("users: [alice]", pod, yes),
            ("users: [bob]", pod, no),
            ("userGroups: [developers]", path, yes),
            ("verbs: [list]", pod, no),
            ("namespaces: [a]", pod, yes),
            ("namespaces: ['']", pod, no),
            ("namespaces: [a]", path, no),
            ("resources: [{group: ''}]", log, yes),
            ("resources: [{group: apps}]", pod, no),
            ("resources: [{group: '*', resources: [pods]}]", pod, yes),
            ("resources: [{resources: [pods]}]", log, no),
            ("resources: [{resources: [pods/log]}]", log, yes),
            ("resources: [{resources: [pods/log]}]", pod, no),
            ("resources: [{resources: ['pods/*']}]", log, yes),
            ("resources: [{resources: ['*/log']}]", log, yes),
            ("resources: [{resources: ['*']}]", log, yes),
            ("resources: [{resources: [pods], resourceNames: [p]}]", pod, yes),
            ("resources: [{resources: [pods], resourceNames: [q]}]", pod, no),
            ("nonResourceURLs: ['/healthz*']", path, yes),
            ("nonResourceURLs: ['*']", path, yes),
            ("nonResourceURLs: [/healthz]", path, no),
            ("nonResourceURLs: ['*']", pod, no),
        ] {
            check(rule, "get", what, expected);
        }
    }

    #[test]
    fn stages_of_the_policy_and_of_a_rule_are_left_out_together() {
        let text = "{apiVersion: audit.k8s.io/v1, kind: Policy, omitStages: [Panic], omitManagedFields: true, rules: [
            {level: Metadata, omitStages: [RequestReceived], omitManagedFields: false}]}";
        let policy = Policy::parse(text.as_bytes()).unwrap();
        let decision = policy.decide(None, &Asked::new("get", What::Path("/api")));
        assert_eq!(decision.omitted, [true, false, false, true]);
        assert!(!decision.omit_managed_fields);
    }

    #[test]
    fn the_default_writes_down_who_did_what_but_not_the_pulse() {
        let policy = Policy::default();
        let node = User { name: "system:node:a".into(), groups: vec!["system:nodes".into()], ..User::default() };
        let level = |verb, what| policy.decide(Some(&node), &Asked::new(verb, what)).level;
        let resource = |group, resource| What::Resource { group, resource, subresource: "", namespace: "a", name: "b" };
        assert_eq!(level("get", What::Path("/readyz")), Level::None);
        assert_eq!(level("get", What::Path("/api")), Level::Metadata);
        assert_eq!(level("update", resource("coordination.k8s.io", "leases")), Level::None);
        assert_eq!(level("create", resource("", "events")), Level::None);
        assert_eq!(level("get", resource("", "secrets")), Level::Metadata);
    }
}
