//! Event: something that happened to an object.
//!
//! The same objects are served in two forms, by the core group and by `events.k8s.io`, which has other names for some
//! fields and stricter rules. [`to_core`] and [`to_events`] turn one into the other.

use std::borrow::Cow;

use serde_json::{Value, json};
use setpoint_api::name;

use crate::behaviour::Behaviour;
use crate::columns::Column;
use crate::edit::Edit;
use crate::errors::Errors;
use crate::human;
use crate::internal_form::shown;
use crate::kind::Kind;
use crate::metadata;
use crate::node::Node;
use crate::selectable::{Selectable, as_text};

/// Bytes of a reason, an action or the name of an instance.
const WORD_BYTES_MAX: usize = 128;
/// Bytes of a message.
const MESSAGE_BYTES_MAX: usize = 1024;

/// Fields that the two forms call differently: in the core group, in `events.k8s.io`.
const NAMES: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// The decisions of Event in one of its forms.
#[derive(Debug)]
pub enum Event {
    /// As the core group has it.
    Core,
    /// As `events.k8s.io` has it.
    Events,
}

/// An event of `events.k8s.io` in the form of the core group.
pub fn to_core(event: Value) -> Value {
    renamed(event, "v1", |name| NAMES.iter().find(|(_, new)| *new == name).map(|(core, _)| *core))
}

/// An event of the core group in the form of `events.k8s.io`.
pub fn to_events(event: Value) -> Value {
    renamed(event, "events.k8s.io/v1", |name| NAMES.iter().find(|(core, _)| *core == name).map(|(_, new)| *new))
}

impl Behaviour for Event {
    fn validate(&self, object: &Node<'_>, errs: &mut Errors) {
        let namespace = object.get("metadata").get("namespace");
        let at = self.get(object, "involvedObject").get("namespace").at("involvedObject.namespace");
        let involved = at.as_str();
        let here = namespace.as_str();
        if self.is_new(object) {
            if involved.is_empty() && !matches!(here, "default" | "kube-system") {
                errs.invalid(&at, involved, "does not match event.namespace");
            }
            self.validate_new(object, errs);
        } else {
            let fits = if involved.is_empty() { matches!(here, "" | "default") } else { involved == here };
            if !fits {
                errs.invalid(&at, involved, "does not match event.namespace");
            }
        }
        errs.invalid_each(&namespace.at("namespace"), here, name::dns1123_subdomain(here));
    }

    fn check_create(&self, kind: &Kind, object: &Node<'_>, errs: &mut Errors) {
        self.validate(object, errs);
        if let Self::Events = self {
            metadata::validate(object, kind.namespaced, self.name_rule(), errs);
            self.validate_strict(object, errs);
        }
    }

    fn check_update(&self, _kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        self.validate(new, errs);
        if let Self::Events = self {
            metadata::validate_update(new, old, errs);
            self.validate_unchanged(new, old, errs);
        }
    }

    fn allow_create_on_update(&self) -> bool {
        true
    }

    fn selectable(&self) -> &[Selectable] {
        match self {
            Self::Core => &CORE_SELECTABLE,
            Self::Events => &EVENTS_SELECTABLE,
        }
    }

    fn columns(&self) -> Cow<'_, [Column<'_>]> {
        COLUMNS.into()
    }

    /// Events of both groups are kept together, in the form of the core group.
    fn to_stored(&self, object: &mut Value) {
        if let Self::Events = self {
            *object = to_core(object.take());
        }
    }

    fn read_stored(&self, object: &mut Value) {
        if let Self::Events = self {
            *object = to_events(object.take());
        }
    }
}

impl Event {
    /// The name of a field of the core group in this form.
    fn name(&self, core: &'static str) -> &'static str {
        match self {
            Self::Core => core,
            Self::Events => NAMES.iter().find(|(name, _)| *name == core).map_or(core, |(_, events)| events),
        }
    }

    /// A field by its name in the core group, whose name messages show too.
    fn get<'a>(&self, object: &Node<'a>, core: &'static str) -> Node<'a> {
        let at = object.get(self.name(core));
        if core == "reportingComponent" { at } else { at.at(core) }
    }

    /// Events with a time of their own are made by newer clients and follow more rules.
    fn is_new(&self, object: &Node<'_>) -> bool {
        object.has("eventTime")
    }

    fn validate_new(&self, object: &Node<'_>, errs: &mut Errors) {
        let controller = self.get(object, "reportingComponent");
        if controller.is_empty() {
            errs.required(&controller, "");
        }
        errs.invalid_each(&controller, controller.as_str(), name::qualified_name(controller.as_str()));
        for field in ["reportingInstance", "action", "reason"] {
            let at = object.get(field);
            if at.is_empty() {
                errs.required(&at, "");
            }
            validate_length(&at, WORD_BYTES_MAX, errs);
        }
        validate_length(&self.get(object, "message"), MESSAGE_BYTES_MAX, errs);
    }

    fn validate_strict(&self, object: &Node<'_>, errs: &mut Errors) {
        validate_series(object, errs);
        if !object.has("eventTime") {
            errs.required(&object.get("eventTime"), "");
        }
        let kind = object.str("type");
        if !matches!(kind, "Normal" | "Warning") {
            errs.invalid(&object.get("type"), "", format!("has invalid value: {kind}"));
        }
        for field in ["firstTimestamp", "lastTimestamp", "count"] {
            let at = self.get(object, field);
            if !at.is_empty() {
                errs.invalid(&at, "", "needs to be unset");
            }
        }
        let source = self.get(object, "source");
        if !source.str("component").is_empty() || !source.str("host").is_empty() {
            errs.invalid(&source, "", "needs to be unset");
        }
    }

    /// Only the series of an event goes on.
    fn validate_unchanged(&self, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        if !new.get("series").same(&old.get("series")) {
            validate_series(new, errs);
        }
        for field in [
            "involvedObject",
            "reason",
            "message",
            "source",
            "firstTimestamp",
            "lastTimestamp",
            "count",
            "reason",
            "type",
            "eventTime",
            "action",
            "related",
            "reportingComponent",
            "reportingInstance",
        ] {
            let (now, before) = (self.get(new, field), self.get(old, field));
            if !now.same(&before) && now.json().is_object() {
                errs.invalid(&now, shown(&now), "field is immutable");
            } else {
                errs.immutable(&now, &before);
            }
        }
    }
}

fn renamed<'n>(event: Value, api_version: &str, name: impl Fn(&str) -> Option<&'n str>) -> Value {
    let Value::Object(fields) = event else { return event };
    let renamed = fields.into_iter().map(|(field, value)| match name(&field) {
        Some(name) => (name.to_owned(), value),
        None => (field, value),
    });
    let mut event: Value = renamed.collect::<serde_json::Map<_, _>>().into();
    event.set("apiVersion", api_version);
    event
}

fn validate_length(at: &Node<'_>, max: usize, errs: &mut Errors) {
    if at.as_str().len() > max {
        errs.invalid(at, "", format!("can have at most {max} characters"));
    }
}

fn validate_series(object: &Node<'_>, errs: &mut Errors) {
    let series = object.get("series");
    if !series.is_set() {
        return;
    }
    if series.int("count").unwrap_or(0) < 2 {
        errs.invalid(&series.get("count"), "", "should be at least 2");
    }
    if !series.has("lastObservedTime") {
        errs.required(&series.get("lastObservedTime"), "");
    }
}

/// A field under either of its names.
fn either<'a>(object: &'a Value, core: &str) -> Option<&'a Value> {
    let other = NAMES.iter().find(|(name, _)| *name == core).map_or(core, |(_, events)| events);
    object.find(&[core]).or_else(|| object.find(&[other]))
}

fn text<'a>(object: &'a Value, core: &str) -> &'a str {
    either(object, core).and_then(Value::as_str).unwrap_or("")
}

fn involved(object: &Value, field: &str) -> String {
    as_text(either(object, "involvedObject").and_then(|involved| involved.get(field)))
}

fn source<'a>(object: &'a Value, part: &str, other: &'a str) -> &'a str {
    match either(object, "source").map_or("", |source| source.text(part)) {
        "" => other,
        given => given,
    }
}

const EVENT: &str = "io.k8s.api.core.v1.Event";

const COLUMNS: &[Column<'static>] = &[
    Column::new("Last Seen", "string", |object, now| json!(last_seen(object, now))).about_field(EVENT, "lastTimestamp"),
    Column::new("Type", "string", |object, _| json!(object.text("type"))).about_field(EVENT, "type"),
    Column::new("Reason", "string", |object, _| json!(object.text("reason"))).about_field(EVENT, "reason"),
    Column::new("Object", "string", |object, _| json!(target(object))).about_field(EVENT, "involvedObject"),
    Column::new("Subobject", "string", |object, _| json!(involved(object, "fieldPath")))
        .about_field("io.k8s.api.core.v1.ObjectReference", "fieldPath")
        .wide(),
    Column::new("Source", "string", |object, _| json!(shown_source(object))).about_field(EVENT, "source").wide(),
    Column::new("Message", "string", |object, _| json!(text(object, "message").trim())).about_field(EVENT, "message"),
    Column::new("First Seen", "string", |object, now| json!(first_seen(object, now)))
        .about_field(EVENT, "firstTimestamp")
        .wide(),
    Column::new("Count", "string", |object, _| json!(count(object))).about_field(EVENT, "count").wide(),
    Column::NAME.wide(),
];

fn first_seen(object: &Value, now: i64) -> String {
    human::age(either(object, "firstTimestamp").or_else(|| object.find(&["eventTime"])), now)
}

fn last_seen(object: &Value, now: i64) -> String {
    if let Some(series) = object.find(&["series"]) {
        return human::age(series.find(&["lastObservedTime"]), now);
    }
    match either(object, "lastTimestamp") {
        None => first_seen(object, now),
        last => human::age(last, now),
    }
}

fn count(object: &Value) -> i64 {
    match object.find(&["series"]) {
        Some(series) => series.number("count").unwrap_or(0),
        None => either(object, "count").and_then(Value::as_i64).filter(|count| *count != 0).unwrap_or(1),
    }
}

fn target(object: &Value) -> String {
    let kind = involved(object, "kind").to_lowercase();
    match involved(object, "name") {
        name if name.is_empty() => kind,
        name => format!("{kind}/{name}"),
    }
}

fn shown_source(object: &Value) -> String {
    let component = source(object, "component", text(object, "reportingComponent"));
    match source(object, "host", object.text("reportingInstance")) {
        "" => component.to_owned(),
        instance => format!("{component}, {instance}"),
    }
}

static CORE_SELECTABLE: [Selectable; 11] = [
    Selectable::new("involvedObject.kind", |object| involved(object, "kind")),
    Selectable::new("involvedObject.namespace", |object| involved(object, "namespace")),
    Selectable::new("involvedObject.name", |object| involved(object, "name")),
    Selectable::new("involvedObject.uid", |object| involved(object, "uid")),
    Selectable::new("involvedObject.apiVersion", |object| involved(object, "apiVersion")),
    Selectable::new("involvedObject.resourceVersion", |object| involved(object, "resourceVersion")),
    Selectable::new("involvedObject.fieldPath", |object| involved(object, "fieldPath")),
    Selectable::new("reason", |object| object.text("reason").to_owned()),
    Selectable::new("reportingComponent", |object| text(object, "reportingComponent").to_owned()),
    Selectable::new("source", |object| source(object, "component", text(object, "reportingComponent")).to_owned()),
    Selectable::new("type", |object| object.text("type").to_owned()),
];

static EVENTS_SELECTABLE: [Selectable; 10] = [
    Selectable::new("regarding.kind", |object| involved(object, "kind")),
    Selectable::new("regarding.namespace", |object| involved(object, "namespace")),
    Selectable::new("regarding.name", |object| involved(object, "name")),
    Selectable::new("regarding.uid", |object| involved(object, "uid")),
    Selectable::new("regarding.apiVersion", |object| involved(object, "apiVersion")),
    Selectable::new("regarding.resourceVersion", |object| involved(object, "resourceVersion")),
    Selectable::new("regarding.fieldPath", |object| involved(object, "fieldPath")),
    Selectable::new("reason", |object| object.text("reason").to_owned()),
    Selectable::new("reportingController", |object| text(object, "reportingComponent").to_owned()),
    Selectable::new("type", |object| object.text("type").to_owned()),
];

#[cfg(test)]
mod tests {
    use super::super::super::testing::{columns, create, create_fails, selected, update_fails};
    use super::*;

    fn event() -> Value {
        json!({
            "metadata": {"name": "a"}, "regarding": {"kind": "Pod", "namespace": "default", "name": "p"},
            "eventTime": "2024-01-01T00:00:00.000000Z", "reportingController": "c", "reportingInstance": "i",
            "action": "Do", "reason": "Because", "type": "Normal", "note": " hello ",
        })
    }

    #[test]
    fn the_two_forms_are_the_same_event() {
        let object = create("events.k8s.io/v1", "events", event());
        let core = to_core(object.clone());
        assert_eq!(core["involvedObject"]["name"], "p");
        assert_eq!(core["message"], " hello ");
        assert_eq!(core["apiVersion"], "v1");
        assert_eq!(to_events(core.clone()), object);
        assert_eq!(selected("v1", "events", &core, "involvedObject.kind"), "Pod");
        assert_eq!(selected("events.k8s.io/v1", "events", &object, "regarding.kind"), "Pod");
        assert_eq!(columns("v1", "events", &core), columns("events.k8s.io/v1", "events", &object));
        assert_eq!(columns("v1", "events", &core)[3], "pod/p");
        assert_eq!(columns("v1", "events", &core)[6], "hello");
    }

    #[test]
    fn old_events_are_of_their_own_namespace() {
        create_fails(
            "v1",
            "events",
            json!({"metadata": {"name": "a"}, "involvedObject": {"namespace": "other"}}),
            "involvedObject.namespace: Invalid value: \"other\": does not match event.namespace",
        );
        create("v1", "events", json!({"metadata": {"name": "a"}, "involvedObject": {}}));
    }

    #[test]
    fn newer_events_say_who_did_what_and_why() {
        let mut body = event();
        for field in ["reportingController", "action", "type"] {
            body.remove(field);
        }
        create_fails(
            "events.k8s.io/v1",
            "events",
            body,
            "[reportingController: Required value, reportingController: Invalid value: \"\": name part must be non-empty, \
             reportingController: Invalid value: \"\": name part must consist of alphanumeric characters, '-', '_' or '.', \
             and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used \
             for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]'), action: Required value, type: Invalid value: \
             \"\": has invalid value: ]",
        );
    }

    #[test]
    fn only_the_series_goes_on() {
        let mut next = event();
        next["reason"] = json!("Other");
        next["series"] = json!({"count": 1, "lastObservedTime": "2024-01-01T00:00:00.000000Z"});
        update_fails(
            "events.k8s.io/v1",
            "events",
            event(),
            next,
            "[series.count: Invalid value: \"\": should be at least 2, reason: Invalid value: \"Other\": field is immutable]",
        );
    }
}
