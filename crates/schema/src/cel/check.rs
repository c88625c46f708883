//! The type of an expression, found from its leaves up.

use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, SelectExpr, SourceInfo};
use regex_syntax::Parser as RegexParser;

use super::functions::{self, Outcome};
use super::types::Type;
use super::{Complaint, Environment};

/// The type that the expression gives, or all that is wrong with it.
pub(super) fn check(tree: &IdedExpr, source: &SourceInfo, environment: &Environment) -> Result<Type, Vec<Complaint>> {
    let mut checker = Checker { source, environment, locals: Vec::new(), found: Vec::new(), literals: Vec::new() };
    let ty = checker.of(tree);
    if checker.found.is_empty() {
        // Upstream looks at literals only once all types are known.
        checker.found = std::mem::take(&mut checker.literals);
    }
    if checker.found.is_empty() { Ok(ty) } else { Err(checker.found) }
}

struct Checker<'a> {
    source: &'a SourceInfo,
    environment: &'a Environment,
    /// Names that comprehensions bring, innermost last.
    locals: Vec<(&'a str, Type)>,
    found: Vec<Complaint>,
    literals: Vec<Complaint>,
}

impl<'a> Checker<'a> {
    fn of(&mut self, tree: &'a IdedExpr) -> Type {
        match &tree.expr {
            Expr::Ident(name) => self.ident(tree, name),
            Expr::Literal(value) => literal(value),
            Expr::Select(select) => self.select(tree, select),
            Expr::Call(call) => self.call(tree, call),
            Expr::List(list) => {
                let mut item = None;
                for element in &list.elements {
                    self.join(&mut item, element);
                }
                Type::List(Box::new(item.unwrap_or(Type::Unknown)))
            }
            Expr::Map(map) => {
                let (mut keys, mut values) = (None, None);
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        self.join(&mut keys, &entry.key);
                        self.join(&mut values, &entry.value);
                    }
                }
                Type::Map(Box::new(keys.unwrap_or(Type::Unknown)), Box::new(values.unwrap_or(Type::Unknown)))
            }
            Expr::Struct(built) => self.built(tree, &built.type_name, &built.entries),
            Expr::Comprehension(loops) => self.comprehension(loops),
            _ => Type::Unknown,
        }
    }

    fn ident(&mut self, tree: &IdedExpr, name: &str) -> Type {
        match self.known(name) {
            Some(ty) => ty,
            None if is_type_name(name) => Type::Unknown,
            None => self.complain(tree, format!("undeclared reference to '{name}' (in container '')")),
        }
    }

    fn known(&self, name: &str) -> Option<Type> {
        let local = self.locals.iter().rev().find(|(local, _)| *local == name).map(|(_, ty)| ty);
        local.or_else(|| self.environment.variables.get(name)).cloned()
    }

    fn select(&mut self, tree: &'a IdedExpr, select: &'a SelectExpr) -> Type {
        if let Some(ty) = qualified(tree).and_then(|name| self.environment.variables.get(&name).cloned()) {
            return ty;
        }
        if qualified(tree).is_some_and(|name| name.starts_with("google.protobuf.")) {
            return Type::Unknown;
        }
        let operand = self.of(&select.operand);
        let field = self.field(tree, operand, &select.field);
        if select.test { Type::Bool } else { field }
    }

    fn field(&mut self, tree: &IdedExpr, operand: Type, field: &str) -> Type {
        match operand {
            Type::Object(_, fields) => match fields.into_iter().rev().find(|(name, _)| name == field) {
                Some((_, ty)) => ty,
                None => self.complain(tree, format!("undefined field '{field}'")),
            },
            Type::Map(_, value) => *value,
            Type::Optional(inner) => match self.field(tree, *inner, field) {
                Type::Unknown => Type::Unknown,
                ty => Type::Optional(Box::new(ty)),
            },
            Type::Dyn => Type::Dyn,
            Type::Unknown | Type::Named(_) => Type::Unknown,
            other => self.complain(tree, format!("type '{}' does not support field selection", other.in_overload())),
        }
    }

    fn call(&mut self, tree: &'a IdedExpr, call: &'a CallExpr) -> Type {
        let name = call.func_name.as_str();
        if functions::is_macro(name) && name != "@in" {
            return Type::Unknown;
        }
        // A target that is no variable may be the first part of the function's name: `sets.contains(...)`.
        let full = call.target.as_ref().and_then(|target| qualified(target)).map(|first| format!("{first}.{name}"));
        if let Some(full) = full.filter(|full| functions::call(full, None, &[]) != Outcome::Undeclared) {
            let arguments: Vec<_> = call.args.iter().map(|argument| self.of(argument)).collect();
            return self.resolved(tree, &full, None, &arguments);
        }
        let target = call.target.as_ref().map(|target| self.of(target));
        let arguments: Vec<_> = call.args.iter().map(|argument| self.of(argument)).collect();
        self.check_literals(name, target.is_some(), &call.args);
        self.resolved(tree, name, target, &arguments)
    }

    fn resolved(&mut self, tree: &IdedExpr, name: &str, target: Option<Type>, arguments: &[Type]) -> Type {
        let outcome = match (name, arguments) {
            ("_==_" | "_!=_", [a, b]) => if_fits(a.fits(b), Type::Bool),
            ("_?_:_", [condition, a, b]) if Type::Bool.fits(condition) && a.fits(b) => {
                Outcome::Gives(if a.is_open() { b.clone() } else { a.clone() })
            }
            ("_?_:_", [_, _, _]) => Outcome::NoOverload,
            ("@in", [_, list]) if list.is_open() => Outcome::Gives(Type::Bool),
            ("@in", [item, Type::List(of) | Type::Map(of, _)]) => if_fits(item.fits(of), Type::Bool),
            ("@in", _) => Outcome::NoOverload,
            ("_+_", [a, b]) => add(a, b),
            ("_[_]", [Type::List(item), index]) => if_fits(Type::Int.fits(index), (**item).clone()),
            ("_[_]", [Type::Map(key, value), index]) => if_fits(key.fits(index), (**value).clone()),
            ("_[_]", [Type::Dyn, _]) => Outcome::Gives(Type::Dyn),
            ("_[_]", [Type::Unknown | Type::Optional(_), _]) => Outcome::Gives(Type::Unknown),
            ("_[_]", _) => Outcome::NoOverload,
            ("_?._" | "_[?_]", _) => Outcome::Gives(Type::Unknown),
            _ => functions::call(name, target.as_ref(), arguments),
        };
        match outcome {
            Outcome::Gives(ty) => ty,
            Outcome::Undeclared => self.complain(tree, format!("undeclared reference to '{name}' (in container '')")),
            Outcome::NoOverload => {
                let shown: Vec<_> = arguments.iter().map(Type::in_overload).collect();
                let on = target.map(|ty| format!("{}.", ty.in_overload())).unwrap_or_default();
                let detail = format!("found no matching overload for '{name}' applied to '{on}({})'", shown.join(", "));
                self.complain(tree, detail)
            }
        }
    }

    /// Regular expressions that are written out are looked at.
    fn check_literals(&mut self, name: &str, on_target: bool, arguments: &[IdedExpr]) {
        let at = if on_target { 0 } else { 1 };
        let Some(argument) = arguments.get(at).filter(|_| name == "matches") else { return };
        if let Expr::Literal(LiteralValue::String(text)) = &argument.expr
            && RegexParser::new().parse(text.inner()).is_err()
        {
            let complaint = self.complaint(argument, "invalid matches argument".to_owned());
            self.literals.push(complaint);
        }
    }

    fn built(&mut self, tree: &IdedExpr, name: &str, entries: &'a [cel::common::ast::IdedEntryExpr]) -> Type {
        for entry in entries {
            if let EntryExpr::StructField(field) = &entry.expr {
                self.of(&field.value);
            }
        }
        let known =
            |allowed: &&str| *allowed == name || name.strip_prefix(allowed).is_some_and(|rest| rest.starts_with('.'));
        match self.environment.structs.iter().any(known) {
            true => Type::named(name),
            false => self.complain(tree, format!("undeclared reference to '{name}' (in container '')")),
        }
    }

    /// `all`, `exists`, `map` and the others, which the parser turns into one form.
    fn comprehension(&mut self, loops: &'a ComprehensionExpr) -> Type {
        let range = self.of(&loops.iter_range);
        // One name stands for the items of a list or the keys of a map, two for index and item or key and value.
        let (first, second, one) = match range {
            Type::List(item) => (Type::Int, (*item).clone(), *item),
            Type::Map(key, value) => ((*key).clone(), *value, *key),
            Type::Dyn => (Type::Dyn, Type::Dyn, Type::Dyn),
            Type::Unknown | Type::Optional(_) | Type::Named(_) => (Type::Unknown, Type::Unknown, Type::Unknown),
            other => {
                let detail = format!(
                    "expression of type '{}' cannot be range of a comprehension (must be list, map, or dynamic)",
                    other.in_overload()
                );
                self.complain(&loops.iter_range, detail);
                (Type::Unknown, Type::Unknown, Type::Unknown)
            }
        };
        let accumulated = self.of(&loops.accu_init);
        let before = self.locals.len();
        self.locals.push((&loops.accu_var, accumulated));
        match &loops.iter_var2 {
            Some(name) => self.locals.extend([(loops.iter_var.as_str(), first), (name.as_str(), second)]),
            None => self.locals.push((&loops.iter_var, one)),
        }
        self.of(&loops.loop_cond);
        let step = self.of(&loops.loop_step);
        self.locals.truncate(before);
        self.locals.push((&loops.accu_var, step));
        let result = self.of(&loops.result);
        self.locals.truncate(before);
        result
    }

    /// Items of a literal are of one type.
    fn join(&mut self, before: &mut Option<Type>, element: &'a IdedExpr) {
        let ty = self.of(element);
        match before {
            None => *before = Some(ty),
            Some(known) if known.fits(&ty) => {
                if known.is_open() {
                    *known = ty;
                }
            }
            Some(known) => {
                let detail = format!("expected type '{}' but found '{}'", known.in_overload(), ty.in_overload());
                self.complain(element, detail);
            }
        }
    }

    fn complain(&mut self, tree: &IdedExpr, message: String) -> Type {
        let complaint = self.complaint(tree, message);
        self.found.push(complaint);
        Type::Unknown
    }

    fn complaint(&self, tree: &IdedExpr, message: String) -> Complaint {
        let offset = self.source.offset_for(tree.id).map_or(0, |(start, _)| start as usize);
        let before: String = self.source.source.chars().take(offset).collect();
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().map_or(0, |text| text.chars().count()) + 1;
        Complaint { line, column, message }
    }
}

fn if_fits(fits: bool, ty: Type) -> Outcome {
    if fits { Outcome::Gives(ty) } else { Outcome::NoOverload }
}

fn add(a: &Type, b: &Type) -> Outcome {
    match (a, b) {
        (Type::Unknown, _) | (_, Type::Unknown) => Outcome::Gives(Type::Unknown),
        (Type::Dyn, other) | (other, Type::Dyn) => Outcome::Gives(match other {
            Type::Timestamp | Type::Duration | Type::Dyn => Type::Dyn,
            other => other.clone(),
        }),
        (Type::List(x), Type::List(y)) if x.fits(y) => {
            Outcome::Gives(Type::List(if x.is_open() { y.clone() } else { x.clone() }))
        }
        (Type::Timestamp, Type::Duration) | (Type::Duration, Type::Timestamp) => Outcome::Gives(Type::Timestamp),
        (Type::Int | Type::Uint | Type::Double | Type::String | Type::Bytes | Type::Duration, b) => {
            if_fits(a == b, a.clone())
        }
        _ => Outcome::NoOverload,
    }
}

fn literal(value: &LiteralValue) -> Type {
    match value {
        LiteralValue::Boolean(_) => Type::Bool,
        LiteralValue::Bytes(_) => Type::Bytes,
        LiteralValue::Double(_) => Type::Double,
        LiteralValue::Int(_) => Type::Int,
        LiteralValue::Null => Type::Null,
        LiteralValue::String(_) => Type::String,
        LiteralValue::UInt(_) => Type::Uint,
    }
}

/// Names have few parts; longer chains of selections are about fields.
const NAME_PARTS_MAX: usize = 4;

/// The dotted name that a tree of plain selections spells.
fn qualified(tree: &IdedExpr) -> Option<String> {
    let (mut parts, mut at) = (Vec::new(), tree);
    while parts.len() < NAME_PARTS_MAX {
        match &at.expr {
            Expr::Ident(name) => {
                parts.push(name.as_str());
                parts.reverse();
                return Some(parts.join("."));
            }
            Expr::Select(select) if !select.test => {
                parts.push(&select.field);
                at = &select.operand;
            }
            _ => return None,
        }
    }
    None
}

/// Names of types are values, too: `type(x) == int`.
fn is_type_name(name: &str) -> bool {
    matches!(
        name,
        "bool"
            | "bytes"
            | "double"
            | "int"
            | "list"
            | "map"
            | "null_type"
            | "string"
            | "type"
            | "uint"
            | "optional_type"
    )
}
