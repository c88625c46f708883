//! Turns the tables in `facts/` into static Rust: no parsing at start-up.
//!
//! Descriptions and required fields come from the `k8s-openapi` crate, which carries them for the same version.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::{env, fs, path::Path};

use schemars::SchemaGenerator;
use serde_json::{Map, Value};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=facts");
    let tables = Tables::read();
    let definitions = definitions();
    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let mut arena = Arena::new(&tables, &definitions);
    let types = arena.print();
    let resources = print_resources(&tables);
    fs::write(Path::new(&out).join("facts.rs"), types + &resources).expect("OUT_DIR is writable");
}

type Row = Vec<String>;

struct Tables {
    types: Vec<Row>,
    fields: BTreeMap<String, Vec<Row>>,
    merge: HashMap<(String, String), Row>,
    defaults: HashMap<(String, String), String>,
    resources: Vec<Row>,
}

impl Tables {
    fn read() -> Self {
        let mut fields: BTreeMap<String, Vec<Row>> = BTreeMap::new();
        for row in table("fields") {
            fields.entry(row[0].clone()).or_default().push(row);
        }
        for rows in fields.values_mut() {
            for (place, row) in rows.iter_mut().enumerate() {
                row.push(place.to_string());
            }
            rows.sort_by(|a, b| a[1].cmp(&b[1]));
        }
        Self {
            types: table("types"),
            fields,
            merge: table("list-and-merge-keys").into_iter().map(|r| ((r[0].clone(), r[1].clone()), r)).collect(),
            defaults: table("defaults").into_iter().map(|r| ((r[0].clone(), r[1].clone()), r[2].clone())).collect(),
            resources: table("api-resources"),
        }
    }
}

fn table(name: &str) -> Vec<Row> {
    let path = format!("facts/{name}.tsv");
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    text.lines()
        .skip(1)
        .map(|line| line.split('\t').map(String::from).chain(std::iter::repeat_n(String::new(), 8)).collect())
        .collect()
}

/// Types by name, and one variant more for each field that gives its list or map a merge rule of its own.
struct Arena<'a> {
    tables: &'a Tables,
    definitions: &'a Map<String, Value>,
    ids: HashMap<String, usize>,
    variants: Vec<(usize, Row)>,
    /// Statics that the types refer to: values with destructors can't stand inside a static's expression.
    statics: String,
    static_count: usize,
}

impl<'a> Arena<'a> {
    fn new(tables: &'a Tables, definitions: &'a Map<String, Value>) -> Self {
        let ids = tables.types.iter().enumerate().map(|(at, row)| (row[0].clone(), at)).collect();
        Self { tables, definitions, ids, variants: Vec::new(), statics: String::new(), static_count: 0 }
    }

    fn id(&self, name: &str) -> usize {
        *self.ids.get(name.trim_start_matches('*')).unwrap_or_else(|| panic!("types.tsv has no {name}"))
    }

    fn print(&mut self) -> String {
        let mut out = String::from("pub(crate) static TYPES: &[Type] = &[\n");
        for row in &self.tables.types {
            let own = self.tables.merge.get(&(row[0].clone(), "(self)".into()));
            let printed = self.print_type(row, own);
            out.push_str(&printed);
        }
        // The fields of variants have no merge rules of their own, so printing them adds no further ones.
        for (base, rule) in std::mem::take(&mut self.variants) {
            let printed = self.print_type(&self.tables.types[base], Some(&rule));
            out.push_str(&printed);
        }
        assert!(self.variants.is_empty(), "a variant's field has a merge rule of its own");
        out.push_str("];\n");
        self.print_names(&mut out);
        out.push_str(&self.statics);
        out
    }

    fn print_type(&mut self, row: &Row, rule: Option<&Row>) -> String {
        let description = self.definitions.get(&row[0]).map_or("", description);
        let shape = self.print_shape(row, rule);
        format!("t({:?}, {:?}, {:?}, {shape}),\n", row[0], row[1], description)
    }

    fn print_shape(&mut self, row: &Row, rule: Option<&Row>) -> String {
        let atomic = rule.is_some_and(|r| r[2] == "map-type=atomic");
        match row[2].as_str() {
            "struct" => {
                let fields = self.print_fields(&row[0]);
                format!("object(&{}, {atomic})", self.define("Field", &fields))
            }
            "map" => format!("map({}, {atomic})", self.id(&row[3])),
            "list" => format!("list({}, {}, {})", self.id(&row[3]), row[3].starts_with('*'), self.list_type(rule)),
            "string" => "Shape::String".into(),
            "bool" => "Shape::Bool".into(),
            "int32" => "Shape::Int32".into(),
            "int64" => "Shape::Int64".into(),
            "float64" => "Shape::Float".into(),
            "bytes" => "Shape::Bytes".into(),
            "quantity" => "Shape::Quantity".into(),
            "time" => "Shape::Time".into(),
            "microtime" => "Shape::MicroTime".into(),
            "int-or-string" => "Shape::IntOrString".into(),
            "raw" => "Shape::Raw".into(),
            "json" => "Shape::Json".into(),
            "fields" => "Shape::FieldsV1".into(),
            "schema-or-bool" => format!("Shape::SchemaOrBool(TypeId({}))", self.id(&row[3])),
            "schema-or-list" => format!("Shape::SchemaOrList(TypeId({}))", self.id(&row[3])),
            "schema-or-strings" => format!("Shape::SchemaOrStrings(TypeId({}))", self.id(&row[3])),
            other => panic!("types.tsv: shape {other} of {}", row[0]),
        }
    }

    /// Puts items into a static of their own and gives its name.
    fn define(&mut self, ty: &str, items: &[String]) -> String {
        let name = self.next_static();
        self.define_as(&name, ty, items);
        name
    }

    fn define_as(&mut self, name: &str, ty: &str, items: &[String]) {
        let _ = writeln!(self.statics, "static {name}: [{ty}; {}] = [{}];", items.len(), items.join(","));
    }

    fn next_static(&mut self) -> String {
        self.static_count += 1;
        format!("S{}", self.static_count)
    }

    fn list_type(&mut self, rule: Option<&Row>) -> String {
        match rule.map_or("", |r| r[3].as_str()) {
            "set" => "ListType::Set".into(),
            "map" => {
                let keys =
                    rule.map_or("", |r| r[4].as_str()).split(',').map(|k| format!("s({k:?})")).collect::<Vec<_>>();
                format!("ListType::Map(Cow::Borrowed(&{}))", self.define("Text", &keys))
            }
            _ => "ListType::Atomic".into(),
        }
    }

    fn print_fields(&mut self, owner: &str) -> Vec<String> {
        let tables = self.tables;
        let Some(rows) = tables.fields.get(owner) else { return Vec::new() };
        let schema = self.definitions.get(owner);
        let properties = schema.and_then(|s| s.get("properties"));
        let required: Vec<&str> = schema
            .and_then(|s| s.get("required"))
            .and_then(Value::as_array)
            .map(|list| list.iter().filter_map(Value::as_str).collect())
            .unwrap_or_default();
        let (mut out, mut published) = (Vec::new(), Vec::new());
        let name = self.next_static();
        for row in rows {
            let key = (owner.to_string(), row[1].clone());
            let rule = tables.merge.get(&key);
            let ty = self.field_type(&row[2], rule);
            let description = properties.and_then(|p| p.get(&row[1])).map_or("", description);
            // k8s-openapi calls `metadata` required on every kind; the published schema doesn't.
            let required = row[1] != "metadata" && required.contains(&row[1].as_str());
            let default = tables.defaults.get(&key).map_or("None".into(), |d| format!("Some({d:?})"));
            out.push(format!(
                "f({:?}, {ty}, {}, {}, {}, {required}, &{name}[{}])",
                row[1],
                row[3].contains("pointer"),
                row[3].contains("omitempty"),
                row[3].contains("omitzero"),
                published.len(),
            ));
            let place = row.last().expect("its place");
            published.push(format!("p({place}, {:?}, {description:?}, {default}, {})", row[4], patch(rule)));
        }
        self.define_as(&name, "Published", &published);
        out
    }

    /// A field's own merge rule makes a variant of its type.
    fn field_type(&mut self, name: &str, rule: Option<&Row>) -> usize {
        let base = self.id(name);
        let Some(rule) = rule.filter(|r| !r[2].is_empty() || !r[3].is_empty()) else { return base };
        if self.tables.types[base][2] == "struct" && rule[2] != "map-type=granular" {
            return base; // its fields would be printed twice; structs carry their rule on the type itself
        }
        self.variants.push((base, rule.clone()));
        self.tables.types.len() + self.variants.len() - 1
    }

    fn print_names(&self, out: &mut String) {
        let mut names: Vec<_> = self.ids.iter().collect();
        names.sort();
        out.push_str("pub(crate) static NAMES: &[(&str, u32)] = &[");
        for (name, id) in names {
            let _ = write!(out, "({name:?}, {id}),");
        }
        out.push_str("];\npub(crate) static KINDS: &[(&str, u32)] = &[");
        let mut kinds: Vec<_> = self.tables.types.iter().enumerate().filter(|(_, row)| !row[4].is_empty()).collect();
        kinds.sort_by(|a, b| a.1[4].cmp(&b.1[4]));
        for (id, row) in kinds {
            let _ = write!(out, "({:?}, {id}),", row[4]);
        }
        out.push_str("];\n");
    }
}

fn description(schema: &Value) -> &str {
    schema.get("description").and_then(Value::as_str).unwrap_or("")
}

fn patch(rule: Option<&Row>) -> String {
    let (strategy, key) = rule.map_or(("", ""), |r| (r[5].as_str(), r[6].as_str()));
    if strategy.is_empty() && key.is_empty() {
        return "NO_PATCH".into();
    }
    let has = |word| strategy.split(',').any(|s| s == word);
    format!("patch({}, {}, {}, {key:?})", has("merge"), has("retainKeys"), has("replace"))
}

fn print_resources(tables: &Tables) -> String {
    let kinds: HashMap<&str, usize> =
        tables.types.iter().enumerate().filter(|(_, r)| !r[4].is_empty()).map(|(at, r)| (r[4].as_str(), at)).collect();
    let mut out = String::from("pub(crate) static RESOURCES: &[ResourceFacts] = &[\n");
    for row in &tables.resources {
        let (group, version) = row[0].split_once('/').unwrap_or(("", &row[0]));
        let (kind, kind_version) = match row[3].split_once(" (") {
            Some((kind, gv)) => (kind, gv.trim_end_matches(')')),
            None => (row[3].as_str(), row[0].as_str()),
        };
        let root = kinds.get(format!("{kind_version}/{kind}").as_str());
        let root = root.unwrap_or_else(|| panic!("types.tsv has no {kind_version}/{kind}"));
        let list = kinds.get(format!("{kind_version}/{kind}List").as_str());
        let list = list.map_or("None".into(), |id| format!("Some(TypeId({id}))"));
        let words = |text: &str| {
            text.split(',').filter(|w| !w.is_empty()).map(|w| format!("{w:?}")).collect::<Vec<_>>().join(",")
        };
        let _ = writeln!(
            out,
            "ResourceFacts {{ group: {group:?}, version: {version:?}, resource: {:?}, singular: {:?}, kind: {kind:?}, \
             kind_version: {kind_version:?}, namespaced: {}, short_names: &[{}], categories: &[{}], verbs: &[{}], \
             root: TypeId({root}), list: {list} }},",
            row[1],
            row[2],
            row[4] == "namespaced",
            words(&row[5]),
            words(&row[6]),
            words(&row[7]),
        );
    }
    out.push_str("];\n");
    out
}

/// Every definition that the kinds below reach, by OpenAPI name.
fn definitions() -> Map<String, Value> {
    let mut generator = SchemaGenerator::default();
    macro_rules! kinds {
        ($($($module:ident)::+ { $($kind:ident),* $(,)? })*) => {
            $({
                use k8s_openapi::$($module)::+ as module;
                $(generator.subschema_for::<module::$kind>();)*
            })*
        };
    }
    kinds! {
        api::admissionregistration::v1 {
            MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding, MutatingWebhookConfiguration,
            ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, ValidatingWebhookConfiguration,
        }
        api::apps::v1 { ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet }
        api::autoscaling::v1 { HorizontalPodAutoscaler }
        api::autoscaling::v2 { HorizontalPodAutoscaler }
        api::batch::v1 { CronJob, Job }
        api::certificates::v1 { CertificateSigningRequest }
        api::coordination::v1 { Lease }
        api::core::v1 {
            ComponentStatus, ConfigMap, Endpoints, Event, LimitRange, Namespace, Node, PersistentVolume,
            PersistentVolumeClaim, Pod, PodTemplate, ReplicationController, ResourceQuota, Secret, Service, ServiceAccount,
        }
        api::discovery::v1 { EndpointSlice }
        api::events::v1 { Event }
        api::flowcontrol::v1 { FlowSchema, PriorityLevelConfiguration }
        api::networking::v1 { IPAddress, Ingress, IngressClass, NetworkPolicy, ServiceCIDR }
        api::node::v1 { RuntimeClass }
        api::policy::v1 { PodDisruptionBudget }
        api::rbac::v1 { ClusterRole, ClusterRoleBinding, Role, RoleBinding }
        api::resource::v1 { DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice }
        api::scheduling::v1 { PriorityClass }
        api::storage::v1 {
            CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment, VolumeAttributesClass,
        }
        apiextensions_apiserver::pkg::apis::apiextensions::v1 { CustomResourceDefinition }
        kube_aggregator::pkg::apis::apiregistration::v1 { APIService }
        api::authentication::v1 { SelfSubjectReview, TokenRequest, TokenReview }
        api::authorization::v1 { LocalSubjectAccessReview, SelfSubjectAccessReview, SelfSubjectRulesReview, SubjectAccessReview }
        api::autoscaling::v1 { Scale }
        api::core::v1 { Binding }
        api::policy::v1 { Eviction }
        apimachinery::pkg::apis::meta::v1 { APIGroup, APIGroupList, APIResourceList, APIVersions, DeleteOptions, ListMeta, Status }
    }
    generator.take_definitions(true)
}
