//! What is served: every kind by its place in the URL, with what the handlers need of it at hand.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;
use setpoint_api::GroupResource;
use setpoint_schema::builtin::core::event;
use setpoint_schema::{Kind, builtin};
use setpoint_store::{FieldNames, Fields};

/// A kind as it is served under one group and version.
#[derive(Debug)]
pub struct Served {
    /// The kind.
    pub kind: Arc<Kind>,
    /// How errors and authorization call it.
    pub resource: GroupResource,
    /// Where its objects are stored; another version of the same objects may share it.
    pub stored: GroupResource,
    /// The kind in whose form its objects are stored, where that is another one.
    stored_as: Option<Arc<Kind>>,
    /// What every stored object begins with: `{"apiVersion":"v1","kind":"ConfigMap",`.
    pub prefix: Box<[u8]>,
    /// Names of its selectable fields beside those of metadata.
    pub fields: FieldNames,
}

impl Served {
    pub(crate) fn new(kind: Arc<Kind>) -> Served {
        let resource = shown_resource(&kind);
        let stored = storage_of(&resource);
        let prefix = format!(r#"{{"apiVersion":"{}","kind":"{}","#, kind.api_version(), kind.kind);
        let stored_as = stored_form(&kind);
        let form = stored_as.as_ref().unwrap_or(&kind);
        let fields = form.behaviour.selectable().iter().map(|field| field.name.as_ref().into()).collect();
        Served { kind, resource, stored, stored_as, prefix: prefix.into_bytes().into(), fields }
    }

    /// Whether its objects are stored in another form than they are shown in.
    pub(crate) fn is_converted(&self) -> bool {
        self.stored_as.is_some()
    }

    /// An object of this kind in the form in which it is stored.
    pub(crate) fn to_stored(&self, mut object: Value) -> Value {
        let Some(form) = &self.stored_as else { return object };
        match self.is_event_of_another_group() {
            true => object = event::to_core(object),
            false => self.kind.behaviour.to_stored(&mut object),
        }
        form.normalize(&mut object);
        object
    }

    /// A stored object in the form of this kind.
    pub(crate) fn show_stored(&self, mut object: Value) -> Value {
        if !self.is_converted() {
            return object;
        }
        match self.is_event_of_another_group() {
            true => object = event::to_events(object),
            false => self.kind.behaviour.read_stored(&mut object),
        }
        self.kind.normalize(&mut object);
        object
    }

    /// The name under which a selectable field of this kind is stored.
    pub(crate) fn stored_field(&self, name: &str) -> String {
        match name.strip_prefix("regarding.") {
            Some(field) if self.is_event_of_another_group() => format!("involvedObject.{field}"),
            None if self.is_event_of_another_group() && name == "reportingController" => {
                "reportingComponent".to_owned()
            }
            _ => name.to_owned(),
        }
    }

    fn is_event_of_another_group(&self) -> bool {
        self.kind.group == "events.k8s.io" && self.kind.plural == "events"
    }
}

/// Events of both groups are the same objects, kept where the core group has them.
fn storage_of(resource: &GroupResource) -> GroupResource {
    match (&*resource.group, &*resource.resource) {
        ("events.k8s.io", "events") => GroupResource::new("", "events"),
        _ => resource.clone(),
    }
}

/// The kind in whose form objects of a kind are stored, where that is another one.
fn stored_form(kind: &Kind) -> Option<Arc<Kind>> {
    if kind.group == "events.k8s.io" && kind.plural == "events" {
        return builtin::by_plural("", "v1", "events").cloned();
    }
    builtin::by_plural(&kind.group, kind.behaviour.stored_version()?, &kind.plural).cloned()
}

/// Group, version and plural name.
type Place = (Box<str>, Box<str>, Box<str>);

/// How messages call a resource: by its plural name, but for one kind.
fn shown_resource(kind: &Kind) -> GroupResource {
    match (&*kind.group, &*kind.plural) {
        ("", "componentstatuses") => GroupResource::new("", "componentstatus"),
        _ => kind.group_resource(),
    }
}

/// All kinds that are served.
#[derive(Debug)]
pub struct Registry {
    kinds: Vec<Arc<Served>>,
    by_url: HashMap<Place, Arc<Served>>,
    by_storage: HashMap<GroupResource, Arc<Served>>,
}

impl Registry {
    /// The built-in kinds.
    pub fn builtin() -> Registry {
        let mut registry = Registry { kinds: Vec::new(), by_url: HashMap::new(), by_storage: HashMap::new() };
        for kind in builtin::kinds() {
            let served = Arc::new(Served::new(Arc::clone(kind)));
            let url = ((*kind.group).into(), (*kind.version).into(), (*kind.plural).into());
            registry.by_url.insert(url, Arc::clone(&served));
            registry.by_storage.entry(served.stored.clone()).or_insert_with(|| Arc::clone(&served));
            registry.kinds.push(served);
        }
        registry
    }

    /// Every kind in the order of discovery.
    pub fn kinds(&self) -> &[Arc<Served>] {
        &self.kinds
    }

    /// The kind at a place in the URL.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Served>> {
        self.by_url.get(&(group.into(), version.into(), plural.into()))
    }

    /// Whether anything is served under a group and version.
    pub fn has_version(&self, group: &str, version: &str) -> bool {
        self.kinds.iter().any(|served| served.kind.group == group && served.kind.version == version)
    }

    /// The kind whose objects are stored in this place.
    pub fn stored(&self, resource: &GroupResource) -> Option<&Arc<Served>> {
        self.by_storage.get(resource)
    }
}

impl Fields for Registry {
    fn names(&self, resource: &GroupResource) -> FieldNames {
        self.stored(resource).map_or_else(|| Arc::from([]), |served| Arc::clone(&served.fields))
    }

    fn values(&self, resource: &GroupResource, json: &[u8]) -> Vec<String> {
        let Some(served) = self.stored(resource) else { return Vec::new() };
        let object: Value = serde_json::from_slice(json).unwrap_or_default();
        values(served, &object)
    }
}

fn values(served: &Served, object: &Value) -> Vec<String> {
    let form = served.stored_as.as_ref().unwrap_or(&served.kind);
    form.behaviour.selectable().iter().map(|field| field.value(object)).collect()
}

/// The selectable fields of an object that is at hand: no need to read them from its JSON.
pub(crate) struct Known<'a> {
    pub(crate) served: &'a Served,
    pub(crate) object: &'a Value,
}

impl Known<'_> {
    pub(crate) fn values(&self) -> Vec<String> {
        values(self.served, self.object)
    }
}
