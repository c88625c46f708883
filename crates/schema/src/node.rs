//! A cursor for reading an object in validation: a value that may be absent, its type and its path.
//!
//! ```text
//! let spec = object.get("spec");
//! for container in spec.items("containers") {
//!     if container.str("name").is_empty() {
//!         errs.required(&container.get("name"), "");
//!     }
//! }
//! ```
//!
//! Asking for a field that the type doesn't have panics in debug builds: a typo in a rule is found by its first test.

use std::rc::Rc;

use serde_json::Value;
use setpoint_api::Quantity;

use crate::equality;
use crate::types::{Shape, TypeRef};

/// A place in an object: the value there, if any, its type and how it is called.
#[derive(Debug, Clone)]
pub struct Node<'a> {
    value: Option<&'a Value>,
    ty: Typed<'a>,
    place: Option<Rc<Place<'a>>>,
}

/// What is known of a value's type. Most fields that rules look at are absent or plain, and nobody asks for their types.
#[derive(Debug, Clone, Copy)]
enum Typed<'a> {
    /// Inside data of which nothing is known (`RawExtension` and the like).
    Unknown,
    Known(TypeRef<'a>),
    /// That of a field or entry of this type.
    Inside(TypeRef<'a>, &'a str),
}

impl<'a> From<Option<TypeRef<'a>>> for Typed<'a> {
    fn from(ty: Option<TypeRef<'a>>) -> Self {
        ty.map_or(Self::Unknown, Self::Known)
    }
}

/// One step of a path and the steps before it. Text is made only when there is an error.
#[derive(Debug)]
struct Place<'a> {
    up: Option<Rc<Place<'a>>>,
    step: Step<'a>,
}

#[derive(Debug)]
enum Step<'a> {
    Field(&'a str),
    Index(usize),
    Key(&'a str),
    /// Text that replaces everything before it.
    Whole(String),
}

impl<'a> Node<'a> {
    /// The object itself; its path is empty.
    pub fn root(value: &'a Value, ty: TypeRef<'a>) -> Self {
        Self { value: Some(value), ty: Typed::Known(ty), place: None }
    }

    /// A value of which nothing is known; its path is empty.
    pub fn untyped(value: &'a Value) -> Self {
        Self { value: Some(value), ty: Typed::Unknown, place: None }
    }

    /// The field called `name`, or the entry of a map shown as a field (`metadata.labels.x`).
    #[track_caller]
    pub fn get(&self, name: &'static str) -> Node<'a> {
        self.check_field(name);
        self.step(Step::Field(name), self.raw(name), self.inside(name))
    }

    /// The entry of a map with this key; its path ends in `[key]`.
    pub fn entry(&self, key: &'a str) -> Node<'a> {
        let value = self.value.and_then(|v| v.get(key)).filter(|v| !v.is_null());
        self.step(Step::Key(key), value, self.inside(key))
    }

    /// The value; None if absent or null.
    pub fn value(&self) -> Option<&'a Value> {
        self.value.filter(|v| !v.is_null())
    }

    /// The value, null if absent.
    pub fn json(&self) -> &'a Value {
        self.value.unwrap_or(&Value::Null)
    }

    /// Type of the value; None inside opaque data.
    pub fn ty(&self) -> Option<TypeRef<'a>> {
        match self.ty {
            Typed::Unknown => None,
            Typed::Known(ty) => Some(ty),
            Typed::Inside(outer, name) => outer.child(name),
        }
    }

    /// Whether it is a field that Go has a pointer for: absent, it is nil and no zero value.
    pub fn is_pointer(&self) -> bool {
        matches!(self.ty, Typed::Inside(outer, name) if outer.field(name).is_some_and(|field| field.pointer))
    }

    /// Present and not null.
    pub fn is_set(&self) -> bool {
        self.value().is_some()
    }

    /// Absent, null, `""`, `[]`, `{}`, `0` or `false`: what Go calls the zero value, or an empty collection.
    pub fn is_empty(&self) -> bool {
        match self.json() {
            Value::Null => true,
            Value::Bool(flag) => !flag,
            Value::Number(number) => number.as_f64() == Some(0.0),
            Value::String(text) => text.is_empty(),
            Value::Array(items) => items.is_empty(),
            Value::Object(fields) => fields.is_empty(),
        }
    }

    /// Whether the field called `name` is present and not null.
    #[track_caller]
    pub fn has(&self, name: &'static str) -> bool {
        self.check_field(name);
        self.raw(name).is_some()
    }

    /// The text of this value; `""` if absent.
    pub fn as_str(&self) -> &'a str {
        self.json().as_str().unwrap_or("")
    }

    /// The number of this value.
    pub fn as_int(&self) -> Option<i64> {
        self.json().as_i64()
    }

    /// The flag of this value.
    pub fn as_bool(&self) -> Option<bool> {
        self.json().as_bool()
    }

    /// The text of a field; `""` if absent.
    #[track_caller]
    pub fn str(&self, name: &'static str) -> &'a str {
        self.check_field(name);
        self.raw(name).and_then(Value::as_str).unwrap_or("")
    }

    /// The whole number in a field.
    #[track_caller]
    pub fn int(&self, name: &'static str) -> Option<i64> {
        self.check_field(name);
        self.raw(name).and_then(Value::as_i64)
    }

    /// The flag in a field; false if absent.
    #[track_caller]
    pub fn bool(&self, name: &'static str) -> bool {
        self.maybe_bool(name).unwrap_or(false)
    }

    /// The flag in a field, where absent means something else than false.
    #[track_caller]
    pub fn maybe_bool(&self, name: &'static str) -> Option<bool> {
        self.check_field(name);
        self.raw(name).and_then(Value::as_bool)
    }

    /// The quantity in this value.
    pub fn as_quantity(&self) -> Option<Quantity> {
        match self.value()? {
            Value::String(text) => Quantity::parse(text).ok(),
            Value::Number(number) => Quantity::parse(&number.to_string()).ok(),
            _ => None,
        }
    }

    /// The quantity in a field.
    #[track_caller]
    pub fn quantity(&self, name: &'static str) -> Option<Quantity> {
        self.get(name).as_quantity()
    }

    /// The items of a list field; none if absent.
    #[track_caller]
    pub fn items(&self, name: &'static str) -> impl ExactSizeIterator<Item = Node<'a>> + use<'a> {
        self.get(name).into_items()
    }

    /// The items of this list.
    pub fn into_items(self) -> impl ExactSizeIterator<Item = Node<'a>> + use<'a> {
        let ty = self.ty().and_then(|t| t.item()).into();
        let place = self.place;
        let items = self.value.and_then(Value::as_array).map_or(&[] as &[Value], |list| list.as_slice());
        items.iter().enumerate().map(move |(index, value)| Node {
            value: Some(value).filter(|v| !v.is_null()),
            ty,
            place: Some(Rc::new(Place { up: place.clone(), step: Step::Index(index) })),
        })
    }

    /// The entries of a map field, each at `[key]`; none if absent. Sorted by key.
    #[track_caller]
    pub fn entries(&self, name: &'static str) -> impl Iterator<Item = (&'a str, Node<'a>)> + use<'a> {
        self.get(name).into_entries()
    }

    /// The entries of this map, each at `[key]`. Sorted by key.
    pub fn into_entries(self) -> impl Iterator<Item = (&'a str, Node<'a>)> + use<'a> {
        let ty = self.ty().and_then(|t| t.child("")).into();
        let place = self.place;
        self.value.and_then(Value::as_object).into_iter().flatten().map(move |(key, value)| {
            let place = Some(Rc::new(Place { up: place.clone(), step: Step::Key(key) }));
            (key.as_str(), Node { value: Some(value).filter(|v| !v.is_null()), ty, place })
        })
    }

    /// The texts in a list field.
    #[track_caller]
    pub fn strings(&self, name: &'static str) -> impl Iterator<Item = &'a str> + use<'a> {
        self.check_field(name);
        self.raw(name).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
    }

    /// How many items or entries a field has.
    #[track_caller]
    pub fn count(&self, name: &'static str) -> usize {
        self.check_field(name);
        match self.raw(name) {
            Some(Value::Array(items)) => items.len(),
            Some(Value::Object(fields)) => fields.len(),
            _ => 0,
        }
    }

    /// Equal in meaning: quantities by amount, an absent collection as an empty one.
    pub fn same(&self, other: &Node<'_>) -> bool {
        equality::semantic(self.json(), other.json(), self.ty())
    }

    /// The same value under a path that goes on with a field of another name.
    pub fn at_child(&self, name: &'a str) -> Node<'a> {
        self.step(Step::Field(name), self.value, self.ty)
    }

    /// The same value under a path that goes on with `[key]`.
    pub fn at_key(&self, key: &'a str) -> Node<'a> {
        self.step(Step::Key(key), self.value, self.ty)
    }

    /// The same value under a path that goes on with `[index]`.
    pub fn at_index(&self, index: usize) -> Node<'a> {
        self.step(Step::Index(index), self.value, self.ty)
    }

    /// The same value under another path altogether: for the places where upstream names a field that isn't one.
    pub fn at(&self, path: impl Into<String>) -> Node<'a> {
        Node {
            value: self.value,
            ty: self.ty,
            place: Some(Rc::new(Place { up: None, step: Step::Whole(path.into()) })),
        }
    }

    /// Another value of the same type under the same path.
    pub fn with_value(&self, value: &'a Value) -> Node<'a> {
        Node { value: Some(value), ty: self.ty, place: self.place.clone() }
    }

    /// The path as a user writes it: `spec.containers[0].name`.
    pub fn path(&self) -> String {
        let mut steps = Vec::new();
        let mut next = self.place.as_deref();
        while let Some(place) = next {
            steps.push(&place.step);
            next = place.up.as_deref();
        }
        let mut text = String::new();
        for step in steps.into_iter().rev() {
            match step {
                Step::Field(name) if text.is_empty() => text.push_str(name),
                Step::Field(name) => text.extend([".", name]),
                Step::Index(index) => text.extend(["[", &index.to_string(), "]"]),
                Step::Key(key) => text.extend(["[", key, "]"]),
                Step::Whole(path) => text.clone_from(path),
            }
        }
        text
    }

    fn step(&self, step: Step<'a>, value: Option<&'a Value>, ty: Typed<'a>) -> Node<'a> {
        Node { value, ty, place: Some(Rc::new(Place { up: self.place.clone(), step })) }
    }

    fn raw(&self, name: &str) -> Option<&'a Value> {
        self.value.and_then(|v| v.get(name)).filter(|v| !v.is_null())
    }

    fn inside(&self, name: &'a str) -> Typed<'a> {
        self.ty().map_or(Typed::Unknown, |ty| Typed::Inside(ty, name))
    }

    #[track_caller]
    fn check_field(&self, name: &str) {
        if cfg!(debug_assertions)
            && let Some(ty) = self.ty()
        {
            let known = ty.is_opaque() || matches!(ty.shape(), Shape::Map(_)) || ty.field(name).is_some();
            assert!(known, "{} has no field {name:?}", ty.get().name);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::facts::kind_type;

    #[test]
    fn a_node_knows_its_value_and_how_it_is_called() {
        let pod = json!({"metadata": {"labels": {"a b": "x"}}, "spec": {"containers": [{"name": "c", "env": null}]}});
        let pod = Node::root(&pod, kind_type("v1", "Pod").unwrap());
        let container = pod.get("spec").items("containers").next().unwrap();
        assert_eq!((container.str("name"), container.get("image").as_str()), ("c", ""));
        assert_eq!(container.get("image").path(), "spec.containers[0].image");
        assert!(!container.has("env"));
        let (key, label) = pod.get("metadata").entries("labels").next().unwrap();
        assert_eq!((key, label.as_str(), label.path().as_str()), ("a b", "x", "metadata.labels[a b]"));
        assert_eq!(container.at("status.Phase").at_index(1).path(), "status.Phase[1]");
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "has no field \"contianers\"")]
    fn a_typo_in_a_rule_is_found() {
        let pod = json!({"spec": {}});
        Node::root(&pod, kind_type("v1", "Pod").unwrap()).get("spec").get("contianers");
    }

    #[test]
    fn quantities_are_the_same_by_amount_and_collections_by_content() {
        let (a, b) =
            (json!({"spec": {"hard": {"cpu": "1Ki"}}}), json!({"spec": {"hard": {"cpu": "1024"}, "scopes": []}}));
        let ty = kind_type("v1", "ResourceQuota").unwrap();
        assert!(Node::root(&a, ty).get("spec").same(&Node::root(&b, ty).get("spec")));
    }
}
