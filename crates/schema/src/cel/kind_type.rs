//! The type of a kind's objects, as expressions about them are checked.

use super::escape::escape;
use super::types::Type;
use crate::types::{Shape, TypeId, TypeRef};

impl Type {
    /// The type of the values that a schema describes. What contains itself is known only down to where it begins again.
    pub fn of_schema(name: &str, ty: TypeRef<'_>) -> Type {
        of(name, ty, &mut Vec::new()).unwrap_or(Type::Dyn)
    }
}

/// None for values that expressions can't see.
fn of(name: &str, ty: TypeRef<'_>, within: &mut Vec<TypeId>) -> Option<Type> {
    Some(match ty.shape() {
        Shape::String => Type::String,
        Shape::Bool => Type::Bool,
        Shape::Int32 | Shape::Int64 => Type::Int,
        Shape::Float => Type::Double,
        Shape::Bytes => Type::Bytes,
        Shape::Time | Shape::MicroTime => Type::Timestamp,
        Shape::Quantity | Shape::IntOrString | Shape::Raw | Shape::Json | Shape::FieldsV1 => Type::Dyn,
        Shape::SchemaOrBool(_) | Shape::SchemaOrList(_) | Shape::SchemaOrStrings(_) => Type::Dyn,
        Shape::List(list) => Type::list(of(&format!("{name}.@idx"), ty.to(list.item), within)?),
        Shape::Map(map) => Type::map(Type::String, of(&format!("{name}.@elem"), ty.to(map.value), within)?),
        Shape::Struct(_) => {
            if within.contains(&ty.id()) {
                return Some(Type::Dyn);
            }
            within.push(ty.id());
            let fields: Vec<(String, Type)> = ty
                .fields()
                .iter()
                .filter_map(|field| {
                    let escaped = escape(&field.name)?.into_owned();
                    let inner = of(&format!("{name}.{escaped}"), ty.to(field.ty), within)?;
                    Some((escaped, inner))
                })
                .collect();
            within.pop();
            Type::object(name, fields)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Environment, compile};
    use super::*;
    use crate::builtin;

    #[test]
    fn expressions_are_checked_against_a_built_in_kind() {
        let deployment = builtin::by_plural("apps", "v1", "deployments").expect("built in");
        let mut environment = Environment::default();
        environment.declare("object", Type::of_schema("Deployment", deployment.root_type()));
        for (expression, complaint) in [
            ("object.spec.replicas > 1 && object.metadata.name == 'x'", None),
            ("object.spec.template.spec.containers.all(c, c.image != '')", None),
            ("object.metadata.creationTimestamp < timestamp('2026-01-01T00:00:00Z')", None),
            ("object.spec.replicas > '1'", Some("found no matching overload for '_>_' applied to '(int, string)'")),
            ("object.spec.replica > 1", Some("undefined field 'replica'")),
        ] {
            let found = compile(expression, &environment).err();
            assert_eq!(found.is_some(), complaint.is_some(), "{expression}: {found:?}");
            assert!(found.unwrap_or_default().contains(complaint.unwrap_or_default()), "{expression}");
        }
    }
}
