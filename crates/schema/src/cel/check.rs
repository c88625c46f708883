//! The type of every part of an expression, and which overloads its calls may mean.

use super::environment::Environment;
use super::functions::{self, Function, Overload};
use super::tree::{Expr, Id, Literal, Loop, Tree};
use super::types::Type;
use super::unify::{Found, more_general};
use super::{Complaint, literals};

/// What is known of an expression whose types agree.
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) types: Vec<Type>,
    pub(super) references: Vec<Reference>,
}

/// What a part refers to.
#[derive(Debug, Clone, Default)]
pub(super) enum Reference {
    /// Nothing outside of the expression.
    #[default]
    None,
    /// A variable of the environment or of a loop.
    Variable(String),
    /// A type by its name.
    TypeName(String),
    /// A function, and the overloads that fit.
    Function(&'static Function, Vec<&'static Overload>),
}

/// All types and references of an expression, or all that is wrong with it.
pub(super) fn check(tree: &Tree, root: Id, environment: &Environment) -> Result<Checked, Vec<Complaint>> {
    let size = tree.nodes.len();
    let mut checker = Checker {
        tree,
        environment,
        locals: Vec::new(),
        found: Found::default(),
        types: vec![Type::Dyn; size],
        references: vec![Reference::None; size],
        complaints: Vec::new(),
    };
    checker.check(root);
    if !checker.complaints.is_empty() {
        return Err(checker.complaints);
    }
    let types: Vec<_> = checker.types.iter().map(|ty| checker.found.resolved(ty, true)).collect();
    // Literals are looked at only once all types are known.
    let complaints = literals::complaints(tree, &types);
    if !complaints.is_empty() {
        return Err(complaints);
    }
    Ok(Checked { types, references: checker.references })
}

struct Checker<'a> {
    tree: &'a Tree,
    environment: &'a Environment,
    /// Names that loops bring, innermost last.
    locals: Vec<(&'a str, Type)>,
    found: Found,
    types: Vec<Type>,
    references: Vec<Reference>,
    complaints: Vec<Complaint>,
}

impl<'a> Checker<'a> {
    fn check(&mut self, id: Id) {
        let ty = match &self.tree.nodes[id].expr {
            Expr::Literal(literal) => type_of_literal(literal),
            Expr::Ident(name) => self.ident(id, name),
            Expr::Select { operand, field, test } => self.select(id, *operand, field, *test),
            Expr::Call { function, target, args } => self.call(id, function, *target, args),
            Expr::List(items) => self.list(items),
            Expr::Map(entries) => self.map(entries),
            Expr::Struct { name, fields } => self.built(id, name, fields),
            Expr::Loop(parts) => self.looped(parts),
        };
        self.types[id] = ty;
    }

    fn complain(&mut self, id: Id, message: String) -> Type {
        self.complaints.push(Complaint { offset: self.tree.nodes[id].offset, message });
        Type::Error
    }

    fn undeclared(&mut self, id: Id, name: &str) -> Type {
        self.complain(id, format!("undeclared reference to '{name}' (in container '')"))
    }

    fn mismatch(&mut self, id: Id, expected: &Type, actual: &Type) -> Type {
        self.complain(id, format!("expected type '{}' but found '{}'", expected.shown(), actual.shown()))
    }

    /// What a name stands for.
    fn lookup(&self, name: &str) -> Option<(Type, Reference)> {
        let local = self.locals.iter().rev().find(|(local, _)| *local == name);
        if let Some(ty) = local.map(|(_, ty)| ty).or_else(|| self.environment.variable(name)) {
            return Some((ty.clone(), Reference::Variable(name.to_owned())));
        }
        let ty = named_type(name).or_else(|| self.environment.built_type(name))?;
        Some((Type::Type(std::sync::Arc::new(ty)), Reference::TypeName(name.to_owned())))
    }

    fn ident(&mut self, id: Id, name: &str) -> Type {
        match self.lookup(name) {
            Some((ty, reference)) => {
                self.references[id] = reference;
                ty
            }
            None => self.undeclared(id, name),
        }
    }

    fn select(&mut self, id: Id, operand: Id, field: &str, test: bool) -> Type {
        if !test && let Some((ty, reference)) = self.tree.qualified(id).and_then(|name| self.lookup(&name)) {
            self.references[id] = reference;
            return ty;
        }
        let ty = self.field(id, operand, field, false);
        if test { Type::Bool } else { self.found.resolved(&ty, false) }
    }

    fn field(&mut self, id: Id, operand: Id, field: &str, optional: bool) -> Type {
        self.check(operand);
        let operand = self.found.resolved(&self.types[operand], false);
        let (target, was_optional) = operand.unwrapped();
        let result = match target {
            Type::Map(pair) => pair.1.clone(),
            Type::Object(object) => match object.fields.get(field) {
                Some(ty) => ty.clone(),
                None => self.complain(id, format!("undefined field '{field}'")),
            },
            Type::Named(name) if !is_opaque(name) => {
                self.complain(id, format!("unexpected failed resolution of '{name}'"))
            }
            Type::Param(_) => {
                self.found.assignable([(&Type::Dyn, target)]);
                Type::Dyn
            }
            Type::Dyn | Type::Error => Type::Dyn,
            other => {
                self.complain(id, format!("type '{}' does not support field selection", other.shown()));
                Type::Dyn
            }
        };
        if was_optional || optional { Type::optional(result) } else { result }
    }

    fn call(&mut self, id: Id, name: &str, target: Option<Id>, args: &'a [Id]) -> Type {
        if let ("_?._", [operand, field]) = (name, args) {
            let Expr::Literal(Literal::String(field)) = &self.tree.nodes[*field].expr else { return Type::Error };
            let ty = self.field(id, *operand, field, true);
            if let Some(function) = functions::function(name) {
                self.references[id] = Reference::Function(function, vec![&function.overloads[0]]);
            }
            return self.found.resolved(&ty, false);
        }
        for arg in args {
            self.check(*arg);
        }
        let Some(target) = target else {
            return match self.function(name) {
                Some(function) => self.resolve(id, function, None, args),
                None => self.undeclared(id, name),
            };
        };
        // What looks like a target may be the first part of the function's name: `sets.contains(...)`.
        let full = self.tree.qualified(target).and_then(|first| self.function(&format!("{first}.{name}")));
        if let Some(function) = full {
            return self.resolve(id, function, None, args);
        }
        self.check(target);
        match self.function(name) {
            Some(function) => self.resolve(id, function, Some(target), args),
            None => self.undeclared(id, name),
        }
    }

    fn function(&self, name: &str) -> Option<&'static Function> {
        functions::function(name).filter(|function| self.environment.allows(function.name))
    }

    fn resolve(&mut self, id: Id, function: &'static Function, target: Option<Id>, args: &[Id]) -> Type {
        if matches!(function.name, "_&&_" | "_||_") {
            return self.logic(id, function, args);
        }
        let given: Vec<Type> = target.iter().chain(args).map(|arg| self.types[*arg].clone()).collect();
        let mut fitting: Vec<&'static Overload> = Vec::new();
        let mut result: Option<Type> = None;
        for overload in function.overloads.iter().filter(|overload| overload.member == target.is_some()) {
            if overload.args.len() != given.len() {
                continue;
            }
            let base = self.found.room(overload.params);
            let wanted: Vec<Type> = overload.args.iter().map(|ty| self.found.instance(ty, base)).collect();
            if !self.found.assignable(given.iter().zip(&wanted)) {
                continue;
            }
            fitting.push(overload);
            let gives = self.found.resolved(&self.found.instance(&overload.result, base), false);
            result = Some(match result {
                Some(before) if before != Type::Dyn && before != gives => Type::Dyn,
                Some(before) => before,
                None => gives,
            });
        }
        let Some(result) = result else {
            let shown: Vec<_> = given.iter().map(|ty| self.found.resolved(ty, true).shown().to_string()).collect();
            let applied = match target {
                Some(_) => format!("{}.({})", shown[0], shown[1..].join(", ")),
                None => format!("({})", shown.join(", ")),
            };
            let message = format!("found no matching overload for '{}' applied to '{applied}'", function.name);
            return self.complain(id, message);
        };
        self.references[id] = Reference::Function(function, fitting);
        result
    }

    fn logic(&mut self, id: Id, function: &'static Function, args: &[Id]) -> Type {
        let mut sound = true;
        for arg in args {
            let ty = self.types[*arg].clone();
            if !self.found.assignable([(&ty, &Type::Bool)]) {
                self.mismatch(*arg, &Type::Bool, &ty);
                sound = false;
            }
        }
        if !sound {
            return Type::Error;
        }
        self.references[id] = Reference::Function(function, vec![&function.overloads[0]]);
        Type::Bool
    }

    fn list(&mut self, items: &[(Id, bool)]) -> Type {
        let mut joined = None;
        for (item, optional) in items {
            self.check(*item);
            let ty = self.given(*item, *optional);
            joined = Some(self.join(joined, ty));
        }
        Type::list(joined.unwrap_or_else(|| self.found.fresh()))
    }

    fn map(&mut self, entries: &[(Id, Id, bool)]) -> Type {
        let (mut keys, mut values) = (None, None);
        for (key, value, optional) in entries {
            self.check(*key);
            let ty = self.types[*key].clone();
            keys = Some(self.join(keys, ty));
            self.check(*value);
            let ty = self.given(*value, *optional);
            values = Some(self.join(values, ty));
        }
        match (keys, values) {
            (Some(key), Some(value)) => Type::map(key, value),
            _ => Type::map(self.found.fresh(), self.found.fresh()),
        }
    }

    /// The type of an item, which must be optional where that is said of it.
    fn given(&mut self, id: Id, optional: bool) -> Type {
        let ty = self.types[id].clone();
        if !optional {
            return ty;
        }
        match ty.unwrapped() {
            (inner, true) => inner.clone(),
            (Type::Dyn, false) => Type::Dyn,
            (other, false) => {
                let other = other.clone();
                self.mismatch(id, &Type::optional(other.clone()), &other);
                other
            }
        }
    }

    fn join(&mut self, previous: Option<Type>, current: Type) -> Type {
        let Some(previous) = previous else { return current };
        if self.found.assignable([(&previous, &current)]) {
            return more_general(&previous, &current).clone();
        }
        Type::Dyn
    }

    fn built(&mut self, id: Id, name: &str, fields: &[(String, Id, bool, usize)]) -> Type {
        let Some(ty) = self.environment.built_type(name) else { return self.undeclared(id, name) };
        for (_, value, ..) in fields {
            self.check(*value);
        }
        self.references[id] = Reference::TypeName(name.to_owned());
        ty
    }

    fn looped(&mut self, parts: &'a Loop) -> Type {
        self.check(parts.range);
        self.check(parts.init);
        let range = self.found.resolved(&self.types[parts.range], false);
        let gathered = self.types[parts.init].clone();
        let before = self.locals.len();
        self.locals.push((&parts.accumulator, gathered.clone()));
        // One name stands for the items of a list or the keys of a map, two for index and item or key and value.
        let (one, first, second) = match &range {
            Type::List(item) => ((**item).clone(), Type::Int, (**item).clone()),
            Type::Map(pair) => (pair.0.clone(), pair.0.clone(), pair.1.clone()),
            Type::Dyn | Type::Error | Type::Param(_) => {
                self.found.assignable([(&Type::Dyn, &range)]);
                (Type::Dyn, Type::Dyn, Type::Dyn)
            }
            other => {
                let message = format!(
                    "expression of type '{}' cannot be range of a comprehension (must be list, map, or dynamic)",
                    other.shown()
                );
                self.complain(parts.range, message);
                (Type::Error, Type::Error, Type::Error)
            }
        };
        match &parts.second {
            Some(name) => self.locals.extend([(parts.first.as_str(), first), (name.as_str(), second)]),
            None => self.locals.push((&parts.first, one)),
        }
        self.check(parts.condition);
        self.assert(parts.condition, &Type::Bool);
        self.check(parts.step);
        self.assert(parts.step, &gathered);
        self.locals.truncate(before + 1);
        self.check(parts.result);
        self.locals.truncate(before);
        self.found.resolved(&self.types[parts.result], false)
    }

    fn assert(&mut self, id: Id, expected: &Type) {
        let actual = self.types[id].clone();
        if !self.found.assignable([(expected, &actual)]) {
            self.mismatch(id, expected, &actual);
        }
    }
}

fn type_of_literal(literal: &Literal) -> Type {
    match literal {
        Literal::Null => Type::Null,
        Literal::Bool(_) => Type::Bool,
        Literal::Int(_) => Type::Int,
        Literal::Uint(_) => Type::Uint,
        Literal::Double(_) => Type::Double,
        Literal::String(_) => Type::String,
        Literal::Bytes(_) => Type::Bytes,
    }
}

/// Types that are no objects: what can be selected from them is not a question.
fn is_opaque(name: &str) -> bool {
    name.starts_with("net.")
}

fn named_type(name: &str) -> Option<Type> {
    Some(match name {
        "bool" => Type::Bool,
        "bytes" => Type::Bytes,
        "double" => Type::Double,
        "dyn" => Type::Dyn,
        "int" => Type::Int,
        "list" => Type::list(Type::Dyn),
        "map" => Type::map(Type::Dyn, Type::Dyn),
        "null_type" => Type::Null,
        "string" => Type::String,
        "uint" => Type::Uint,
        "type" => Type::Type(std::sync::Arc::new(Type::Dyn)),
        "google.protobuf.Timestamp" => Type::Timestamp,
        "google.protobuf.Duration" => Type::Duration,
        "optional_type" => Type::optional(Type::Dyn),
        "net.IP" => Type::Named("net.IP"),
        "net.CIDR" => Type::Named("net.CIDR"),
        _ => return None,
    })
}
