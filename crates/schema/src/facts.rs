//! The built-in kinds as static tables, made by the build script.

use std::borrow::Cow;

use crate::types::{
    Field, List, ListType, Map, Patch, Published, Schema, Shape, Struct, Text, Type, TypeId, TypeRef, head,
};

/// The types of all built-in kinds.
pub static BUILTIN: Schema = Schema::from_static(TYPES);

/// One row of discovery: a resource or a subresource.
#[derive(Debug)]
pub struct ResourceFacts {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// API version.
    pub version: &'static str,
    /// Plural name, with `/subresource` for a subresource.
    pub resource: &'static str,
    /// Singular name; empty for a subresource.
    pub singular: &'static str,
    /// Kind of the body.
    pub kind: &'static str,
    /// Group and version of the body's kind: another one for `pods/eviction` and the like.
    pub kind_version: &'static str,
    /// Whether its objects live in a namespace.
    pub namespaced: bool,
    /// Short names for the command line.
    pub short_names: &'static [&'static str],
    /// Categories it belongs to, such as `all`.
    pub categories: &'static [&'static str],
    /// What may be done with it.
    pub verbs: &'static [&'static str],
    /// Type of the body.
    pub root: TypeId,
    /// Type of the list, where there is one.
    pub list: Option<TypeId>,
}

/// The built-in type with this OpenAPI name.
pub fn type_named(name: &str) -> Option<TypeRef<'static>> {
    find(NAMES, name)
}

/// The built-in type of a kind: `kind_type("apps/v1", "Deployment")`.
pub fn kind_type(group_version: &str, kind: &str) -> Option<TypeRef<'static>> {
    find(KINDS, &format!("{group_version}/{kind}"))
}

/// Whether Kubernetes knows this kind in a version that is not served: an older one, or one that is not ready.
pub fn is_unserved_kind(group_version: &str, kind: &str) -> bool {
    const TABLE: &str = include_str!("../facts/unserved-kinds.tsv");
    TABLE.lines().skip(1).filter_map(|line| line.split_once('\t')).any(|row| row == (group_version, kind))
}

/// Every row of discovery.
pub fn resources() -> &'static [ResourceFacts] {
    RESOURCES
}

fn find(table: &'static [(&'static str, u32)], name: &str) -> Option<TypeRef<'static>> {
    let at = table.binary_search_by(|(key, _)| (*key).cmp(name)).ok()?;
    Some(BUILTIN.get(TypeId(table[at].1)))
}

const fn s(text: &'static str) -> Text {
    Cow::Borrowed(text)
}

const fn t(name: &'static str, go: &'static str, description: &'static str, shape: Shape) -> Type {
    Type { name, go, description, default: None, shape }
}

const fn object(fields: &'static [Field], atomic: bool) -> Shape {
    Shape::Struct(Struct { fields: Cow::Borrowed(fields), atomic, open: false })
}

const fn map(value: u32, atomic: bool) -> Shape {
    Shape::Map(Map { value: TypeId(value), atomic })
}

const fn list(item: u32, item_pointer: bool, list_type: ListType) -> Shape {
    Shape::List(List { item: TypeId(item), item_pointer, list_type })
}

const NO_PATCH: Patch = patch(false, false, false, "");

const fn patch(merge: bool, retain_keys: bool, replace: bool, key: &'static str) -> Patch {
    Patch { merge, retain_keys, replace, key }
}

const fn p(
    place: u16,
    embedded: &'static str,
    description: &'static str,
    default: Option<&'static str>,
    patch: Patch,
) -> Published {
    Published { place, embedded, description, default, patch }
}

const fn f(
    name: &'static str,
    ty: u32,
    pointer: bool,
    omit_empty: bool,
    omit_zero: bool,
    required: bool,
    published: &'static Published,
) -> Field {
    Field { name: s(name), head: head(name), ty: TypeId(ty), pointer, omit_empty, omit_zero, required, published }
}

include!(concat!(env!("OUT_DIR"), "/facts.rs"));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_know_how_they_merge() {
        let spec = type_named("io.k8s.api.core.v1.PodSpec").unwrap();
        let containers = spec.field("containers").unwrap();
        assert!(containers.required && containers.published.patch.merge && containers.published.patch.key == "name");
        let volumes = spec.field("volumes").unwrap();
        assert!(volumes.published.patch.merge && volumes.published.patch.retain_keys);
        let Shape::List(list) = spec.to(containers.ty).shape() else { panic!("a list") };
        assert_eq!(list.list_type, ListType::Map(vec![s("name")].into()));
        let ports = type_named("io.k8s.api.core.v1.Container").unwrap().child("ports").unwrap();
        let Shape::List(list) = ports.shape() else { panic!("a list") };
        assert_eq!(list.list_type, ListType::Map(vec![s("containerPort"), s("protocol")].into()));
        let protocol = ports.item().unwrap().field("protocol").unwrap();
        assert_eq!(protocol.published.default, Some("\"TCP\""));
    }

    #[test]
    fn structs_that_apply_replaces_as_a_whole_are_marked() {
        let selector = type_named("io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector").unwrap();
        assert!(matches!(selector.shape(), Shape::Struct(s) if s.atomic));
        let service = type_named("io.k8s.api.core.v1.ServiceSpec").unwrap().child("selector").unwrap();
        assert!(matches!(service.shape(), Shape::Map(m) if m.atomic));
    }

    #[test]
    fn every_type_of_every_kind_is_sound() {
        for ty in BUILTIN.types() {
            let fields = ty.fields();
            assert!(fields.is_sorted_by(|a, b| a.name < b.name), "{}", ty.get().name);
            assert!(fields.iter().all(|f| ty.field(&f.name).is_some_and(|found| found.ty == f.ty)));
        }
        let described = resources().iter().filter(|r| !BUILTIN.get(r.root).get().description.is_empty()).count();
        assert!(described > 100, "{described} of {}", resources().len());
    }
}
