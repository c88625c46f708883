//! What is served: every kind by its place in the URL, with what the handlers need of it at hand.

mod kinds;

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;
use setpoint_api::GroupResource;
use setpoint_schema::builtin::core::event;
use setpoint_schema::managed::Versions;
use setpoint_schema::selectable::readable;
use setpoint_schema::{Edit, Kind, TypeRef, builtin};
use setpoint_store::{FieldNames, Fields, Object};

use crate::conversion::Converter;
use crate::definitions::Definition;

pub(crate) use kinds::{DEFINITIONS, Following, Kinds};

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
    /// How much of a stored object is left out in a list: `{"kind":"ConfigMap","apiVersion":"v1",`, in either order. Items of
    /// custom kinds carry all of it.
    pub list_skips: usize,
    /// Names of its selectable fields beside those of metadata.
    pub fields: FieldNames,
    /// Where it comes from, if it isn't built in.
    pub(crate) custom: Option<Custom>,
}

/// What the server knows of a custom kind beside the kind itself.
#[derive(Debug)]
pub(crate) struct Custom {
    /// The definition as it is stored.
    definition: Arc<Object>,
    /// Being deleted: there are no new objects.
    pub(crate) terminating: bool,
    /// The version in which objects are stored: `example.com/v1`.
    pub(crate) storage: String,
    /// Objects stored from this revision on are in the form of today's schema.
    schema_since: setpoint_api::Revision,
    /// All served versions.
    versions: Arc<[Arc<Kind>]>,
    /// Who turns versions into each other, where they differ in more than their name.
    converter: Option<Arc<Converter>>,
}

impl Custom {
    /// All served versions.
    pub(crate) fn versions(&self) -> &[Arc<Kind>] {
        &self.versions
    }
}

impl Versions for Custom {
    fn type_in(&self, api_version: &str) -> Option<TypeRef<'_>> {
        self.versions.iter().find(|kind| kind.api_version() == api_version).map(|kind| kind.root_type())
    }

    fn convert(&self, object: &Value, api_version: &str) -> Value {
        let mut object = object.clone();
        object.set("apiVersion", api_version);
        object
    }
}

impl Served {
    pub(crate) fn new(kind: Arc<Kind>) -> Served {
        let resource = shown_resource(&kind);
        let stored = storage_of(&resource);
        let prefix = format!(r#"{{"kind":"{}","apiVersion":"{}","#, kind.kind, kind.api_version());
        let stored_as = stored_form(&kind);
        let form = stored_as.as_ref().unwrap_or(&kind);
        let fields = form.behaviour.selectable().iter().map(|field| field.name.as_ref().into()).collect();
        Served { kind, resource, stored, stored_as, list_skips: prefix.len(), fields, custom: None }
    }

    /// The kinds of a definition.
    fn of_definition(definition: &Definition) -> impl Iterator<Item = Served> {
        let kinds = definition.kinds.as_ref().ok().filter(|_| definition.is_served());
        kinds.into_iter().flat_map(|kinds| kinds.iter().map(|kind| Served::of_custom(kind, kinds, definition)))
    }

    /// The kind of a definition's objects in the version that they are stored in, or the nearest.
    pub(crate) fn of_value(object: Arc<Object>, value: Value) -> Option<Served> {
        let mut definition = Definition::read(object, None);
        definition.compile_from(value);
        let kinds = definition.kinds.as_ref().ok()?;
        let kind = kinds.iter().find(|kind| kind.version == definition.storage_version).or(kinds.first())?;
        Some(Served::of_custom(kind, kinds, &definition))
    }

    fn of_custom(kind: &Arc<Kind>, versions: &Arc<[Arc<Kind>]>, definition: &Definition) -> Served {
        let resource = kind.group_resource();
        let fields = kind.behaviour.selectable().iter().map(|field| field.name.as_ref().into()).collect();
        let custom = Custom {
            definition: Arc::clone(&definition.object),
            terminating: definition.terminating,
            storage: format!("{}/{}", definition.group, definition.storage_version),
            schema_since: definition.schema_since,
            versions: Arc::clone(versions),
            converter: definition.converter.clone(),
        };
        let (stored, kind) = (resource.clone(), Arc::clone(kind));
        Served { kind, resource, stored, stored_as: None, list_skips: 1, fields, custom: Some(custom) }
    }

    /// The webhook that turns versions of its objects into each other.
    pub(crate) fn converter(&self) -> Option<&Arc<Converter>> {
        self.custom.as_ref()?.converter.as_ref()
    }

    /// Whether its objects are stored in another form than they are shown in.
    pub(crate) fn is_converted(&self) -> bool {
        self.stored_as.is_some() || self.custom.as_ref().is_some_and(|custom| custom.storage != self.kind.api_version())
    }

    /// Whether an object can be shown as it is stored. One of a custom kind may be older than the kind's schema.
    pub(crate) fn shows_as_stored(&self, object: &Object) -> bool {
        !self.is_converted() && self.custom.as_ref().is_none_or(|custom| object.revision() >= custom.schema_since)
    }

    /// The definition of a custom kind, read from what is stored.
    pub(crate) fn definition(&self) -> Option<Value> {
        let custom = self.custom.as_ref()?;
        Some(serde_json::from_slice(custom.definition.json()).expect("what is stored was encoded by us"))
    }

    /// What may be done with it now.
    pub(crate) fn verbs(&self) -> Vec<&str> {
        let terminating = self.custom.as_ref().is_some_and(|custom| custom.terminating);
        let ended = |verb: &str| terminating && matches!(verb, "create" | "patch" | "update");
        self.kind.verbs.iter().map(|verb| &**verb).filter(|verb| !ended(verb)).collect()
    }

    /// An object of this kind in the form in which it is stored.
    pub(crate) fn to_stored(&self, mut object: Value) -> Value {
        if self.custom.is_some() {
            self.kind.behaviour.to_stored(&mut object);
            return object;
        }
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
        if self.custom.is_some() {
            self.kind.behaviour.read_stored(&mut object);
            return object;
        }
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

    /// The values of the selectable fields of an object in the form in which it is stored.
    pub(crate) fn selectable_values(&self, object: &Value) -> Vec<String> {
        let form = self.stored_as.as_ref().unwrap_or(&self.kind);
        form.behaviour.selectable().iter().map(|field| field.value(object)).collect()
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

/// How messages call a resource: by its plural name, but for one kind.
fn shown_resource(kind: &Kind) -> GroupResource {
    match (&*kind.group, &*kind.plural) {
        ("", "componentstatuses") => GroupResource::new("", "componentstatus"),
        _ => kind.group_resource(),
    }
}

/// All kinds that are served at some moment: the built-in ones, and those that are defined by stored objects.
#[derive(Debug)]
pub struct Registry {
    builtin: Arc<Table>,
    custom: Table,
    definitions: Vec<Definition>,
}

/// The kinds of a group by version and plural name.
type Places = HashMap<(Box<str>, Box<str>), Arc<Served>>;

/// Kinds by their places.
#[derive(Debug, Default)]
struct Table {
    kinds: Vec<Arc<Served>>,
    /// By group.
    by_url: HashMap<Box<str>, Places>,
    by_storage: HashMap<GroupResource, Arc<Served>>,
}

impl Table {
    fn of(kinds: impl Iterator<Item = Arc<Served>>) -> Table {
        let mut table = Table::default();
        for served in kinds {
            let kind = &served.kind;
            let place = ((*kind.version).into(), (*kind.plural).into());
            table.by_url.entry((*kind.group).into()).or_default().insert(place, Arc::clone(&served));
            table.by_storage.entry(served.stored.clone()).or_insert_with(|| Arc::clone(&served));
            table.kinds.push(served);
        }
        table
    }

    fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Served>> {
        self.by_url.get(group)?.get(&(version.into(), plural.into()))
    }

    fn has_version(&self, group: &str, version: &str) -> bool {
        self.by_url.get(group).is_some_and(|places| places.keys().any(|(known, _)| &**known == version))
    }
}

impl Registry {
    /// The built-in kinds.
    pub fn builtin() -> Registry {
        let table = Table::of(builtin::kinds().iter().map(|kind| Arc::new(Served::new(Arc::clone(kind)))));
        Registry { builtin: Arc::new(table), custom: Table::default(), definitions: Vec::new() }
    }

    /// The built-in kinds of this registry with the kinds of these definitions. A built-in kind is never replaced.
    pub(crate) fn with(&self, definitions: Vec<Definition>) -> Registry {
        let custom = definitions.iter().flat_map(Served::of_definition);
        let custom = custom.filter(|served| !self.builtin.by_storage.contains_key(&served.stored));
        let custom = Table::of(custom.map(Arc::new));
        Registry { builtin: Arc::clone(&self.builtin), custom, definitions }
    }

    /// Every kind in the order of discovery.
    pub fn kinds(&self) -> impl Iterator<Item = &Arc<Served>> {
        self.builtin.kinds.iter().chain(&self.custom.kinds)
    }

    /// The definitions of custom kinds, served or not.
    pub(crate) fn definitions(&self) -> &[Definition] {
        &self.definitions
    }

    /// The kind at a place in the URL.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Served>> {
        self.builtin.find(group, version, plural).or_else(|| self.custom.find(group, version, plural))
    }

    /// Whether anything is served under a group and version.
    pub fn has_version(&self, group: &str, version: &str) -> bool {
        self.has_builtin_version(group, version) || self.custom.has_version(group, version)
    }

    /// Whether anything built in is served under a group and version.
    pub(crate) fn has_builtin_version(&self, group: &str, version: &str) -> bool {
        self.builtin.has_version(group, version)
    }

    /// The kind whose objects are stored in this place.
    pub fn stored(&self, resource: &GroupResource) -> Option<&Arc<Served>> {
        self.builtin.by_storage.get(resource).or_else(|| self.custom.by_storage.get(resource))
    }
}

impl Fields for Registry {
    fn names(&self, resource: &GroupResource) -> FieldNames {
        self.stored(resource).map_or_else(|| Arc::from([]), |served| Arc::clone(&served.fields))
    }

    fn values(&self, resource: &GroupResource, json: &[u8]) -> Vec<String> {
        self.stored(resource).map(|served| Fields::values(&**served, resource, json)).unwrap_or_default()
    }
}

/// The selectable fields of one kind, whatever the resource.
impl Fields for Served {
    fn names(&self, _: &GroupResource) -> FieldNames {
        Arc::clone(&self.fields)
    }

    fn values(&self, _: &GroupResource, json: &[u8]) -> Vec<String> {
        let form = self.stored_as.as_ref().unwrap_or(&self.kind);
        match form.behaviour.selectable() {
            [] => Vec::new(),
            selectable => self.selectable_values(&readable(json, selectable)),
        }
    }
}
