//! A write to an object, as `metadata.managedFields` sees it.

use serde_json::{Map, Value};

use super::atom::Form;
use super::conflict::ApplyError;
use super::field_set::FieldSet;
use super::last_applied;
use super::managers::{Manager, Managers, Operation, UPDATE_MANAGERS_MAX};
use super::ownership::{OnConflict, Outcome, Rules, Versions};
use super::validity::{Duplicates, validate, validate_next};
use crate::edit::Edit;
use crate::normal::normalize;
use crate::types::TypeRef;

/// Who owns what was there before anyone was tracked.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Who writes, when, and through what.
#[derive(Clone, Copy)]
pub struct Write<'a> {
    /// Type of the object.
    pub ty: TypeRef<'a>,
    /// Version of the request: `apps/v1`.
    pub api_version: &'a str,
    /// Kind of the object.
    pub kind: &'a str,
    /// The part that is written; `""` for the object itself.
    pub subresource: &'a str,
    /// Name of the manager.
    pub manager: &'a str,
    /// Now, as it is to be written.
    pub time: &'a str,
    /// Fields that this way of writing can't change, with dots between the steps.
    pub reset_fields: &'a [&'a str],
    /// The other versions of the kind.
    pub versions: &'a dyn Versions,
}

/// What became of an apply.
#[derive(Debug, Clone, PartialEq)]
pub struct Applied {
    /// The object to be written, not decoded and defaulted yet: it has what was applied as it was applied.
    pub object: Value,
    /// Whether anything differs from the live object. If not, nothing needs to be written.
    pub changed: bool,
}

impl Write<'_> {
    /// Sets the managed fields of an object that is about to be written, in any way but apply. Called on the decoded and
    /// defaulted object, before admission changes it: what admission sets is nobody's.
    ///
    /// Never fails: an object that can't be tracked has no managed fields.
    pub fn update(&self, live: Option<&Value>, new: &mut Value) {
        let given = take_managed_fields(new);
        if let Some(live) = live
            && let Some(entries) = self.as_stored(live, given.as_ref())
        {
            return self.update_stored(live, new, entries);
        }
        let managers = self.known(live, given.as_ref());
        if managers.is_empty() && live.is_some_and(|live| live["metadata"].has("uid")) {
            return;
        }
        let zero = self.zero();
        let live = live.unwrap_or(&zero);
        let form = Form::of(self.ty);
        let fits = |object: &Value| validate(object, form, Duplicates::Allowed).is_ok();
        // A built-in object that is stored fits: it was decoded under its type.
        let live_fits = || !self.ty.is_custom() || fits(live);
        if fits(new) && live_fits() && self.fit_everywhere(&managers, [live, new]) {
            let writer = self.writer(self.manager, Operation::Update);
            let mut managers = self.rules().update(live, new, managers, &writer, self.time);
            managers.cap();
            set_managed_fields(new, managers.encode());
        }
    }

    /// The managers of the live object, if a write starts from them and they are known to be sound: those of a built-in kind are read
    /// before they are stored.
    fn as_stored<'v>(&self, live: &'v Value, given: Option<&Value>) -> Option<&'v [Value]> {
        let stored = live["metadata"].get("managedFields")?;
        let is_given_back = !self.subresource.is_empty() || given.is_none_or(|given| given == stored);
        let entries = stored.as_array().filter(|entries| entries.len() < UPDATE_MANAGERS_MAX)?;
        (is_given_back && !self.ty.is_custom() && !is_reset(stored)).then_some(entries)
    }

    fn update_stored(&self, live: &Value, new: &mut Value, entries: &[Value]) {
        let writer = self.writer(self.manager, Operation::Update);
        if validate_next(new, live, Form::of(self.ty), Duplicates::Allowed).is_ok()
            && let Ok(managers) = self.rules().update_stored(live, new, entries, &writer, self.time)
        {
            set_managed_fields(new, managers.encode());
        }
    }

    /// Applies a document to the live object: merges it, takes away what its manager has stopped to mention, and sets the
    /// managed fields.
    pub fn apply(&self, live: Option<&Value>, config: &Value, on_conflict: OnConflict) -> Result<Applied, ApplyError> {
        self.check_config(config)?;
        let zero = self.zero();
        let before = live.unwrap_or(&zero);
        let known = Managers::decode(before["metadata"].get("managedFields"))
            .map_err(|why| ApplyError::Misfit(format!("failed to decode managed fields: {why}")))?;
        let managers = self.tracked(before, known)?;
        self.fit("create typed patch object", config, "", Duplicates::Refused)?;
        if self.ty.is_custom() {
            self.fit("create typed live object", before, "", Duplicates::Allowed)?;
        }
        let outcome = self.run(before, config, managers, on_conflict)?;
        Ok(self.finish(before, config, outcome))
    }

    /// Whether objects fit each version in which somebody owns something. One that doesn't can't be compared in it.
    fn fit_everywhere(&self, managers: &Managers, objects: [&Value; 2]) -> bool {
        let others = managers.iter().map(|(_, owner)| owner.api_version.as_str());
        others.filter(|version| *version != self.api_version).all(|version| {
            let Some(ty) = self.versions.type_in(version) else { return true };
            let fits =
                |object| validate(&self.versions.convert(object, version), Form::of(ty), Duplicates::Allowed).is_ok();
            objects.into_iter().all(fits)
        })
    }

    fn rules(&self) -> Rules<'_> {
        Rules {
            form: Form::of(self.ty),
            api_version: self.api_version,
            reset_fields: FieldSet::of_fields(self.reset_fields.iter().copied()),
            versions: self.versions,
        }
    }

    fn writer(&self, name: &str, operation: Operation) -> Manager {
        Manager::new(name, operation, self.subresource)
    }

    /// The object before its creation: nothing but what is always printed.
    fn zero(&self) -> Value {
        let mut zero = Value::Object(Map::new());
        normalize(&mut zero, self.ty);
        zero
    }

    /// The managers to start from. Those that a client sends count, unless it sends none or bad ones, or writes to a
    /// part only; clients that know nothing of them must not remove them by accident.
    fn known(&self, live: Option<&Value>, given: Option<&Value>) -> Managers {
        if self.subresource.is_empty() {
            if given.is_some_and(is_reset) {
                return Managers::default();
            }
            if let Ok(managers) = Managers::decode(given)
                && !managers.is_empty()
            {
                return managers;
            }
        }
        Managers::decode(live.and_then(|live| live["metadata"].get("managedFields"))).unwrap_or_default()
    }

    /// The managers of the live object. If there are none yet, all that is there belongs to what came before.
    fn tracked(&self, live: &Value, known: Managers) -> Result<Managers, ApplyError> {
        if !known.is_empty() {
            return Ok(known);
        }
        let what = "create manager for existing fields: failed to convert new object";
        self.fit(what, live, " to smd typed", Duplicates::Allowed)?;
        let before = self.writer(BEFORE_FIRST_APPLY, Operation::Update);
        Ok(self.rules().update(&self.zero(), live, known, &before, self.time))
    }

    fn check_config(&self, config: &Value) -> Result<(), ApplyError> {
        let (group_version, kind) = type_of(config);
        if (group_version, kind) != (Some(self.api_version), self.kind) {
            return Err(ApplyError::BadRequest(format!("invalid object type: {}", type_text(config))));
        }
        let managed = config.find(&["metadata", "managedFields"]).and_then(Value::as_array);
        if managed.is_some_and(|entries| entries.iter().all(Value::is_object)) {
            return Err(ApplyError::BadRequest("metadata.managedFields must be nil".to_owned()));
        }
        Ok(())
    }

    /// That an object fits the type, or what failed because it doesn't.
    fn fit(&self, what: &str, object: &Value, to: &str, duplicates: Duplicates) -> Result<(), ApplyError> {
        validate(object, Form::of(self.ty), duplicates).map_err(|misfit| {
            let text = |field| object.find(&["metadata", field]).and_then(Value::as_str).unwrap_or("");
            let of = format!("{}/{}; {}", text("namespace"), text("name"), type_text(object));
            ApplyError::Misfit(format!("failed to {what} ({of}){to}: {misfit}"))
        })
    }

    /// Applies; what `kubectl` applied in the old way, and nobody changed since, it may take.
    fn run(
        &self,
        live: &Value,
        config: &Value,
        managers: Managers,
        on_conflict: OnConflict,
    ) -> Result<Outcome, ApplyError> {
        let (rules, applier) = (self.rules(), self.writer(self.manager, Operation::Apply));
        let conflicts = match rules.apply(live, config, &managers, &applier, on_conflict) {
            Ok(outcome) => return Ok(outcome),
            Err(conflicts) => conflicts,
        };
        if self.manager != last_applied::KUBECTL {
            return Err(ApplyError::Conflicts(conflicts));
        }
        let allowed = last_applied::fields_as_applied(live, self.api_version, Form::of(self.ty)).unwrap_or_default();
        let left = conflicts.without(&allowed);
        if !left.is_empty() {
            return Err(ApplyError::Conflicts(left));
        }
        rules.apply(live, config, &managers, &applier, OnConflict::Take).map_err(ApplyError::Conflicts)
    }

    fn finish(&self, live: &Value, config: &Value, outcome: Outcome) -> Applied {
        let Outcome { mut object, changed, mut managers } = outcome;
        if changed {
            let identity = self.writer(self.manager, Operation::Apply).identity(self.api_version);
            if let Some(mut owner) = managers.remove(&identity) {
                owner.time = Some(self.time.to_owned());
                managers.insert(owner);
            }
        }
        if self.manager == last_applied::KUBECTL {
            last_applied::refresh(&mut object, config);
        }
        set_managed_fields(&mut object, managers.encode());
        let changed = changed || object != *live;
        Applied { object, changed }
    }
}

/// Whether `managedFields` as a client sent them ask to forget all managers: an empty list, or one empty entry. Decoding
/// drops an empty list, so who wants to honour it asks before, and puts one empty entry in its place.
pub fn is_reset(managed_fields: &Value) -> bool {
    let is_blank = |entry: &Value| entry.is_null() || entry.as_object().is_some_and(Map::is_empty);
    match managed_fields.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([entry]) => is_blank(entry),
        _ => false,
    }
}

/// Puts back the times of the managed fields where nothing but times differs from the live object: a write that changes
/// nothing must not look like a change. Called right before storing.
pub fn keep_times(new: &mut Value, live: &Value) {
    fn entries(object: &Value) -> Option<&Vec<Value>> {
        object.find(&["metadata", "managedFields"])?.as_array()
    }
    let (Some(ours), Some(theirs)) = (entries(new), entries(live)) else { return };
    if ours.len() != theirs.len() || !ours.iter().zip(theirs).all(|(ours, theirs)| equal_but(ours, theirs, "time")) {
        return;
    }
    if equal_but_managed_fields(new, live) {
        set_managed_fields(new, live["metadata"].get("managedFields").cloned());
    }
}

/// Whether two objects are the same but for one field.
fn equal_but(a: &Value, b: &Value, field: &str) -> bool {
    match (a.as_object(), b.as_object()) {
        (Some(a), Some(b)) => {
            a.iter().filter(|(name, _)| *name != field).eq(b.iter().filter(|(name, _)| *name != field))
        }
        _ => a == b,
    }
}

fn equal_but_managed_fields(new: &Value, live: &Value) -> bool {
    equal_but(new, live, "metadata") && equal_but(&new["metadata"], &live["metadata"], "managedFields")
}

fn take_managed_fields(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.remove("managedFields")
}

fn set_managed_fields(object: &mut Value, entries: Option<Value>) {
    match entries {
        Some(entries) => object.ensure("metadata").set("managedFields", entries),
        None => drop(take_managed_fields(object)),
    }
}

/// The version and kind of a document. A version that can't be read is none, and then there is no kind either.
fn type_of(object: &Value) -> (Option<&str>, &str) {
    let version = object.text("apiVersion");
    match version.matches('/').count() {
        0 | 1 if version != "/" && !version.is_empty() => (Some(version), object.text("kind")),
        0 | 1 => (None, object.text("kind")),
        _ => (None, ""),
    }
}

/// Group, version and kind as Go prints them: `apps/v1, Kind=Deployment`.
fn type_text(object: &Value) -> String {
    let (version, kind) = type_of(object);
    let version = version.unwrap_or("");
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    format!("{group}/{version}, Kind={kind}")
}

#[cfg(test)]
mod tests;
