//! The most that an expression may cost, told from the sizes that the schema allows. As cel-go and Kubernetes do it.

mod call;
mod range;

use std::collections::HashMap;

use super::check::{Checked, Reference};
use super::cost::{LIST, MAP, STRUCT};
use super::declared::{Declared, Inside};
use super::macros::ACCUMULATOR;
use super::tree::{Expr, Id, Literal, Loop, Tree};
use super::types::Type;
use call::{Argument, CallCost};
pub use range::Range;

/// What an expression may cost.
pub(super) fn estimate(tree: &Tree, root: Id, checked: &Checked, declared: Option<&Declared>) -> Range {
    let mut estimator = Estimator {
        tree,
        checked,
        declared,
        paths: HashMap::new(),
        sizes: HashMap::new(),
        entries: HashMap::new(),
        locals: Vec::new(),
    };
    estimator.cost(root)
}

/// A step from a value into its parts; the first is the variable.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Part<'a> {
    Named(&'a str),
    Items,
    Values,
    Keys,
    Indices,
}

type Path<'a> = Vec<Part<'a>>;

/// The sizes of what is in a list or map.
#[derive(Debug, Clone, Copy)]
struct Entries {
    is_list: bool,
    key: Range,
    value: Range,
}

impl Entries {
    fn union(self, other: Self) -> Self {
        Self { key: self.key.union(other.key), value: self.value.union(other.value), ..self }
    }
}

struct Local<'a> {
    name: &'a str,
    path: Path<'a>,
    size: Option<Range>,
    entries: Option<Entries>,
}

struct Estimator<'a> {
    tree: &'a Tree,
    checked: &'a Checked,
    declared: Option<&'a Declared>,
    paths: HashMap<Id, Path<'a>>,
    sizes: HashMap<Id, Range>,
    entries: HashMap<Id, Entries>,
    locals: Vec<Local<'a>>,
}

impl<'a> Estimator<'a> {
    fn cost(&mut self, id: Id) -> Range {
        match &self.tree.nodes[id].expr {
            Expr::Literal(_) => Range::fixed(0),
            Expr::Ident(name) => {
                let path = self.local(name).map_or_else(|| vec![Part::Named(name)], |local| local.path.clone());
                self.paths.insert(id, path);
                Range::fixed(1)
            }
            Expr::Select { operand, field, test } => self.select(id, *operand, field, *test),
            Expr::Call { target, args, .. } => self.call(id, *target, args),
            Expr::List(items) => {
                let mut item_size = if items.is_empty() { Range::fixed(0) } else { Range { min: u64::MAX, max: 0 } };
                let mut cost = Range::fixed(LIST);
                for (item, _) in items {
                    cost = cost.plus(self.cost(*item));
                    item_size = item_size.union(self.size_or_unknown(*item));
                }
                self.entries.insert(id, Entries { is_list: true, key: Range::fixed(1), value: item_size });
                cost
            }
            Expr::Map(entries) => {
                let nothing = if entries.is_empty() { Range::fixed(0) } else { Range { min: u64::MAX, max: 0 } };
                let (mut key_size, mut value_size, mut cost) = (nothing, nothing, Range::fixed(MAP));
                for (key, value, _) in entries {
                    cost = cost.plus(self.cost(*key)).plus(self.cost(*value));
                    key_size = key_size.union(self.size_or_unknown(*key));
                    value_size = value_size.union(self.size_or_unknown(*value));
                }
                self.entries.insert(id, Entries { is_list: false, key: key_size, value: value_size });
                cost
            }
            Expr::Struct { fields, .. } => {
                fields.iter().fold(Range::fixed(STRUCT), |cost, field| cost.plus(self.cost(field.1)))
            }
            Expr::Loop(parts) if self.is_bound(parts) => self.bound(id, parts),
            Expr::Loop(parts) => self.looped(id, parts),
        }
    }

    fn select(&mut self, id: Id, operand: Id, field: &'a str, test: bool) -> Range {
        if let Reference::Variable(name) = &self.checked.references[id] {
            self.paths.insert(id, vec![Part::Named(name)]);
            return Range::fixed(1);
        }
        let cost = self.cost(operand);
        if test {
            return cost;
        }
        let mut path = self.path(operand);
        path.push(Part::Named(field));
        self.paths.insert(id, path);
        match &self.checked.types[operand] {
            Type::Map(_) | Type::Object(_) | Type::Named(_) => cost.plus(Range::fixed(1)),
            _ => cost,
        }
    }

    fn call(&mut self, id: Id, target: Option<Id>, args: &'a [Id]) -> Range {
        let checked = self.checked;
        let Reference::Function(function, overloads) = &checked.references[id] else { return Range::fixed(0) };
        if let ("dyn", [arg]) = (function.name, args) {
            let cost = self.cost(*arg).plus(Range::fixed(1));
            self.copy_sizes(id, *arg);
            return cost;
        }
        let mut costs = Vec::with_capacity(args.len());
        let mut arguments = Vec::with_capacity(args.len());
        for arg in args {
            costs.push(self.cost(*arg));
            arguments.push(self.argument(*arg));
        }
        let mut sum = Range::fixed(0);
        let target = target.filter(|_| overloads.first().is_some_and(|overload| overload.member)).map(|target| {
            sum = self.cost(target);
            self.argument(target)
        });
        let mut total = Range { min: u64::MAX, max: 0 };
        let mut size: Option<Range> = None;
        for overload in overloads {
            let CallCost { cost, size: gives } =
                self.function(id, function.name, overload.id, target.as_ref(), &arguments, &costs);
            total = total.union(cost);
            if let Some(gives) = gives {
                size = Some(size.map_or(gives, |size| size.union(gives)));
            }
            let part = match overload.id {
                "index_list" => Some(Part::Items),
                "index_map" => Some(Part::Values),
                _ => None,
            };
            if let (Some(part), Some(list)) = (part, args.first()) {
                size = self.entries_of(*list).map(|entries| entries.value);
                let mut path = self.path(*list);
                path.push(part);
                self.paths.insert(id, path);
            }
            if size.is_none() {
                size = self.size(id);
            }
        }
        if let Some(size) = size {
            self.sizes.insert(id, size);
        }
        sum.plus(total)
    }

    fn argument(&mut self, id: Id) -> Argument<'a> {
        let mut path = self.path(id);
        if matches!(path.first(), Some(Part::Named(ACCUMULATOR | "__result__"))) {
            path.clear();
        }
        Argument { id, path, ty: &self.checked.types[id], size: self.size(id) }
    }

    fn looped(&mut self, id: Id, parts: &'a Loop) -> Range {
        let mut sum = self.cost(parts.range).plus(self.cost(parts.init));
        self.push(&parts.accumulator, parts.init);
        let known = self.entries_of(parts.range);
        let is_list =
            known.map_or_else(|| matches!(self.checked.types[parts.range], Type::List(_)), |entries| entries.is_list);
        let (key, value) = (known.map(|entries| entries.key), known.map(|entries| entries.value));
        let path = self.path(parts.range);
        let mut enter = |name: &'a str, part: Part<'a>, size: Option<Range>| {
            let mut path = path.clone();
            path.push(part);
            self.locals.push(Local { name, path, size, entries: None });
        };
        let (keys, values) = if is_list { (Part::Indices, Part::Items) } else { (Part::Keys, Part::Values) };
        let count = match &parts.second {
            Some(second) => {
                enter(&parts.first, keys, key);
                enter(second, values, value);
                2
            }
            None if is_list => {
                enter(&parts.first, values, value);
                1
            }
            None => {
                enter(&parts.first, keys, key);
                1
            }
        };
        let round = self.cost(parts.condition).plus(self.cost(parts.step));
        self.locals.truncate(self.locals.len() - count);
        sum = sum.plus(self.cost(parts.result));
        self.locals.pop();
        let rounds = self.size_or_unknown(parts.range);
        sum = sum.plus(rounds.times(round));
        match &self.tree.nodes[parts.init].expr {
            Expr::Literal(_) => {
                if let Some(size) = self.size(parts.init) {
                    self.sizes.insert(id, size);
                }
            }
            Expr::List(_) | Expr::Map(_) => {
                self.sizes.insert(id, rounds);
                if let Some(entries) = self.entries_of(parts.step) {
                    self.entries.insert(id, entries);
                }
            }
            _ => {}
        }
        sum
    }

    /// Whether a loop only gives a name to a value.
    fn is_bound(&self, parts: &Loop) -> bool {
        let expr = |id: Id| &self.tree.nodes[id].expr;
        matches!(expr(parts.range), Expr::List(items) if items.is_empty())
            && matches!(expr(parts.condition), Expr::Literal(Literal::Bool(false)))
            && parts.accumulator != "__result__"
    }

    fn bound(&mut self, id: Id, parts: &'a Loop) -> Range {
        let sum = self.cost(parts.range).plus(self.cost(parts.init));
        self.push(&parts.accumulator, parts.init);
        let sum = sum.plus(self.cost(parts.result));
        self.locals.pop();
        self.copy_sizes(id, parts.result);
        sum
    }

    fn push(&mut self, name: &'a str, value: Id) {
        let local = Local { name, path: self.path(value), size: self.size(value), entries: self.entries_of(value) };
        self.locals.push(local);
    }

    fn local(&self, name: &str) -> Option<&Local<'a>> {
        self.locals.iter().rev().find(|local| local.name == name)
    }

    fn path(&self, id: Id) -> Path<'a> {
        if let Expr::Ident(name) = &self.tree.nodes[id].expr
            && let Some(local) = self.local(name)
        {
            return local.path.clone();
        }
        self.paths.get(&id).cloned().unwrap_or_default()
    }

    fn copy_sizes(&mut self, to: Id, from: Id) {
        if let Some(size) = self.size(from) {
            self.sizes.insert(to, size);
        }
        if let Some(entries) = self.entries_of(from) {
            self.entries.insert(to, entries);
        }
    }

    fn size_or_unknown(&mut self, id: Id) -> Range {
        self.size(id).unwrap_or(Range::UNKNOWN)
    }

    fn size(&mut self, id: Id) -> Option<Range> {
        if let Some(size) = self.sizes.get(&id) {
            return Some(*size);
        }
        let written = match &self.tree.nodes[id].expr {
            Expr::Literal(Literal::String(text)) => Some(text.chars().count()),
            Expr::Literal(Literal::Bytes(bytes)) => Some(bytes.len()),
            Expr::Literal(_) => Some(1),
            Expr::List(items) => Some(items.len()),
            Expr::Map(entries) => Some(entries.len()),
            _ => None,
        };
        if let Some(size) = written {
            return Some(Range::fixed(size as u64));
        }
        if let Some(size) = self.declared_size(&self.path(id)) {
            self.sizes.insert(id, size);
            return Some(size);
        }
        if self.checked.types[id].is_scalar() {
            return Some(Range::fixed(1));
        }
        match &self.tree.nodes[id].expr {
            Expr::Ident(name) => self.local(name).and_then(|local| local.size),
            _ => None,
        }
    }

    /// The size that the schema allows at a path. The variable is not looked at: all have the one schema.
    fn declared_size(&self, path: &[Part<'_>]) -> Option<Range> {
        let (_, inside) = path.split_first()?;
        let mut declared = self.declared?;
        for part in inside {
            declared = match (part, &declared.inside) {
                (Part::Items | Part::Values, Inside::List(inner) | Inside::Map(inner)) => inner,
                // The keys of a map have no size of their own.
                (Part::Keys, Inside::Map(_)) => return Some(Range::fixed(0)),
                (Part::Named(name), Inside::Object(properties)) => {
                    let name = super::escape::unescape(name)?;
                    properties.get(&*name).filter(|inner| inner.visible)?
                }
                _ => return None,
            };
        }
        Some(Range { min: 0, max: declared.size_max })
    }

    fn entries_of(&self, id: Id) -> Option<Entries> {
        if let Some(entries) = self.entries.get(&id) {
            return Some(*entries);
        }
        match &self.tree.nodes[id].expr {
            Expr::Ident(name) => self.local(name).and_then(|local| local.entries),
            _ => None,
        }
    }
}
