//! Where in a type a strategic merge is, and what the type says about what is below.

use setpoint_api::quote::quote;

use super::PatchError;
use crate::types::{Field, Shape, TypeRef};

/// A type on the way, and whether Go has a pointer to it here: errors name the difference.
#[derive(Debug, Clone, Copy)]
pub(super) struct Level<'t> {
    ty: TypeRef<'t>,
    pointer: bool,
}

/// What a field says about merging it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rule<'t> {
    /// A list is merged, not replaced.
    pub merge: bool,
    /// An object is replaced, not merged.
    pub replace: bool,
    /// The field that tells the items of a list apart; empty for none.
    pub key: &'t str,
}

impl<'t> Level<'t> {
    /// The object itself.
    pub fn root(ty: TypeRef<'t>) -> Self {
        Self { ty, pointer: false }
    }

    /// The object in a field.
    pub fn field(self, name: &str) -> Result<(Self, Rule<'t>), PatchError> {
        let kind = go_kind(self.ty.shape());
        if kind != "struct" {
            let message = format!("merging an object in json but data type is not struct, instead is: {kind}");
            return Err(PatchError::Unforeseen(message));
        }
        let field = self.find(name).ok_or_else(|| {
            let owner = self.ty.get().go.rsplit('.').next().unwrap_or_default();
            let name = quote(name);
            PatchError::Unforeseen(format!("unable to find api field in struct {owner} for the json field {name}"))
        })?;
        let patch = &field.published.patch;
        let rule = Rule { merge: patch.merge, replace: patch.replace, key: patch.key };
        Ok((Self { ty: self.ty.to(field.ty), pointer: field.pointer }, rule))
    }

    /// The items of the list in a field.
    pub fn list(self, name: &str) -> Result<(Self, Rule<'t>), PatchError> {
        let (list, rule) = self.field(name)?;
        let item = match list.ty.shape() {
            Shape::List(shape) => Self { ty: list.ty.to(shape.item), pointer: shape.item_pointer },
            _ if list.pointer => Self { ty: list.ty, pointer: false },
            _ => {
                let message = format!("expected slice or array type, but got: {}", self.kind());
                return Err(PatchError::Unforeseen(message));
            }
        };
        match item.kind() {
            "slice" if !list.pointer => Err(PatchError::Unforeseen("unexpected slice of slice".to_owned())),
            _ => Ok((item, rule)),
        }
    }

    /// How Go names the kind of this type.
    pub fn kind(self) -> &'static str {
        if self.pointer { "ptr" } else { go_kind(self.ty.shape()) }
    }

    /// A field by its name, else by its name in other letter case.
    fn find(self, name: &str) -> Option<&'t Field> {
        self.ty.field(name).or_else(|| self.ty.fields().iter().find(|field| field.name.eq_ignore_ascii_case(name)))
    }
}

fn go_kind(shape: &Shape) -> &'static str {
    match shape {
        Shape::Map(_) => "map",
        Shape::List(_) | Shape::Bytes => "slice",
        Shape::String => "string",
        Shape::Bool => "bool",
        Shape::Int32 => "int32",
        Shape::Int64 => "int64",
        Shape::Float => "float64",
        Shape::Struct(_)
        | Shape::Quantity
        | Shape::Time
        | Shape::MicroTime
        | Shape::IntOrString
        | Shape::Raw
        | Shape::Json
        | Shape::FieldsV1
        | Shape::SchemaOrBool(_)
        | Shape::SchemaOrList(_)
        | Shape::SchemaOrStrings(_) => "struct",
    }
}
