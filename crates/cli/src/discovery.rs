//! Which kinds a server has, and which of them a word on the command line means.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::failure::Failure;
use crate::request::{Ask, Server, Trouble, segment};
use crate::slip;

/// The form in which a server tells all its kinds at once.
const DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// One kind in one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Its group; empty for the core.
    pub group: String,
    /// Its version.
    pub version: String,
    /// Its plural name, as in paths.
    pub resource: String,
    /// Its name for one object.
    pub singular: String,
    /// Its name in manifests.
    pub kind: String,
    /// Its short names.
    pub short_names: Vec<String>,
    /// The categories that it is in.
    pub categories: Vec<String>,
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
    /// What can be done.
    pub verbs: Vec<String>,
}

impl Kind {
    /// The group and version as manifests name them.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// The path of all its objects, or of those in a namespace.
    pub fn path(&self, namespace: Option<&str>) -> String {
        let root = if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        };
        match namespace.filter(|_| self.namespaced) {
            Some(namespace) => format!("{root}/namespaces/{}/{}", segment(namespace), self.resource),
            None => format!("{root}/{}", self.resource),
        }
    }

    /// The path of one object.
    pub fn path_of(&self, namespace: &str, name: &str) -> String {
        format!("{}/{}", self.path(Some(namespace)), segment(name))
    }

    /// The kind in lower case with its group, as names of objects begin: `deployment.apps`.
    pub fn word(&self) -> String {
        match self.group.as_str() {
            "" => self.kind.to_lowercase(),
            group => format!("{}.{group}", self.kind.to_lowercase()),
        }
    }

    fn answers_to(&self, word: &str) -> bool {
        self.resource == word || self.singular == word || self.kind.to_lowercase() == word
    }

    fn has(&self, verb: &str) -> bool {
        self.verbs.iter().any(|known| known == verb)
    }
}

/// All kinds of a server: groups in its order, versions with the preferred one first.
#[derive(Debug, Default)]
pub struct Discovery {
    /// The kinds.
    pub kinds: Vec<Kind>,
}

impl Discovery {
    /// Asks a server.
    pub async fn read(server: &Server) -> Result<Discovery, Trouble> {
        let ask = |path: &'static str| server.get(Ask::get(path).accept(DISCOVERY));
        let (core, groups) = tokio::try_join!(ask("/api"), ask("/apis"))?;
        let mut discovery = Discovery::default();
        discovery.add(&core);
        discovery.add(&groups);
        Ok(discovery)
    }

    fn add(&mut self, list: &Value) {
        for group in list["items"].as_array().into_iter().flatten() {
            let name = text(&group["metadata"]["name"]);
            for version in group["versions"].as_array().into_iter().flatten() {
                let resources = version["resources"].as_array().into_iter().flatten();
                self.kinds.extend(resources.map(|resource| kind(&name, &text(&version["version"]), resource)));
            }
        }
    }

    /// The kind that a word means: `pods`, `po`, `deployments.apps`, `deployments.v1.apps`.
    pub fn find(&self, word: &str) -> Result<&Kind, Failure> {
        let lower = word.to_lowercase();
        self.exactly(&lower).or_else(|| self.qualified(&lower)).or_else(|| self.short(&lower)).ok_or_else(|| {
            let failure = Failure::error(format!("the server doesn't have a resource type {:?}", bare(word)));
            match self.nearest(&lower) {
                Some(near) => failure.hint(format!("did you mean `{near}`?")),
                None => failure.hint("`kubectl api-resources` lists all kinds"),
            }
        })
    }

    fn exactly(&self, word: &str) -> Option<&Kind> {
        self.kinds.iter().find(|kind| kind.answers_to(word))
    }

    fn qualified(&self, word: &str) -> Option<&Kind> {
        let (resource, rest) = word.split_once('.')?;
        let named = |kind: &&Kind| kind.answers_to(resource) || kind.short_names.iter().any(|short| short == resource);
        let by_version = rest.split_once('.').and_then(|(version, group)| {
            self.kinds.iter().filter(named).find(|kind| kind.version == version && kind.group == group)
        });
        let in_core = || self.kinds.iter().filter(named).find(|kind| kind.group.is_empty() && kind.version == rest);
        let in_group = || self.kinds.iter().filter(named).find(|kind| kind.group == rest);
        // The first label of a group is enough where it is unmistakable, as kubectl has it.
        let begun = || self.kinds.iter().filter(named).find(|kind| kind.group.starts_with(&format!("{rest}.")));
        by_version.or_else(in_group).or_else(in_core).or_else(begun)
    }

    fn short(&self, word: &str) -> Option<&Kind> {
        self.kinds.iter().find(|kind| kind.short_names.iter().any(|short| short == word))
    }

    /// The kinds of a category such as `all`, each in one version.
    pub fn category(&self, name: &str) -> Vec<&Kind> {
        let mut seen = BTreeSet::new();
        let members = self.kinds.iter().filter(|kind| kind.categories.iter().any(|category| category == name));
        members.filter(|kind| seen.insert((&kind.group, &kind.resource))).collect()
    }

    /// The kind of an object in a manifest.
    pub fn of_manifest(&self, api_version: &str, kind: &str) -> Option<&Kind> {
        self.kinds.iter().find(|known| known.kind == kind && known.api_version() == api_version)
    }

    /// Every kind that can be listed, in its first version.
    pub fn listable(&self) -> Vec<&Kind> {
        let mut seen = BTreeSet::new();
        let kinds = self.kinds.iter().filter(|kind| kind.has("list"));
        kinds.filter(|kind| seen.insert((&kind.group, &kind.resource))).collect()
    }

    /// The known word that is the least different from this one.
    fn nearest(&self, word: &str) -> Option<&str> {
        slip::nearest(bare(word), self.kinds.iter().flat_map(|kind| [kind.resource.as_str(), kind.singular.as_str()]))
    }
}

/// What stands before the first dot.
fn bare(word: &str) -> &str {
    word.split('.').next().unwrap_or(word)
}

fn kind(group: &str, version: &str, resource: &Value) -> Kind {
    let list = |name: &str| resource[name].as_array().into_iter().flatten().map(text).collect();
    let kind = text(&resource["responseKind"]["kind"]);
    let singular = text(&resource["singularResource"]);
    Kind {
        group: group.to_owned(),
        version: version.to_owned(),
        resource: text(&resource["resource"]),
        singular: if singular.is_empty() { kind.to_lowercase() } else { singular },
        kind,
        short_names: list("shortNames"),
        categories: list("categories"),
        namespaced: resource["scope"] == "Namespaced",
        verbs: list("verbs"),
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
pub mod tests {
    use serde_json::json;

    use super::*;

    /// A few kinds of a usual server.
    pub fn sample() -> Discovery {
        let resource = |name: &str, kind: &str, short: &str, scope: &str| {
            json!({
                "resource": name, "responseKind": {"kind": kind}, "singularResource": kind.to_lowercase(), "scope": scope,
                "shortNames": [short], "categories": ["all"], "verbs": ["get", "list"],
            })
        };
        let mut discovery = Discovery::default();
        discovery.add(&json!({"items": [{"metadata": {"name": ""}, "versions": [{"version": "v1", "resources": [
            resource("pods", "Pod", "po", "Namespaced"), resource("namespaces", "Namespace", "ns", "Cluster"),
        ]}]}]}));
        discovery.add(&json!({"items": [
            {"metadata": {"name": "apps"}, "versions": [
                {"version": "v1", "resources": [resource("deployments", "Deployment", "deploy", "Namespaced")]},
                {"version": "v1beta1", "resources": [resource("deployments", "Deployment", "deploy", "Namespaced")]},
            ]},
            {"metadata": {"name": "metrics.k8s.io"}, "versions": [
                {"version": "v1beta1", "resources": [resource("pods", "PodMetrics", "", "Namespaced")]},
            ]},
        ]}));
        discovery
    }

    #[test]
    fn a_word_means_a_kind() {
        let discovery = sample();
        for (word, expected) in [
            ("pods", "v1 Pod"),
            ("pod", "v1 Pod"),
            ("Pod", "v1 Pod"),
            ("po", "v1 Pod"),
            ("pods.v1", "v1 Pod"),
            ("deploy", "apps/v1 Deployment"),
            ("deployments.apps", "apps/v1 Deployment"),
            ("deployments.v1beta1.apps", "apps/v1beta1 Deployment"),
            ("pods.metrics.k8s.io", "metrics.k8s.io/v1beta1 PodMetrics"),
            ("pods.metrics", "metrics.k8s.io/v1beta1 PodMetrics"),
        ] {
            let found = discovery.find(word).map(|kind| format!("{} {}", kind.api_version(), kind.kind)).unwrap();
            assert_eq!(found, expected, "{word}");
        }
    }

    #[test]
    fn an_unknown_word_gets_the_nearest_one() {
        let said = |word: &str| sample().find(word).unwrap_err().to_string();
        assert_eq!(
            said("pdos"),
            "error: the server doesn't have a resource type \"pdos\"\n  hint: did you mean `pods`?"
        );
        assert!(said("deploymets").ends_with("did you mean `deployments`?"));
        assert!(said("x").ends_with("lists all kinds"));
        assert!(
            said("widgets.example.com").starts_with("error: the server doesn't have a resource type \"widgets\"\n")
        );
    }

    #[test]
    fn a_category_has_each_kind_once() {
        let discovery = sample();
        let names: Vec<_> = discovery.category("all").iter().map(|kind| kind.word()).collect();
        assert_eq!(names, ["pod", "namespace", "deployment.apps", "podmetrics.metrics.k8s.io"]);
    }
}
