//! What an expression sees.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::declared::Declared;
use super::types::{ObjectType, Type};

/// The variables that an expression sees.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    variables: BTreeMap<String, Type>,
    /// The schema whose sizes are known, for the estimate of cost. Every variable is taken to have it, as upstream does.
    pub(super) declared: Option<Arc<Declared>>,
    /// Types that may be built by name, such as `JSONPatch{...}`; `Object` stands for `Object.spec` and so on, too.
    structs: Vec<&'static str>,
}

impl Environment {
    /// Adds a variable; a dot in its name is allowed.
    pub fn declare(&mut self, name: &str, ty: Type) {
        self.variables.insert(name.to_owned(), ty);
    }

    /// Adds a variable whose values keep this schema; its sizes bound what an expression may cost.
    pub fn declare_schema(&mut self, name: &str, declared: &Arc<Declared>) {
        self.declare(name, declared.ty().clone());
        self.declared = Some(Arc::clone(declared));
    }

    /// Removes a variable.
    pub fn forget(&mut self, name: &str) {
        self.variables.remove(name);
    }

    /// Adds a field to a variable that is an object.
    pub fn add_field(&mut self, variable: &str, field: &str, ty: Type) {
        if let Some(Type::Object(object)) = self.variables.get_mut(variable) {
            let mut fields = object.fields.clone();
            fields.insert(field.to_owned(), ty);
            *object = Arc::new(ObjectType { name: object.name.clone(), fields });
        }
    }

    /// Lets values of this type be built by name.
    pub fn allow_struct(&mut self, name: &'static str) {
        self.structs.push(name);
    }

    pub(super) fn variable(&self, name: &str) -> Option<&Type> {
        self.variables.get(name)
    }

    pub(super) fn built_type(&self, name: &str) -> Option<Type> {
        let within = |known: &str| name.strip_prefix(known).is_some_and(|rest| rest.starts_with('.'));
        self.structs.iter().find(|known| **known == name || within(known)).map(|known| match *known == name {
            true => Type::Named(known),
            false => Type::object(name, []),
        })
    }

    /// Whether a function may be called: those for patches only where patches can be built.
    pub(super) fn allows(&self, function: &str) -> bool {
        !function.starts_with("jsonpatch.") || self.structs.contains(&"JSONPatch")
    }
}
