//! FlowSchemas: which requests belong together, and to which priority level they go.

use serde_json::Value;
use setpoint_schema::Edit;

use crate::authorization::{Asked, What};
use crate::user::User;

/// One schema, read.
#[derive(Debug)]
pub(super) struct Schema {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) level: String,
    precedence: i64,
    flows: Flows,
    rules: Vec<Rule>,
}

/// How the requests of a schema are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flows {
    One,
    ByUser,
    ByNamespace,
}

#[derive(Debug)]
struct Rule {
    subjects: Vec<Subject>,
    resources: Vec<ResourceRule>,
    paths: Vec<PathRule>,
}

#[derive(Debug)]
enum Subject {
    User(String),
    Group(String),
    Account { namespace: String, name: String },
}

#[derive(Debug)]
struct ResourceRule {
    verbs: Texts,
    groups: Texts,
    resources: Texts,
    namespaces: Texts,
    cluster: bool,
}

#[derive(Debug)]
struct PathRule {
    verbs: Texts,
    paths: Vec<String>,
}

/// A list of texts in which `*` alone stands for all.
#[derive(Debug)]
struct Texts(Vec<String>);

impl Texts {
    fn read(list: &Value) -> Texts {
        Texts(texts(list))
    }

    fn has(&self, text: &str) -> bool {
        self.0.iter().any(|one| one == text || one == "*")
    }
}

fn texts(list: &Value) -> Vec<String> {
    items(list).filter_map(Value::as_str).map(str::to_owned).collect()
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// Puts schemas into the order in which they are asked: those that come first win.
pub(super) fn order(schemas: &mut [Schema]) {
    schemas.sort_by(|a, b| (a.precedence, &a.name).cmp(&(b.precedence, &b.name)));
}

impl Schema {
    pub(super) fn read(object: &Value) -> Schema {
        let spec = &object["spec"];
        let flows = match spec["distinguisherMethod"].text("type") {
            "ByUser" => Flows::ByUser,
            "ByNamespace" => Flows::ByNamespace,
            _ => Flows::One,
        };
        Schema {
            name: object["metadata"].text("name").to_owned(),
            uid: object["metadata"].text("uid").to_owned(),
            level: spec["priorityLevelConfiguration"].text("name").to_owned(),
            precedence: spec.number("matchingPrecedence").unwrap_or(1000),
            flows,
            rules: items(&spec["rules"]).map(Rule::read).collect(),
        }
    }

    /// Whether a request is one of those that the schema is for.
    pub(super) fn takes(&self, user: &User, asked: &Asked<'_>) -> bool {
        self.rules.iter().any(|rule| rule.matches(user, asked))
    }

    /// What tells the flow of a request from others of the schema.
    pub(super) fn flow<'a>(&self, user: &'a User, asked: &Asked<'a>) -> &'a str {
        match (self.flows, asked.what) {
            (Flows::One, _) => "",
            (Flows::ByUser, _) => &user.name,
            (Flows::ByNamespace, What::Resource { namespace, .. }) => namespace,
            (Flows::ByNamespace, What::Path(_)) => "",
        }
    }
}

impl Rule {
    fn read(rule: &Value) -> Rule {
        let resource = |it: &Value| ResourceRule {
            verbs: Texts::read(&it["verbs"]),
            groups: Texts::read(&it["apiGroups"]),
            resources: Texts::read(&it["resources"]),
            namespaces: Texts::read(&it["namespaces"]),
            cluster: it.flag("clusterScope"),
        };
        Rule {
            subjects: items(&rule["subjects"]).filter_map(Subject::read).collect(),
            resources: items(&rule["resourceRules"]).map(resource).collect(),
            paths: items(&rule["nonResourceRules"])
                .map(|it| PathRule { verbs: Texts::read(&it["verbs"]), paths: texts(&it["nonResourceURLs"]) })
                .collect(),
        }
    }

    fn matches(&self, user: &User, asked: &Asked<'_>) -> bool {
        self.subjects.iter().any(|subject| subject.is(user))
            && match asked.what {
                What::Resource { .. } => self.resources.iter().any(|rule| rule.matches(asked)),
                What::Path(path) => self.paths.iter().any(|rule| rule.matches(asked.verb, path)),
            }
    }
}

impl Subject {
    fn read(subject: &Value) -> Option<Subject> {
        Some(match subject.text("kind") {
            "User" => Subject::User(subject["user"].text("name").to_owned()),
            "Group" => Subject::Group(subject["group"].text("name").to_owned()),
            "ServiceAccount" => {
                let of = &subject["serviceAccount"];
                Subject::Account { namespace: of.text("namespace").to_owned(), name: of.text("name").to_owned() }
            }
            _ => return None,
        })
    }

    fn is(&self, user: &User) -> bool {
        match self {
            Subject::User(name) => name == "*" || *name == user.name,
            Subject::Group(name) => name == "*" || user.groups.contains(name),
            Subject::Account { namespace, name } => {
                let account = user.name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
                account.is_some_and(|(within, account)| within == namespace && (name == "*" || name == account))
            }
        }
    }
}

impl ResourceRule {
    fn matches(&self, asked: &Asked<'_>) -> bool {
        let What::Resource { group, resource, subresource, namespace, .. } = asked.what else { return false };
        let is_named = match subresource {
            "" => self.resources.has(resource),
            part => self.resources.0.iter().any(|one| {
                one == "*" || one.strip_prefix(resource).and_then(|rest| rest.strip_prefix('/')) == Some(part)
            }),
        };
        let is_placed = if namespace.is_empty() { self.cluster } else { self.namespaces.has(namespace) };
        self.verbs.has(asked.verb) && is_named && self.groups.has(group) && is_placed
    }
}

impl PathRule {
    fn matches(&self, verb: &str, path: &str) -> bool {
        let is_below = |rule: &str| {
            let prefix = rule.strip_suffix('*').unwrap_or(rule);
            path.strip_prefix(prefix).is_some_and(|rest| prefix.ends_with('/') || rest.starts_with('/'))
        };
        self.verbs.has(verb) && self.paths.iter().any(|rule| rule == "*" || rule == path || is_below(rule))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pods(verb: &'static str, subresource: &'static str, namespace: &'static str) -> Asked<'static> {
        Asked::new(verb, What::Resource { group: "", resource: "pods", subresource, namespace, name: "" })
    }

    fn schema(subject: Value, resource: Value, path: Value) -> Schema {
        let rules = json!([{"subjects": [subject], "resourceRules": [resource], "nonResourceRules": [path]}]);
        Schema::read(
            &json!({"metadata": {"name": "s"}, "spec": {"rules": rules, "distinguisherMethod": {"type": "ByNamespace"}}}),
        )
    }

    #[test]
    fn a_schema_takes_what_its_rules_say() {
        let ann = User { name: "ann".into(), groups: vec!["g".into()], ..User::default() };
        let robot = User { name: "system:serviceaccount:n:robot".into(), ..User::default() };
        let user = |name: &str| json!({"kind": "User", "user": {"name": name}});
        let group = |name: &str| json!({"kind": "Group", "group": {"name": name}});
        let account =
            |name: &str| json!({"kind": "ServiceAccount", "serviceAccount": {"namespace": "n", "name": name}});
        let rule =
            json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods", "pods/status"], "namespaces": ["n"]});
        for (subject, who, expected) in [
            (user("ann"), &ann, true),
            (user("*"), &ann, true),
            (user("bob"), &ann, false),
            (group("g"), &ann, true),
            (group("h"), &ann, false),
            (account("*"), &ann, false),
            (account("*"), &robot, true),
            (account("robot"), &robot, true),
            (account("other"), &robot, false),
        ] {
            let schema = schema(subject.clone(), rule.clone(), Value::Null);
            assert_eq!(schema.takes(who, &pods("get", "", "n")), expected, "{subject}");
        }
        let schema = schema(user("*"), rule, json!({"verbs": ["get"], "nonResourceURLs": ["/version", "/logs/*"]}));
        for (asked, expected) in [
            (pods("get", "status", "n"), true),
            (pods("get", "log", "n"), false),
            (pods("list", "", "n"), false),
            (pods("get", "", "m"), false),
            (pods("get", "", ""), false),
            (Asked::of_path("get", "/version"), true),
            (Asked::of_path("get", "/version/x"), true),
            (Asked::of_path("get", "/versions"), false),
            (Asked::of_path("get", "/logs/a"), true),
            (Asked::of_path("post", "/version"), false),
        ] {
            assert_eq!(schema.takes(&ann, &asked), expected, "{asked:?}");
        }
        assert_eq!(schema.flow(&ann, &pods("get", "", "n")), "n");
    }
}
