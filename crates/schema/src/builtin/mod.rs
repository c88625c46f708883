//! The built-in kinds.
//!
//! # Adding a kind
//!
//! Names, verbs, subresources and types come from `facts/`: every kind is served and decoded already. What is added is
//! what it decides for itself: a [`Behaviour`].
//!
//! 1. One file per kind: `builtin/<group>/<kind>.rs`, and one arm in the `behaviour` function of `builtin/<group>/mod.rs`.
//! 2. Copy the outline of `core/configmap.rs`: a unit struct and `impl Behaviour for` it. Leave out what is as usual.
//! 3. `default` works on a `&mut Value` with the methods of [`Edit`](crate::Edit): `default_to`, `ensure`, `items_mut`.
//!    A type that several kinds share (a pod template) has its own file with free functions.
//! 4. `prepare_create` clears status and the like; `prepare_update` takes from the old object what users may not change
//!    ([`keep`](crate::behaviour::keep)). Generation, uid and times are handled for you: say `generation()` only.
//!    Whatever you leave behind is normalised, so a removed struct becomes `{}` where Go prints it.
//! 5. `validate` reads through a [`Node`](crate::Node) and reports to [`Errors`](crate::Errors):
//!    ```text
//!    let spec = object.get("spec");                       // panics in debug builds if there is no such field
//!    if spec.int("replicas").unwrap_or(0) < 0 {
//!        errs.invalid_here(&spec.get("replicas"), "must be greater than or equal to 0");
//!    }
//!    for (index, port) in spec.items("ports").enumerate() { ... }   // port.path() is spec.ports[0]
//!    for (key, value) in spec.entries("data") { ... }               // value.path() is spec.data[key]
//!    errs.immutable(&new.get("type"), &old.get("type"));
//!    ```
//!    Where upstream names another place than the value's own, move the path: `at_child`, `at_key`, `at_index`, `at`.
//! 6. Metadata is checked before you, in upstream's order; `check_create` and `check_update` are there to override where
//!    upstream differs. Conversions happen at decode: values have their types, quantities and times are canonical.
//! 7. `columns` is a const list of [`Column`](crate::Column)s that starts with `Column::NAME`; descriptions that are a
//!    field's own text are named (`about_field`), not repeated.
//! 8. `selectable` lists the fields a field selector may name, besides those of metadata.
//! 9. Tests beside the code run bodies through [`testing::create`] and [`testing::update`]: decode, default, prepare,
//!    check, as the server does.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use crate::behaviour::{Behaviour, Plain};
use crate::facts::{self, ResourceFacts};
use crate::kind::{Kind, Subresource, Types};
use crate::types::Text;

pub mod admissionregistration;
pub(crate) mod apiextensions;
mod apiregistration;
mod apps;
mod authentication;
mod authorization;
pub mod autoscaling;
mod batch;
mod cells;
pub mod certificates;
mod conditions;
mod coordination;
pub mod core;
mod discovery;
mod domain_path;
mod events;
mod flowcontrol;
mod go_value;
mod int_or_percent;
mod internal_pod;
mod label_selector;
mod networking;
mod node;
mod policy;
mod rbac;
mod resource;
mod scheduling;
mod storage;
#[cfg(test)]
mod testing;
mod webhook_client;

pub use self::core::{event, service};

/// Every built-in kind, in the order of discovery.
pub fn kinds() -> &'static [Arc<Kind>] {
    &BUILTIN.kinds
}

/// The built-in kind with this plural name.
pub fn by_plural(group: &str, version: &str, plural: &str) -> Option<&'static Arc<Kind>> {
    let at = BUILTIN.by_plural.get(&(group.into(), version.into(), plural.into()))?;
    Some(&BUILTIN.kinds[*at])
}

/// The built-in kind with this name.
pub fn by_kind(group: &str, version: &str, kind: &str) -> Option<&'static Arc<Kind>> {
    BUILTIN.kinds.iter().find(|k| k.kind == kind && k.group == group && k.version == version)
}

struct Builtin {
    kinds: Vec<Arc<Kind>>,
    by_plural: HashMap<(Text, Text, Text), usize>,
}

static BUILTIN: LazyLock<Builtin> = LazyLock::new(|| {
    let (parts, wholes): (Vec<_>, Vec<_>) = facts::resources().iter().partition(|r| r.resource.contains('/'));
    let kinds: Vec<_> = wholes.into_iter().map(|whole| Arc::new(kind(whole, &parts))).collect();
    let key = |k: &Arc<Kind>| (k.group.clone(), k.version.clone(), k.plural.clone());
    let by_plural = kinds.iter().enumerate().map(|(at, k)| (key(k), at)).collect();
    Builtin { kinds, by_plural }
});

fn kind(whole: &'static ResourceFacts, parts: &[&'static ResourceFacts]) -> Kind {
    let own = |part: &&&'static ResourceFacts| (part.group, part.version) == (whole.group, whole.version);
    let subresources = parts.iter().filter(own).filter_map(|part| {
        let name = part.resource.strip_prefix(whole.resource)?.strip_prefix('/')?;
        Some(subresource(part, name))
    });
    Kind {
        group: whole.group.into(),
        version: whole.version.into(),
        kind: whole.kind.into(),
        list_kind: format!("{}List", whole.kind).into(),
        plural: whole.resource.into(),
        singular: whole.singular.into(),
        short_names: texts(whole.short_names),
        categories: texts(whole.categories),
        namespaced: whole.namespaced,
        verbs: texts(whole.verbs),
        subresources: subresources.collect(),
        types: Types::Builtin,
        root: whole.root,
        behaviour: behaviour(whole.group, whole.version, whole.resource).unwrap_or_else(|| Arc::new(Plain)),
    }
}

fn subresource(part: &'static ResourceFacts, name: &'static str) -> Subresource {
    let (group, version) = part.kind_version.split_once('/').unwrap_or(("", part.kind_version));
    Subresource {
        name: name.into(),
        group: group.into(),
        version: version.into(),
        kind: part.kind.into(),
        verbs: texts(part.verbs),
        root: part.root,
    }
}

fn texts(words: &'static [&'static str]) -> Vec<Text> {
    words.iter().map(|word| Text::Borrowed(word)).collect()
}

fn behaviour(group: &str, version: &str, plural: &str) -> Option<Arc<dyn Behaviour>> {
    match group {
        "" => self::core::behaviour(version, plural),
        "admissionregistration.k8s.io" => admissionregistration::behaviour(version, plural),
        "apiextensions.k8s.io" => apiextensions::behaviour(version, plural),
        "apiregistration.k8s.io" => apiregistration::behaviour(version, plural),
        "apps" => apps::behaviour(version, plural),
        "authentication.k8s.io" => authentication::behaviour(version, plural),
        "authorization.k8s.io" => authorization::behaviour(version, plural),
        "autoscaling" => autoscaling::behaviour(version, plural),
        "batch" => batch::behaviour(version, plural),
        "certificates.k8s.io" => certificates::behaviour(version, plural),
        "coordination.k8s.io" => coordination::behaviour(version, plural),
        "discovery.k8s.io" => discovery::behaviour(version, plural),
        "events.k8s.io" => events::behaviour(version, plural),
        "flowcontrol.apiserver.k8s.io" => flowcontrol::behaviour(version, plural),
        "networking.k8s.io" => networking::behaviour(version, plural),
        "node.k8s.io" => node::behaviour(version, plural),
        "policy" => policy::behaviour(version, plural),
        "rbac.authorization.k8s.io" => rbac::behaviour(version, plural),
        "resource.k8s.io" => resource::behaviour(version, plural),
        "scheduling.k8s.io" => scheduling::behaviour(version, plural),
        "storage.k8s.io" => storage::behaviour(version, plural),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_resource_of_discovery_is_registered() {
        let rows = facts::resources().len();
        let registered: usize = kinds().iter().map(|k| 1 + k.subresources.len()).sum();
        assert_eq!(registered, rows);
        let eviction = by_plural("", "v1", "pods").unwrap().subresource("eviction").unwrap();
        assert_eq!((&*eviction.group, &*eviction.version, &*eviction.kind), ("policy", "v1", "Eviction"));
    }

    #[test]
    fn the_usual_columns_have_their_published_descriptions() {
        use crate::columns::{Column, DEFAULT};
        for column in DEFAULT.iter().chain([&Column::AGE]) {
            assert!(!column.description().is_empty(), "{}", column.name);
        }
    }
}
