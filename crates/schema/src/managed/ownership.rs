//! The rules of ownership: what a write gives to whom, and what it takes from whom.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde_json::Value;

use super::atom::Form;
use super::comparison::Comparison;
use super::conflict::Conflicts;
use super::element::order;
use super::field_set::FieldSet;
use super::managers::{Manager, Managers, Owner};
use super::merge::merge;
use super::removal::remove;
use crate::edit::Edit;
use crate::types::TypeRef;

/// Fields that are never owned: they say what the object is, or the server sets them.
const NEVER_OWNED: [&str; 12] = [
    "apiVersion",
    "kind",
    "metadata",
    "metadata.name",
    "metadata.namespace",
    "metadata.creationTimestamp",
    "metadata.selfLink",
    "metadata.uid",
    "metadata.clusterName",
    "metadata.generation",
    "metadata.managedFields",
    "metadata.resourceVersion",
];

/// The other versions in which an object may be written. Each manager's fields are named in the version it wrote.
pub trait Versions {
    /// The type of objects in this version; None if it isn't served any more, so that nobody manages anything in it.
    fn type_in(&self, api_version: &str) -> Option<TypeRef<'_>>;

    /// An object, in whatever version its `apiVersion` says, in another one that has a type.
    fn convert(&self, object: &Value, api_version: &str) -> Value;
}

/// For kinds with one version only.
#[derive(Debug, Clone, Copy)]
pub struct OneVersion;

impl Versions for OneVersion {
    fn type_in(&self, _api_version: &str) -> Option<TypeRef<'_>> {
        None
    }

    fn convert(&self, object: &Value, _api_version: &str) -> Value {
        object.clone()
    }
}

/// What an apply does when others own what it changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnConflict {
    /// It is refused.
    Refuse,
    /// It takes the fields from the others.
    Take,
}

/// The outcome of an apply.
pub(super) struct Outcome {
    /// The object after it.
    pub object: Value,
    /// Whether it differs from the live one.
    pub changed: bool,
    /// Who owns what after it.
    pub managers: Managers,
}

/// Where the rules work: a version, its form, and what can't be owned through this way of writing.
pub(super) struct Rules<'a> {
    pub form: Form<'a>,
    pub api_version: &'a str,
    pub reset_fields: FieldSet,
    pub versions: &'a dyn Versions,
}

impl Rules<'_> {
    /// A write that is no apply: the writer owns what changed, and nobody else does.
    pub fn update(&self, live: &Value, new: &Value, managers: Managers, writer: &Manager, time: &str) -> Managers {
        let managers = self.fit(managers);
        let changes = self.changes(live, new, &managers);
        self.give(managers, &changes, writer, time)
    }

    /// The same for a stored object of a kind with one version. Whoever owns nothing of what changed is not read.
    pub fn update_stored(
        &self,
        live: &Value,
        new: &Value,
        entries: &[Value],
        writer: &Manager,
        time: &str,
    ) -> Result<Managers, String> {
        let mut change = Comparison::of(live, new, self.form).without(&self.reset_fields);
        for set in [&mut change.removed, &mut change.modified, &mut change.added] {
            set.subtract(&NEVER);
        }
        let sets = [&change.removed, &change.modified, &change.added];
        let touched: BTreeSet<String> =
            sets.into_iter().flat_map(FieldSet::entries).map(|(step, _)| step.encode()).collect();
        let managers = Managers::decode_some(entries, |entry| {
            let owns = |key: &String| key == "." || touched.contains(key);
            entry.text("apiVersion") != self.api_version
                || writer.wrote(entry)
                || entry["fieldsV1"].as_object().is_none_or(|fields| fields.keys().any(owns))
        })?;
        let changes = BTreeMap::from([(self.api_version.to_owned(), change)]);
        Ok(self.give(self.fit(managers), &changes, writer, time))
    }

    fn give(
        &self,
        managers: Managers,
        changes: &BTreeMap<String, Comparison>,
        writer: &Manager,
        time: &str,
    ) -> Managers {
        let mut managers = managers.map_sets(|_, owner| self.leave(owner, changes));
        let own = &changes[self.api_version];
        let mut set = own.modified.union(&own.added);
        set.subtract(&NEVER);
        if !set.is_empty() {
            let identity = writer.identity(self.api_version);
            if let Some(before) = managers.remove(&identity) {
                set.unite(before.set);
            }
            managers.insert(Owner {
                manager: writer.clone(),
                api_version: self.api_version.to_owned(),
                time: Some(time.to_owned()),
                set,
            });
        }
        managers
    }

    /// An apply: the applier owns what it mentions, and what it has stopped to mention goes, unless others own it.
    pub fn apply(
        &self,
        live: &Value,
        applied: &Value,
        managers: &Managers,
        applier: &Manager,
        on_conflict: OnConflict,
    ) -> Result<Outcome, Conflicts> {
        let mut managers = self.fit(managers.clone());
        let identity = applier.identity(self.api_version);
        let last = managers.remove(&identity);
        let set = FieldSet::of_value(applied, self.form).recursive_difference(&self.reset_fields);
        let time = last.as_ref().and_then(|last| last.time.clone());
        // Who mentions all that it mentioned before gives nothing up. Most applies do, and they need no pruning.
        let last = last.filter(|last| last.api_version != self.api_version || !last.set.difference(&set).is_empty());
        managers.insert(Owner { manager: applier.clone(), api_version: self.api_version.to_owned(), time, set });
        let object = self.prune(merge(live, applied, self.form), &managers, last);
        let changes = self.changes(live, &object, &managers);
        let conflicts = self.conflicts(&managers, &identity, &changes);
        if on_conflict == OnConflict::Refuse && !conflicts.is_empty() {
            return Err(conflicts);
        }
        let managers = managers.map_sets(|other, owner| match other == identity {
            true => owner.set.subtract(&NEVER),
            false => self.leave(owner, &changes),
        });
        Ok(Outcome { changed: order(live, &object).is_ne(), object, managers })
    }

    /// Managers whose version is served, with sets that fit the types of today.
    fn fit(&self, mut managers: Managers) -> Managers {
        managers.retain(|owner| match self.form_in(&owner.api_version) {
            None => false,
            Some(form) => {
                owner.set.fit(form);
                true
            }
        });
        managers
    }

    /// What changed, in this version and in each version in which somebody owns something.
    fn changes(&self, old: &Value, new: &Value, managers: &Managers) -> BTreeMap<String, Comparison> {
        let mut changes = BTreeMap::new();
        let versions = managers.iter().map(|(_, owner)| owner.api_version.as_str());
        for version in [self.api_version].into_iter().chain(versions) {
            let Some(form) = self.form_in(version).filter(|_| !changes.contains_key(version)) else { continue };
            let (old, new) = (self.convert(old, version), self.convert(new, version));
            changes.insert(version.to_owned(), Comparison::of(&old, &new, form).without(&self.reset_fields));
        }
        changes
    }

    /// What others own of what changed.
    fn conflicts(&self, managers: &Managers, applier: &str, changes: &BTreeMap<String, Comparison>) -> Conflicts {
        let mut conflicts = Conflicts::default();
        for (identity, owner) in managers.iter().filter(|(identity, _)| *identity != applier) {
            if let Some(change) = changes.get(&owner.api_version) {
                let touched = owner.set.intersection(&change.modified.union(&change.added));
                conflicts.add(identity, &owner.manager, &owner.api_version, touched);
            }
        }
        conflicts
    }

    /// Leaves to an owner what somebody else's changes didn't touch.
    fn leave(&self, owner: &mut Owner, changes: &BTreeMap<String, Comparison>) {
        if let Some(change) = changes.get(&owner.api_version) {
            owner.set.subtract(&change.modified);
            owner.set.subtract(&change.added);
            owner.set.subtract(&change.removed);
        }
    }

    /// The merged object without what the applier owned last time and nobody owns now.
    fn prune(&self, merged: Value, managers: &Managers, last: Option<Owner>) -> Value {
        let Some(last) = last else { return merged };
        let version = last.api_version.as_str();
        let Some(form) = self.form_in(version) else { return merged };
        let merged = self.convert(&merged, version).into_owned();
        let pruned = remove(merged.clone(), &last.set.with_named_fields(Some(form)), form);
        let pruned = self.add_back_owned(&merged, pruned, version, managers);
        // Only what the applier owned may go: what nobody owned, or was only inside of what it owned, stays.
        let named = |value: &Value| FieldSet::of_value(value, form).with_named_fields(Some(form));
        let gone = named(&merged).difference(&named(&pruned));
        let gone = gone.intersection(&last.set.with_named_fields(Some(form)));
        let left = if gone.is_empty() { merged } else { remove(merged, &gone, form) };
        match version == self.api_version {
            true => left,
            false => self.versions.convert(&left, self.api_version),
        }
    }

    /// The pruned object with all that somebody owns in it again. The version of the pruned object comes first, so that
    /// what other versions need to be made is there.
    fn add_back_owned(&self, merged: &Value, pruned: Value, version: &str, managers: &Managers) -> Value {
        let mut owned: BTreeMap<&str, FieldSet> = BTreeMap::new();
        for (_, owner) in managers.iter() {
            let set = owned.entry(&owner.api_version).or_default();
            *set = set.union(&owner.set);
        }
        let first = owned.remove(version).map(|set| (version, set));
        let (mut merged, mut pruned, mut at) = (Cow::Borrowed(merged), pruned, version.to_owned());
        for (version, set) in first.into_iter().chain(owned) {
            let Some(form) = self.form_in(version) else { continue };
            if at != version {
                merged = Cow::Owned(self.versions.convert(&merged, version));
                pruned = self.versions.convert(&pruned, version);
                version.clone_into(&mut at);
            }
            let named = |set: FieldSet| set.with_named_fields(Some(form));
            let kept = named(FieldSet::of_value(&pruned, form)).union(&named(set));
            let gone = named(FieldSet::of_value(&merged, form)).difference(&kept);
            pruned = remove(merged.clone().into_owned(), &gone, form);
        }
        if at == version { pruned } else { self.versions.convert(&pruned, version) }
    }

    fn form_in(&self, version: &str) -> Option<Form<'_>> {
        if version == self.api_version { Some(self.form) } else { self.versions.type_in(version).map(Form::of) }
    }

    /// An object of this version in another one.
    fn convert<'v>(&self, object: &'v Value, version: &str) -> Cow<'v, Value> {
        match version == self.api_version {
            true => Cow::Borrowed(object),
            false => Cow::Owned(self.versions.convert(object, version)),
        }
    }
}

static NEVER: LazyLock<FieldSet> = LazyLock::new(|| FieldSet::of_fields(NEVER_OWNED));
