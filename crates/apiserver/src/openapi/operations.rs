//! What can be done with each kind, as paths with operations.

use serde_json::{Value, json};
use setpoint_schema::kind::{Subresource, Types};
use setpoint_schema::{Edit, Kind, facts};

use super::definitions::{Definitions, Dialect};
use super::parameters::{self, Parameter};

/// Media types of answers.
const PRODUCES: [&str; 3] = ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];

/// Media types of patches. Custom kinds have no strategic merge.
const PATCHES: [&str; 4] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/apply-patch+yaml",
    "application/strategic-merge-patch+json",
];

/// Subresources that are ways to something else, whatever the method.
const CONNECTIONS: [&str; 4] = ["attach", "exec", "portforward", "proxy"];

/// Appends the paths of a kind.
pub(super) fn paths<'a>(kind: &'a Kind, definitions: &mut Definitions<'a>, out: &mut Vec<(String, Value)>) {
    let mut scribe = Scribe { kind, definitions };
    let base = match &*kind.group {
        "" => format!("/api/{}", kind.version),
        group => format!("/apis/{group}/{}", kind.version),
    };
    let collection = if kind.namespaced {
        format!("{base}/namespaces/{{namespace}}/{}", kind.plural)
    } else {
        format!("{base}/{}", kind.plural)
    };
    let mut add = |path: String, item: Value| {
        if item.as_object().is_some_and(|item| item.len() > 1) {
            out.push((path, item));
        }
    };
    if kind.namespaced && kind.allows("list") {
        add(format!("{base}/{}", kind.plural), scribe.everywhere());
    }
    add(format!("{collection}/{{name}}"), scribe.item());
    for part in &kind.subresources {
        add(format!("{collection}/{{name}}/{}", part.name), scribe.part(part));
    }
    add(collection, scribe.collection());
}

struct Scribe<'a, 'd> {
    kind: &'a Kind,
    definitions: &'d mut Definitions<'a>,
}

/// One operation before it is written in a dialect.
struct Operation<'o> {
    /// Method in lower case, as OpenAPI has it.
    method: &'static str,
    /// First word of the operation's id.
    word: &'static str,
    action: &'static str,
    /// What it does.
    about: String,
    /// What its id ends with.
    suffix: String,
    parameters: Vec<Parameter>,
    body: Option<Value>,
    consumes: &'o [&'static str],
    codes: &'static [u16],
    answer: Value,
    /// Group, version and kind of what it is about.
    kind: [&'o str; 3],
}

impl<'a> Scribe<'a, '_> {
    fn everywhere(&mut self) -> Value {
        let kind = self.kind;
        let mut item = self.path_item(false, false);
        let answer = self.definitions.list(kind);
        let operation = Operation { suffix: format!("{}ForAllNamespaces", kind.kind), ..self.list(answer) };
        self.write(&mut item, operation);
        item
    }

    fn collection(&mut self) -> Value {
        let kind = self.kind;
        let mut item = self.path_item(kind.namespaced, false);
        if kind.allows("list") {
            let answer = self.definitions.list(kind);
            let operation = self.list(answer);
            self.write(&mut item, operation);
        }
        if kind.allows("create") {
            let object = self.definitions.object(kind);
            let mut operation =
                self.operation("post", "create", "post", format!("create {}", article(&kind.kind)), object);
            operation.body = Some(operation.answer.clone());
            operation.codes = &[200, 201, 202];
            operation.parameters = parameters::write(false);
            self.write(&mut item, operation);
        }
        if kind.allows("deletecollection") {
            let answer = self.definitions.shared("Status");
            let about = format!("delete collection of {}", kind.kind);
            let mut operation = self.operation("delete", "delete", "deletecollection", about, answer);
            operation.suffix = format!("Collection{}", self.suffix());
            operation.body = Some(self.definitions.shared("DeleteOptions"));
            operation.parameters = parameters::list().into_iter().chain(parameters::delete()).collect();
            self.write(&mut item, operation);
        }
        item
    }

    fn item(&mut self) -> Value {
        let kind = self.kind;
        let mut item = self.path_item(kind.namespaced, true);
        let object = self.definitions.object(kind);
        for verb in ["get", "update", "patch"] {
            if kind.allows(verb) {
                let operation = self.one(verb, &kind.kind, object.clone(), String::new());
                self.write(&mut item, operation);
            }
        }
        if kind.allows("delete") {
            let answer = self.definitions.shared("Status");
            let mut operation =
                self.operation("delete", "delete", "delete", format!("delete {}", article(&kind.kind)), answer);
            operation.body = Some(self.definitions.shared("DeleteOptions"));
            operation.codes = &[200, 202];
            operation.parameters = parameters::delete();
            self.write(&mut item, operation);
        }
        item
    }

    fn part(&mut self, part: &'a Subresource) -> Value {
        let mut item = self.path_item(self.kind.namespaced, true);
        let suffix = capital(&part.name);
        let connects = CONNECTIONS.contains(&&*part.name);
        let body = self.body(part, connects);
        for verb in part.verbs.iter() {
            let mut operation = match &**verb {
                "create" => {
                    let about = format!("create {} of {}", part.name, article(&self.kind.kind));
                    let mut operation = self.operation("post", "create", "post", about, body.clone());
                    operation.body = Some(body.clone());
                    operation.codes = &[200, 201, 202];
                    operation.parameters = parameters::write(false);
                    operation.suffix += &suffix;
                    operation
                }
                "get" | "update" | "patch" => {
                    let what = format!("{} of the specified {}", part.name, self.kind.kind);
                    self.one(verb, &what, body.clone(), suffix.clone())
                }
                "delete" if connects => {
                    let mut operation = self.operation("delete", "delete", "connect", String::new(), body.clone());
                    operation.suffix += &suffix;
                    operation
                }
                _ => continue,
            };
            if connects {
                operation.about = format!(
                    "connect {} requests to {} of {}",
                    operation.method.to_uppercase(),
                    part.name,
                    self.kind.kind
                );
                operation.suffix = format!("{}{}", capital(operation.method), operation.suffix);
                (operation.word, operation.action, operation.body) = ("connect", "connect", None);
                operation.codes = &[200];
                operation.parameters.clear();
            }
            operation.kind = [&part.group, &part.version, &part.kind];
            self.write(&mut item, operation);
        }
        item
    }

    /// What a part is sent as.
    fn body(&mut self, part: &'a Subresource, connects: bool) -> Value {
        // Logs are text, though they are told to be of the pod's own kind.
        if connects || part.name == "log" {
            return json!({"type": "string"});
        }
        if part.kind == self.kind.kind && part.group == self.kind.group && part.version == self.kind.version {
            return self.definitions.object(self.kind);
        }
        match facts::kind_type(&api_version(&part.group, &part.version), &part.kind) {
            None => json!({"type": "object"}),
            Some(ty) => {
                self.definitions.tell_kind(ty.get().name, &part.group, &part.version, &part.kind);
                self.definitions.named(ty)
            }
        }
    }

    fn list(&self, answer: Value) -> Operation<'a> {
        let about = format!("list or watch objects of kind {}", self.kind.kind);
        Operation { parameters: parameters::list(), ..self.operation("get", "list", "list", about, answer) }
    }

    /// Reading, replacing or patching one object or a part of it.
    fn one(&mut self, verb: &str, what: &str, object: Value, part: String) -> Operation<'a> {
        let specified = if part.is_empty() { format!("the specified {what}") } else { what.to_owned() };
        let mut operation = match verb {
            "get" => self.operation("get", "read", "get", format!("read {specified}"), object),
            "update" => {
                let body = object.clone();
                let operation = self.operation("put", "replace", "put", format!("replace {specified}"), object);
                Operation { body: Some(body), codes: &[200, 201], parameters: parameters::write(false), ..operation }
            }
            _ => {
                let custom = matches!(self.kind.types, Types::Own(_));
                let body = self.definitions.patch();
                let operation =
                    self.operation("patch", "patch", "patch", format!("partially update {specified}"), object);
                Operation {
                    body: Some(body),
                    codes: &[200, 201],
                    consumes: if custom { &PATCHES[..3] } else { &PATCHES },
                    parameters: parameters::write(true),
                    ..operation
                }
            }
        };
        operation.suffix += &part;
        operation
    }

    fn operation(
        &self,
        method: &'static str,
        word: &'static str,
        action: &'static str,
        about: String,
        answer: Value,
    ) -> Operation<'a> {
        let kind = [&*self.kind.group, &*self.kind.version, &*self.kind.kind];
        Operation {
            method,
            word,
            action,
            about,
            suffix: self.suffix(),
            parameters: Vec::new(),
            body: None,
            consumes: &["*/*"],
            codes: &[200],
            answer,
            kind,
        }
    }

    fn suffix(&self) -> String {
        let scope = if self.kind.namespaced { "Namespaced" } else { "" };
        format!("{scope}{}", self.kind.kind)
    }

    /// What all operations of a path have in common.
    fn path_item(&self, namespaced: bool, named: bool) -> Value {
        let mut common = Vec::new();
        if named {
            common.push(parameters::name(&self.kind.kind));
        }
        if namespaced {
            common.push(parameters::NAMESPACE);
        }
        common.push(parameters::PRETTY);
        let dialect = self.definitions.dialect();
        json!({"parameters": common.iter().map(|parameter| parameter.value(dialect)).collect::<Vec<_>>()})
    }

    fn write(&self, item: &mut Value, operation: Operation<'_>) {
        let dialect = self.definitions.dialect();
        let (group, version) = (capital_group(&self.kind.group), capital(&self.kind.version));
        let [kind_group, kind_version, kind] = operation.kind;
        let mut parameters: Vec<Value> =
            operation.parameters.iter().map(|parameter| parameter.value(dialect)).collect();
        let mut value = json!({
            "description": operation.about,
            "operationId": format!("{}{group}{version}{}", operation.word, operation.suffix),
            "tags": [tag(&self.kind.group, &self.kind.version)],
            "x-kubernetes-action": operation.action,
            "x-kubernetes-group-version-kind": {"group": kind_group, "version": kind_version, "kind": kind},
            "responses": responses(dialect, operation.codes, &operation.answer),
        });
        // Only what is deleted needs no body.
        let required = operation.method != "delete";
        match (dialect, operation.body) {
            (Dialect::V2, body) => {
                if let Some(schema) = body {
                    parameters.insert(0, json!({"in": "body", "name": "body", "required": required, "schema": schema}));
                }
                value.set("consumes", operation.consumes.to_vec());
                value.set("produces", PRODUCES.to_vec());
                value.set("schemes", vec!["https"]);
            }
            (Dialect::V3, Some(schema)) => {
                value
                    .set("requestBody", json!({"content": content(operation.consumes, &schema), "required": required}));
            }
            (Dialect::V3, None) => {}
        }
        if !parameters.is_empty() {
            value.set("parameters", parameters);
        }
        item.set(operation.method, value);
    }
}

fn responses(dialect: Dialect, codes: &[u16], schema: &Value) -> Value {
    let mut responses = json!({"401": {"description": "Unauthorized"}});
    for code in codes {
        let description = match code {
            200 => "OK",
            201 => "Created",
            _ => "Accepted",
        };
        let response = match dialect {
            Dialect::V2 => json!({"description": description, "schema": schema}),
            Dialect::V3 => json!({"description": description, "content": content(&PRODUCES, schema)}),
        };
        responses.set(&code.to_string(), response);
    }
    responses
}

fn content(media: &[&str], schema: &Value) -> Value {
    media.iter().map(|media| ((*media).to_owned(), json!({"schema": schema}))).collect::<serde_json::Map<_, _>>().into()
}

fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

fn tag(group: &str, version: &str) -> String {
    let group = if group.is_empty() { "core".to_owned() } else { group.trim_end_matches(".k8s.io").replace('.', "") };
    format!("{group}_{version}")
}

/// `rbac.authorization.k8s.io` becomes `RbacAuthorization`.
fn capital_group(group: &str) -> String {
    match group {
        "" => "Core".to_owned(),
        group => group.trim_end_matches(".k8s.io").split('.').map(capital).collect(),
    }
}

fn capital(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(characters).collect()
}

fn article(noun: &str) -> String {
    format!("{} {noun}", if noun.starts_with(['A', 'E', 'I', 'O', 'U']) { "an" } else { "a" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_named_as_upstream_names_them() {
        let kind = setpoint_schema::builtin::by_plural("rbac.authorization.k8s.io", "v1", "roles").unwrap();
        let mut out = Vec::new();
        paths(kind, &mut Definitions::new(Dialect::V3), &mut out);
        let find = |path: &str| &out.iter().find(|(name, _)| name == path).unwrap().1;
        let item = find("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles/{name}");
        assert_eq!(item["get"]["operationId"], "readRbacAuthorizationV1NamespacedRole");
        assert_eq!(item["patch"]["x-kubernetes-action"], "patch");
        assert!(item["patch"]["parameters"].as_array().unwrap().iter().any(|p| p["name"] == "fieldValidation"));
        let all = find("/apis/rbac.authorization.k8s.io/v1/roles");
        assert_eq!(all["get"]["operationId"], "listRbacAuthorizationV1RoleForAllNamespaces");
        let collection = find("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles");
        assert_eq!(collection["delete"]["operationId"], "deleteRbacAuthorizationV1CollectionNamespacedRole");
    }

    #[test]
    fn ways_through_a_pod_are_connections() {
        let kind = setpoint_schema::builtin::by_plural("", "v1", "pods").unwrap();
        let mut out = Vec::new();
        paths(kind, &mut Definitions::new(Dialect::V2), &mut out);
        let exec = &out.iter().find(|(name, _)| name.ends_with("/exec")).unwrap().1;
        assert_eq!(exec["post"]["operationId"], "connectCoreV1PostNamespacedPodExec");
        assert_eq!(exec["post"]["x-kubernetes-group-version-kind"]["kind"], "PodExecOptions");
    }
}
