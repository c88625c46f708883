//! A write as webhooks and policies see it: what is done, to which object, by whom.

use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value, json};
use setpoint_api::{GroupResource, Status};
use setpoint_schema::json::Json;
use setpoint_schema::{Edit, facts};

use crate::call::Call;
use crate::objects;
use crate::registry::Served;
use crate::server::Inner;
use crate::user::User;
use crate::webhook_client::Surroundings;

/// What is done to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

impl Operation {
    pub(super) fn name(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
            Operation::Connect => "CONNECT",
        }
    }
}

/// The kind of an object: group, version, name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KindName {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) kind: String,
}

impl KindName {
    fn to_value(&self) -> Value {
        json!({"group": self.group, "version": self.version, "kind": self.kind})
    }
}

/// A write that webhooks and policies are asked about. The objects are not in it: they change on the way.
pub(super) struct Request<'a> {
    pub(super) server: &'a Inner,
    pub(super) served: &'a Arc<Served>,
    pub(super) user: &'a User,
    pub(super) operation: Operation,
    pub(super) subresource: &'a str,
    /// That of the object; a namespace is in itself.
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) options: Value,
    pub(super) dry_run: bool,
    /// The kind of the object, which for parts of objects may be another one.
    pub(super) kind: KindName,
    equivalents: OnceLock<Vec<Arc<Served>>>,
    namespace_read: OnceLock<Option<Value>>,
}

impl<'a> Request<'a> {
    pub(super) fn new(call: &Call<'a>, operation: Operation, name: &str, options: Value, dry_run: bool) -> Request<'a> {
        let kind = call.kind();
        let subresource = call.subresource.unwrap_or("");
        let (group, version, word) = match kind.subresource(subresource) {
            Some(part) => (&part.group, &part.version, &part.kind),
            None => (&kind.group, &kind.version, &kind.kind),
        };
        let own = kind.group.is_empty() && kind.plural == "namespaces";
        let namespace = if own { name } else { call.namespace.filter(|_| kind.namespaced).unwrap_or_default() };
        Request {
            server: call.server,
            served: call.served,
            user: call.user,
            operation,
            subresource,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            options,
            dry_run,
            kind: KindName { group: group.to_string(), version: version.to_string(), kind: word.to_string() },
            equivalents: OnceLock::new(),
            namespace_read: OnceLock::new(),
        }
    }

    /// Whether it is about what webhooks and policies are made of: webhooks are never asked about these.
    pub(super) fn is_exempt_from_hooks(&self) -> bool {
        self.served.kind.group == "admissionregistration.k8s.io"
    }

    /// Whether policies are never asked about it: about themselves, and about reviews, without which nothing works.
    pub(super) fn is_exempt_from_policies(&self) -> bool {
        let plural = &*self.served.kind.plural;
        match &*self.served.kind.group {
            "admissionregistration.k8s.io" => plural.contains("admissionpolic"),
            "authentication.k8s.io" | "authorization.k8s.io" => plural.ends_with("reviews"),
            _ => false,
        }
    }

    /// Other versions of the same objects.
    pub(super) fn equivalents(&self) -> &[Arc<Served>] {
        self.equivalents.get_or_init(|| {
            let registry = self.server.kinds.current(&self.server.store);
            let is_other = |served: &&Arc<Served>| {
                served.stored == self.served.stored
                    && !Arc::ptr_eq(&served.kind, &self.served.kind)
                    && (self.subresource.is_empty() || served.kind.subresource(self.subresource).is_some())
            };
            registry.kinds().filter(is_other).cloned().collect()
        })
    }

    /// The resource that messages name.
    pub(super) fn resource(&self) -> GroupResource {
        self.served.kind.group_resource()
    }

    /// The kind of the object in another version.
    pub(super) fn kind_in(&self, served: &Served) -> KindName {
        if !self.subresource.is_empty() && self.kind.kind != *self.served.kind.kind {
            return self.kind.clone();
        }
        let kind = &served.kind;
        KindName { group: kind.group.to_string(), version: kind.version.to_string(), kind: kind.kind.to_string() }
    }

    /// An object as another version has it.
    pub(super) async fn converted(&self, object: &Value, from: &Served, to: &Served) -> Result<Value, Box<Status>> {
        if Arc::ptr_eq(&from.kind, &to.kind) || self.kind.kind != *self.served.kind.kind {
            return Ok(object.clone());
        }
        let Some(converter) = to.converter() else { return Ok(to.show_stored(from.to_stored(object.clone()))) };
        let around = Surroundings { store: &self.server.store, chance: &self.server.chance };
        let converted = converter.converted(around, &to.kind, object, &to.kind.api_version()).await;
        converted.map_err(|broken| Box::new(Status::internal_error(broken)))
    }

    /// A document read and defaulted as an object of the request.
    pub(super) fn decoded(&self, document: Value) -> Result<Value, Box<Status>> {
        let kind = &self.served.kind;
        let internal = |error: setpoint_schema::DecodeError| Box::new(Status::internal_error(error));
        if let Some(part) = kind.subresource(self.subresource).filter(|part| part.root != kind.root) {
            let root = facts::BUILTIN.get(part.root);
            return Ok(setpoint_schema::decode::decode(Json::from(document), root).map_err(internal)?.value);
        }
        let mut object = kind.behaviour.decode(Json::from(document), kind.root_type()).map_err(internal)?.value;
        object.set("apiVersion", kind.api_version());
        object.set("kind", &*kind.kind);
        kind.behaviour.default(&mut object);
        Ok(object)
    }

    /// The labels of the namespace that the request is in, or why there are none.
    pub(super) fn namespace_labels(&self, object: Option<&Value>) -> Result<Value, Box<Status>> {
        let is_namespace = self.served.kind.plural == "namespaces" && self.subresource.is_empty();
        if is_namespace && matches!(self.operation, Operation::Create | Operation::Update) {
            return Ok(object.map(|object| object["metadata"]["labels"].clone()).unwrap_or_default());
        }
        match self.namespace_object() {
            Some(namespace) => Ok(namespace["metadata"]["labels"].clone()),
            None => Err(Box::new(Status::not_found(&GroupResource::new("", "namespaces"), &self.namespace))),
        }
    }

    /// The namespace that the request is in.
    pub(super) fn namespace_object(&self) -> Option<&Value> {
        let read = || {
            let namespaces = GroupResource::new("", "namespaces");
            let found = self.server.store.snapshot().get(&namespaces, None, &self.namespace)?;
            Some(objects::value(&found))
        };
        self.namespace_read.get_or_init(read).as_ref()
    }

    /// What is told of the request, apart from its objects. `as_served` is the version in which the objects are told.
    pub(super) fn to_value(&self, as_served: &Served) -> Map<String, Value> {
        let resource = |served: &Served| {
            let kind = &served.kind;
            json!({"group": &*kind.group, "version": &*kind.version, "resource": &*kind.plural})
        };
        let extra: Map<String, Value> =
            self.user.extra.iter().map(|(key, values)| (key.clone(), json!(values))).collect();
        let mut user = Map::new();
        user.insert("username".into(), json!(self.user.name));
        let texts =
            [("uid", json!(self.user.uid)), ("groups", json!(self.user.groups)), ("extra", Value::Object(extra))];
        let is_there = |value: &Value| match value {
            Value::String(text) => !text.is_empty(),
            Value::Array(items) => !items.is_empty(),
            Value::Object(fields) => !fields.is_empty(),
            _ => true,
        };
        user.extend(texts.into_iter().filter(|(_, value)| is_there(value)).map(|(key, value)| (key.into(), value)));
        let fields = [
            ("kind", self.kind_in(as_served).to_value()),
            ("resource", resource(as_served)),
            ("subResource", json!(self.subresource)),
            ("requestKind", self.kind.to_value()),
            ("requestResource", resource(self.served)),
            ("requestSubResource", json!(self.subresource)),
            ("name", json!(self.name)),
            ("namespace", json!(self.namespace)),
            ("operation", json!(self.operation.name())),
            ("userInfo", Value::Object(user)),
            ("dryRun", json!(self.dry_run)),
            ("options", self.options.clone()),
        ];
        fields.into_iter().filter(|(_, value)| is_there(value)).map(|(key, value)| (key.to_owned(), value)).collect()
    }
}

/// The options of a write, as the client gave them in its query.
pub(super) fn options(call: &Call<'_>, kind: &str) -> Value {
    let mut options = Map::new();
    options.insert("kind".into(), kind.into());
    options.insert("apiVersion".into(), "meta.k8s.io/v1".into());
    let dry_run = call.query.all("dryRun");
    if !dry_run.is_empty() {
        options.insert("dryRun".into(), json!(dry_run));
    }
    if kind == "PatchOptions" && call.query.has("force") {
        options.insert("force".into(), call.query.flag("force").into());
    }
    for field in ["fieldManager", "fieldValidation"] {
        if !call.query.get(field).is_empty() {
            options.insert(field.into(), call.query.get(field).into());
        }
    }
    Value::Object(options)
}
