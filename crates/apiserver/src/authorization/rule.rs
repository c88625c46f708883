//! One rule of a role: verbs on resources, or on paths.

use serde_json::{Value, json};

use super::{Asked, What};

const ALL: &str = "*";

/// One rule of a role.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) verbs: Vec<Box<str>>,
    pub(crate) groups: Vec<Box<str>>,
    pub(crate) resources: Vec<Box<str>>,
    pub(crate) names: Vec<Box<str>>,
    pub(crate) paths: Vec<Box<str>>,
}

impl Rule {
    /// A rule as roles have it.
    pub(crate) fn read(rule: &Value) -> Rule {
        let list = |field: &str| -> Vec<Box<str>> {
            let items = rule.get(field).and_then(Value::as_array).into_iter().flatten();
            items.filter_map(Value::as_str).map(Box::from).collect()
        };
        Rule {
            verbs: list("verbs"),
            groups: list("apiGroups"),
            resources: list("resources"),
            names: list("resourceNames"),
            paths: list("nonResourceURLs"),
        }
    }

    /// All rules of a role.
    pub(crate) fn read_all(role: &Value) -> Vec<Rule> {
        let rules = role.get("rules").and_then(Value::as_array).into_iter().flatten();
        rules.map(Rule::read).collect()
    }

    /// What the group of those who may do everything has.
    pub(crate) fn everything() -> [Rule; 2] {
        let all = || vec![Box::from(ALL)];
        [
            Rule { verbs: all(), groups: all(), resources: all(), ..Rule::default() },
            Rule { verbs: all(), paths: all(), ..Rule::default() },
        ]
    }

    /// Whether it gives what is asked.
    pub(crate) fn allows(&self, asked: &Asked<'_>) -> bool {
        if !has(&self.verbs, asked.verb) {
            return false;
        }
        match asked.what {
            What::Path(path) => self.paths.iter().any(|pattern| covers_path(pattern, path)),
            What::Resource { group, resource, subresource, name, .. } => {
                has(&self.groups, group)
                    && self.resources.iter().any(|one| is_resource(one, resource, subresource))
                    && (self.names.is_empty() || self.names.iter().any(|one| **one == *name))
            }
        }
    }

    /// Whether whoever has this has all of another.
    fn covers(&self, other: &Rule) -> bool {
        let has_all = |own: &[Box<str>], others: &[Box<str>]| {
            own.iter().any(|one| **one == *ALL) || others.iter().all(|one| own.contains(one))
        };
        let has_resource = |wanted: &str| {
            let subresource = wanted.split_once('/').map(|(_, subresource)| subresource);
            self.resources.iter().any(|own| {
                let everywhere = own.strip_prefix("*/").is_some_and(|own| Some(own) == subresource);
                **own == *ALL || **own == *wanted || everywhere
            })
        };
        let has_path = |path: &str| self.paths.iter().any(|pattern| covers_path(pattern, path));
        let names = match other.names.is_empty() {
            true => self.names.is_empty(),
            false => self.names.is_empty() || other.names.iter().all(|name| self.names.contains(name)),
        };
        has_all(&self.verbs, &other.verbs)
            && has_all(&self.groups, &other.groups)
            && other.resources.iter().all(|resource| has_resource(resource))
            && other.paths.iter().all(|path| has_path(path))
            && names
    }

    /// The rules for one thing each that together say what this says.
    fn parts(&self) -> Vec<Rule> {
        let mut parts = Vec::new();
        let one = |text: &str| vec![Box::from(text)];
        for (group, resource, verb) in self.groups.iter().flat_map(|group| {
            let resources = self.resources.iter();
            resources.flat_map(move |resource| self.verbs.iter().map(move |verb| (group, resource, verb)))
        }) {
            let part = Rule { verbs: one(verb), groups: one(group), resources: one(resource), ..Rule::default() };
            match self.names.is_empty() {
                true => parts.push(part),
                false => parts.extend(self.names.iter().map(|name| Rule { names: one(name), ..part.clone() })),
            }
        }
        let paths = self.paths.iter().flat_map(|path| self.verbs.iter().map(move |verb| (path, verb)));
        parts.extend(paths.map(|(path, verb)| Rule { verbs: one(verb), paths: one(path), ..Rule::default() }));
        parts
    }

    /// As Kubernetes shows it in refusals.
    pub(crate) fn shown(&self) -> String {
        let fields = [
            ("APIGroups", &self.groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.paths),
            ("ResourceNames", &self.names),
            ("Verbs", &self.verbs),
        ];
        let given = fields.iter().filter(|(_, list)| !list.is_empty());
        let shown: Vec<_> = given.map(|(name, list)| format!("{name}:[{}]", quoted(list))).collect();
        format!("{{{}}}", shown.join(", "))
    }

    /// As a review lists it: what it says of resources, and what of paths.
    pub(crate) fn reviewed(&self) -> (Option<Value>, Option<Value>) {
        let resources = (!self.resources.is_empty()).then(|| {
            let mut rule = json!({"verbs": self.verbs, "apiGroups": self.groups, "resources": self.resources});
            if !self.names.is_empty() {
                rule["resourceNames"] = json!(self.names);
            }
            rule
        });
        let paths = (!self.paths.is_empty()).then(|| json!({"verbs": self.verbs, "nonResourceURLs": self.paths}));
        (resources, paths)
    }
}

/// What of some rules others don't cover, in few words; empty if they cover all.
pub(crate) fn uncovered(own: &[&Rule], wanted: &[Rule]) -> Vec<String> {
    let is_covered = |part: &Rule| own.iter().any(|rule| rule.covers(part));
    let missing = wanted.iter().flat_map(Rule::parts).filter(|part| !is_covered(part));
    let mut compact: Vec<Rule> = Vec::new();
    for part in missing {
        let alike = compact.iter_mut().find(|one| {
            part.paths.is_empty()
                && one.groups == part.groups
                && one.resources == part.resources
                && one.names == part.names
        });
        match alike {
            Some(one) if one.verbs.contains(&part.verbs[0]) => {}
            Some(one) => one.verbs.extend(part.verbs),
            None => compact.push(part),
        }
    }
    let mut shown: Vec<String> = compact.iter().map(Rule::shown).collect();
    shown.sort();
    shown.dedup();
    shown
}

/// Texts as Go shows a list of them.
pub(crate) fn quoted(texts: &[Box<str>]) -> String {
    texts.iter().map(|text| setpoint_api::quote::quote(text)).collect::<Vec<_>>().join(" ")
}

fn has(list: &[Box<str>], wanted: &str) -> bool {
    list.iter().any(|one| **one == *ALL || **one == *wanted)
}

fn is_resource(rule: &str, resource: &str, subresource: &str) -> bool {
    if rule == ALL {
        return true;
    }
    match (rule.split_once('/'), subresource) {
        (None, "") => rule == resource,
        (Some((main, sub)), subresource) if !subresource.is_empty() => {
            sub == subresource && (main == ALL || main == resource)
        }
        _ => false,
    }
}

fn covers_path(pattern: &str, path: &str) -> bool {
    pattern == path || pattern.strip_suffix('*').is_some_and(|start| path.starts_with(start))
}
