//! What a type means for ownership: which values are one field, and which have fields of their own.

use std::borrow::Cow;

use serde_json::Value;
use setpoint_api::quote::quote;

use super::element::Element;
use crate::types::{ListType, Shape, Text, TypeRef};

/// What is known about a value.
#[derive(Debug, Clone, Copy)]
pub enum Form<'a> {
    /// It has a type. `open`: an object around it takes fields that nobody declared, and so does this one.
    Typed { ty: TypeRef<'a>, open: bool },
    /// Nothing is known: objects have fields of their own, lists are one field.
    Deduced,
    /// Nothing is known, and all of it is one field.
    Untyped,
}

/// How one value is treated: as one of the three that its [`Form`] allows.
#[derive(Debug, Clone, Copy)]
pub enum Atom<'a> {
    /// A scalar.
    Scalar(Scalar),
    /// A list.
    List(ListAtom<'a>),
    /// An object.
    Map(MapAtom<'a>),
}

/// Which scalars are allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scalar {
    /// Numbers.
    Number,
    /// Strings.
    String,
    /// True and false.
    Bool,
    /// Any.
    Any,
}

/// A list.
#[derive(Debug, Clone, Copy)]
pub struct ListAtom<'a> {
    /// What is known about its items.
    pub item: Form<'a>,
    /// How items are told apart.
    pub identity: Identity<'a>,
}

/// How the items of a list are told apart.
#[derive(Debug, Clone, Copy)]
pub enum Identity<'a> {
    /// They aren't: the list is one field.
    Atomic,
    /// By their value.
    Set,
    /// By these fields.
    Keys(&'a [Text]),
}

/// An object.
#[derive(Debug, Clone, Copy)]
pub struct MapAtom<'a> {
    /// Where its declared fields are.
    fields: Option<TypeRef<'a>>,
    /// What is known about all other fields; None if there may be none.
    element: Option<Form<'a>>,
    /// One field as a whole.
    pub atomic: bool,
    /// Whether declared fields that are objects take undeclared fields.
    open: bool,
}

impl<'a> Form<'a> {
    /// The form of the values of a type.
    pub fn of(ty: TypeRef<'a>) -> Self {
        Self::nested(ty, false)
    }

    /// How this value is treated. An absent or null one is treated as what comes first of object, scalar and list.
    pub fn atom(self, value: Option<&Value>) -> Atom<'a> {
        let fitting = match value {
            None | Some(Value::Null) => None,
            Some(Value::Array(_)) => self.list().map(Atom::List),
            Some(Value::Object(_)) => self.map().map(Atom::Map),
            Some(Value::Bool(_) | Value::Number(_) | Value::String(_)) => self.scalar().map(Atom::Scalar),
        };
        fitting
            .or_else(|| self.map().map(Atom::Map))
            .or_else(|| self.scalar().map(Atom::Scalar))
            .or_else(|| self.list().map(Atom::List))
            .unwrap_or(Atom::Scalar(Scalar::Any))
    }

    /// Whether two values are treated as the same of the three.
    pub fn is_same_atom(self, a: &Value, b: &Value) -> bool {
        matches!(self, Self::Typed { .. }) || class(a) == class(b)
    }

    /// Whether values may be anything.
    pub fn is_anything(self) -> bool {
        matches!(self, Self::Deduced | Self::Untyped)
    }

    /// Which scalars are allowed, if any.
    pub fn scalar(self) -> Option<Scalar> {
        match self {
            Self::Deduced | Self::Untyped => Some(Scalar::Any),
            Self::Typed { ty, .. } => match ty.shape() {
                Shape::String | Shape::Bytes => Some(Scalar::String),
                Shape::Bool => Some(Scalar::Bool),
                Shape::Int32 | Shape::Int64 | Shape::Float => Some(Scalar::Number),
                Shape::Quantity | Shape::Time | Shape::MicroTime | Shape::IntOrString => Some(Scalar::Any),
                _ => None,
            },
        }
    }

    /// How lists are treated, if they are allowed.
    pub fn list(self) -> Option<ListAtom<'a>> {
        let Self::Typed { ty, open } = self else {
            return Some(ListAtom { item: Self::Untyped, identity: Identity::Atomic });
        };
        let Shape::List(list) = ty.shape() else { return None };
        let identity = match &list.list_type {
            ListType::Atomic => Identity::Atomic,
            ListType::Set => Identity::Set,
            ListType::Map(keys) => Identity::Keys(keys),
        };
        Some(ListAtom { item: Self::nested(ty.to(list.item), open), identity })
    }

    /// How objects are treated, if they are allowed.
    pub fn map(self) -> Option<MapAtom<'a>> {
        let free = |element, atomic| MapAtom { fields: None, element: Some(element), atomic, open: false };
        let (ty, open) = match self {
            Self::Deduced => return Some(free(Self::Deduced, false)),
            Self::Untyped => return Some(free(Self::Untyped, true)),
            Self::Typed { ty, open } => (ty, open),
        };
        match ty.shape() {
            Shape::Struct(object) => {
                let open = open || object.open;
                // A type that declares nothing takes everything.
                let element = (open || object.fields.is_empty()).then_some(Self::Deduced);
                Some(MapAtom { fields: Some(ty), element, atomic: object.atomic, open })
            }
            Shape::Map(map) => Some(free(Self::nested(ty.to(map.value), open), map.atomic)),
            Shape::FieldsV1 => Some(free(Self::Deduced, false)),
            _ => None,
        }
    }

    /// A type within another. Only types without a name of their own belong to what is around them.
    fn nested(ty: TypeRef<'a>, open: bool) -> Self {
        match ty.shape() {
            Shape::Raw => Self::Untyped,
            Shape::Json | Shape::SchemaOrBool(_) | Shape::SchemaOrList(_) | Shape::SchemaOrStrings(_) => Self::Deduced,
            _ => Self::Typed { ty, open: open && ty.get().name.is_empty() },
        }
    }
}

impl<'a> MapAtom<'a> {
    /// The declared field of this name.
    pub fn field(&self, name: &str) -> Option<Form<'a>> {
        let ty = self.fields?;
        ty.field(name).map(|field| Form::nested(ty.to(field.ty), self.open))
    }

    /// What is known about the field of this name; None if there may be none.
    pub fn child(&self, name: &str) -> Option<Form<'a>> {
        self.field(name).or(self.element)
    }

    /// Whether it declares nothing and takes everything.
    pub fn is_deduced(&self) -> bool {
        let declares = self.fields.is_some_and(|ty| !ty.fields().is_empty());
        !declares && matches!(self.element, Some(Form::Deduced))
    }
}

impl ListAtom<'_> {
    /// Whether the list is one field.
    pub fn is_atomic(&self) -> bool {
        matches!(self.identity, Identity::Atomic)
    }

    /// What tells this item apart from the others.
    pub fn element(&self, item: &Value) -> Result<Element, String> {
        match self.identity {
            Identity::Atomic => Err("invalid indexing of non-associative list".to_owned()),
            Identity::Set => set_element(item),
            Identity::Keys(keys) => self.keyed_element(keys, item),
        }
    }

    fn keyed_element(&self, keys: &[Text], item: &Value) -> Result<Element, String> {
        let fields = match item {
            Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
            Value::Object(fields) => fields,
            _ => return Err("associative list with keys may not have non-map elements".to_owned()),
        };
        let value = |key: &Text| fields.get(&**key).cloned().or_else(|| self.key_default(key));
        let found: Vec<_> = keys.iter().filter_map(|key| Some((key.to_string(), value(key)?))).collect();
        if found.is_empty() {
            let names: Vec<_> = keys.iter().map(|key| quote(key)).collect();
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{}] (and doesn't have default \
                 values for any key fields)",
                names.join(" ")
            ));
        }
        Ok(Element::key(found))
    }

    fn key_default(&self, key: &str) -> Option<Value> {
        let Form::Typed { ty, .. } = self.item else { return None };
        ty.published_default(ty.field(key)?).filter(|default| !default.is_null()).map(Cow::into_owned)
    }
}

fn set_element(item: &Value) -> Result<Element, String> {
    match item {
        Value::Object(_) => Err("associative list without keys has an element that's a map type".to_owned()),
        Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
        Value::Null => Err("associative list without keys has an element that's an explicit null".to_owned()),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(Element::Value(item.clone())),
    }
}

fn class(value: &Value) -> u8 {
    match value {
        Value::Null => 0,
        Value::Bool(_) | Value::Number(_) | Value::String(_) => 1,
        Value::Array(_) => 2,
        Value::Object(_) => 3,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::facts::type_named;

    fn list(owner: &str, field: &str) -> ListAtom<'static> {
        let owner = Form::of(type_named(owner).unwrap()).map().unwrap();
        owner.field(field).unwrap().list().unwrap()
    }

    #[test]
    fn keys_that_are_left_out_have_their_defaults() {
        let ports = list("io.k8s.api.core.v1.ServiceSpec", "ports");
        assert_eq!(ports.element(&json!({"port": 1})).unwrap().to_string(), r#"[port=1,protocol="TCP"]"#);
        assert_eq!(ports.element(&json!({})).unwrap().to_string(), r#"[port=0,protocol="TCP"]"#);
        let containers = list("io.k8s.api.core.v1.PodSpec", "containers");
        assert_eq!(containers.element(&json!({"image": "i"})).unwrap().to_string(), r#"[name=""]"#);
        let pull_secrets = list("io.k8s.api.core.v1.PodSpec", "imagePullSecrets");
        assert_eq!(pull_secrets.element(&json!({})).unwrap().to_string(), r#"[name=""]"#);
    }

    #[test]
    fn a_reference_may_have_fields_of_its_own_in_one_place_only() {
        let spec = Form::of(type_named("io.k8s.api.core.v1.PersistentVolumeSpec").unwrap()).map().unwrap();
        assert!(!spec.field("claimRef").unwrap().map().unwrap().atomic);
        let event = Form::of(type_named("io.k8s.api.core.v1.Event").unwrap()).map().unwrap();
        assert!(event.field("involvedObject").unwrap().map().unwrap().atomic);
    }

    #[test]
    fn items_that_cannot_be_told_apart_are_named() {
        let secrets = list("io.k8s.api.core.v1.ServiceAccount", "secrets");
        for (item, expected) in [
            (json!(null), "associative list with keys may not have a null element"),
            (json!("x"), "associative list with keys may not have non-map elements"),
            (
                json!({"kind": "i"}),
                "associative list with keys has an element that omits all key fields [\"name\"] (and doesn't have \
                 default values for any key fields)",
            ),
        ] {
            assert_eq!(secrets.element(&item).unwrap_err(), expected);
        }
        let finalizers = list("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", "finalizers");
        for (item, expected) in [
            (json!({}), "associative list without keys has an element that's a map type"),
            (json!([]), "not supported: associative list with lists as elements"),
            (json!(null), "associative list without keys has an element that's an explicit null"),
        ] {
            assert_eq!(finalizers.element(&item).unwrap_err(), expected);
        }
    }
}
