//! The most that an expression may cost, told from the sizes that the schema allows. As cel-go and Kubernetes do it.

use std::collections::HashMap;

use super::check::{Checked, Reference};
use super::cost::{CHARACTER, FORMAT_PATTERN_CHARS, LIST, MAP, PATTERN_CHARACTER, STRUCT};
use super::declared::{Declared, Kind};
use super::macros::ACCUMULATOR;
use super::tree::{Expr, Id, Literal, Loop, Tree};
use super::types::Type;

/// From the least to the most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The least.
    pub min: u64,
    /// The most.
    pub max: u64,
}

impl Range {
    const UNKNOWN: Self = Self { min: 0, max: u64::MAX };

    const fn fixed(size: u64) -> Self {
        Self { min: size, max: size }
    }

    fn plus(self, other: Self) -> Self {
        Self { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    fn times(self, other: Self) -> Self {
        Self { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    /// Rounded up.
    fn scaled(self, factor: f64) -> Self {
        Self { min: scale(self.min, factor), max: scale(self.max, factor) }
    }

    fn union(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

/// Casting a float that is too large gives the largest number, which is what is wanted.
fn scale(size: u64, factor: f64) -> u64 {
    (size as f64 * factor).ceil() as u64
}

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

/// A part of an expression as the cost of a call sees it.
struct Argument<'a> {
    id: Id,
    path: Path<'a>,
    ty: &'a Type,
    size: Option<Range>,
}

/// What a call costs itself, and the size of what it gives.
struct CallCost {
    cost: Range,
    size: Option<Range>,
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
            declared = match (part, &declared.kind) {
                (Part::Items | Part::Values, Kind::List { items, .. }) => items,
                (Part::Items | Part::Values, Kind::Map { values }) => values,
                // The keys of a map have no size of their own.
                (Part::Keys, Kind::Map { .. }) => return Some(Range::fixed(0)),
                (Part::Named(name), Kind::Object { properties }) => {
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

    /// The size of an argument, as Kubernetes asks for it.
    fn size_of(&self, argument: &Argument<'_>) -> Range {
        argument.size.or_else(|| self.declared_size(&argument.path)).unwrap_or(Range::UNKNOWN)
    }

    fn function(
        &mut self,
        id: Id,
        name: &str,
        overload: &str,
        target: Option<&Argument<'a>>,
        args: &[Argument<'a>],
        costs: &[Range],
    ) -> CallCost {
        let given = costs.iter().fold(Range::fixed(0), |sum, cost| sum.plus(*cost));
        let found = self.of_list(overload, target, args).or_else(|| self.of_kubernetes(name, overload, target, args));
        if let Some(CallCost { cost, size }) = found {
            return CallCost { cost: cost.plus(given), size };
        }
        let known = |argument: &Argument<'_>| argument.size.unwrap_or(Range::UNKNOWN);
        let characters = |argument: &Argument<'_>| known(argument).scaled(CHARACTER);
        let one = Range::fixed(1);
        let (cost, size) = match (overload, target, args) {
            ("string_format", Some(target), _) => (characters(target), None),
            ("string_to_bytes", _, [text]) => {
                let size = known(text);
                (characters(text), Some(Range { min: size.min, max: size.max.wrapping_mul(4) }))
            }
            ("bytes_to_string", _, [bytes]) => {
                let size = known(bytes);
                (characters(bytes), Some(Range { min: size.min / 4, max: size.max }))
            }
            ("strings_quote", _, [text]) => {
                let size = known(text);
                let max = size.max.wrapping_mul(2).wrapping_add(2);
                (characters(text), Some(Range { min: size.min.wrapping_add(2), max }))
            }
            ("starts_with_string" | "ends_with_string", _, [part]) => (characters(part), None),
            ("in_list", _, [_, list]) => (known(list), None),
            ("matches_string", Some(target), [pattern]) => {
                let text = known(target).plus(one).scaled(CHARACTER);
                (text.times(known(pattern).scaled(PATTERN_CHARACTER)), None)
            }
            ("contains_string", Some(target), [part]) => (characters(target).times(characters(part)), None),
            ("logical_or" | "logical_and", ..) => {
                // The first is always evaluated, the others maybe.
                let first = costs.first().map_or(0, |cost| cost.min);
                return CallCost { cost: Range { min: first, max: given.max }, size: None };
            }
            ("conditional", _, [_, yes, no]) => {
                let size = known(yes).union(known(no));
                if let (Some(yes), Some(no)) = (self.entries_of(yes.id), self.entries_of(no.id)) {
                    self.entries.insert(id, yes.union(no));
                }
                return CallCost { cost: costs[0].plus(costs[1].union(costs[2])), size: Some(size) };
            }
            ("add_string" | "add_bytes" | "add_list", _, [a, b]) => {
                let size = known(a).plus(known(b));
                if let (Some(a), Some(b)) = (self.entries_of(a.id), self.entries_of(b.id)) {
                    self.entries.insert(id, a.union(b));
                }
                (if overload == "add_list" { one } else { size.scaled(CHARACTER) }, Some(size))
            }
            ("equals" | "not_equals", _, [a, b]) => (compared(known(a), known(b)), None),
            (other, _, [a, b]) if is_text_comparison(other) => (compared(known(a), known(b)), None),
            _ => (one, None),
        };
        CallCost { cost: cost.plus(given), size }
    }

    /// Functions of lists and sets that tell their cost themselves.
    fn of_list(&self, overload: &str, target: Option<&Argument<'a>>, args: &[Argument<'a>]) -> Option<CallCost> {
        let made = |factor: f64, size: Range| CallCost {
            cost: size.scaled(factor).plus(Range::fixed(1 + LIST)),
            size: Some(size),
        };
        Some(match (overload, target, args) {
            ("list_slice", Some(target), [start, end]) => {
                let whole = self.size_of(target);
                let (start, end) = (self.written(start, 0), self.written(end, whole.max));
                made(1.0, Range::fixed(end.wrapping_sub(start)))
            }
            ("lists_range", None, [count]) => made(1.0, Range::fixed(self.written(count, u64::MAX))),
            ("list_reverse", Some(target), []) => made(1.0, self.size_of(target)),
            ("list_flatten" | "list_flatten_int", Some(target), _) => {
                let depth = args.first().map_or(1, |depth| self.written(depth, u64::MAX));
                made(depth as f64, self.size_of(target))
            }
            ("list_distinct", Some(target), []) => {
                let size = self.size_of(target);
                made(2.0, size.times(size))
            }
            (sort, Some(target), []) if sort.ends_with("_sort") => {
                let size = self.size_of(target);
                made(sort_factor(sort), size.times(size))
            }
            (sort, Some(_), [keys]) if sort.ends_with("_sortByAssociatedKeys") => {
                let size = self.size_of(keys);
                made(sort_factor(sort), size.times(size))
            }
            ("list_sets_contains_list" | "list_sets_intersects_list" | "list_sets_equivalent_list", _, [a, b]) => {
                let factor = if overload == "list_sets_equivalent_list" { 2.0 } else { 1.0 };
                let pairs = self.size_of(a).times(self.size_of(b));
                CallCost { cost: pairs.scaled(factor).plus(Range::fixed(1)), size: None }
            }
            _ => return None,
        })
    }

    /// A number that is written out.
    fn written(&self, argument: &Argument<'_>, otherwise: u64) -> u64 {
        match &self.tree.nodes[argument.id].expr {
            Expr::Literal(Literal::Int(number)) => u64::try_from(*number).unwrap_or(0),
            _ => otherwise,
        }
    }

    fn of_kubernetes(
        &self,
        name: &str,
        overload: &str,
        target: Option<&Argument<'a>>,
        args: &[Argument<'a>],
    ) -> Option<CallCost> {
        let plain = |cost: Range| CallCost { cost, size: None };
        let one = Range::fixed(1);
        let text = |argument: &Argument<'a>| self.size_of(argument).scaled(CHARACTER);
        Some(match (name, target, args) {
            ("check", ..) => plain(Range::fixed(350_000)),
            ("fieldSelector" | "labelSelector", _, [selector]) => {
                let size = self.size_of(selector);
                let requirements = size.scaled(0.5).scaled((LIST + STRUCT) as f64);
                plain(Range::fixed(LIST).plus(size.scaled(CHARACTER)).plus(requirements))
            }
            ("isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf", Some(target), _) => {
                plain(self.traversal(target))
            }
            ("url" | "jsonpatch.escapeKey", _, [argument]) => {
                CallCost { cost: text(argument), size: Some(self.size_of(argument)) }
            }
            ("lowerAscii" | "upperAscii" | "substring" | "trim", Some(target), _) => {
                CallCost { cost: text(target), size: Some(self.size_of(target)) }
            }
            ("replace", Some(target), [old, new, ..]) => {
                let size = self.size_of(target);
                let gives = replaced(size, self.size_of(old), self.size_of(new));
                CallCost { cost: size.scaled(2.0 * CHARACTER), size: Some(gives) }
            }
            ("split", Some(target), _) => {
                let size = self.size_of(target);
                let max = args.get(1).map_or(size.max, |most| self.split_max(most, size.max));
                CallCost { cost: size.scaled(2.0 * CHARACTER), size: Some(Range { min: 0, max }) }
            }
            ("join", Some(target), _) => {
                let size = self.joined(target, args.first());
                CallCost { cost: size.scaled(CHARACTER), size: Some(size) }
            }
            ("find" | "findAll", Some(target), [pattern, ..]) => {
                let size = self.size_of(target);
                let cost = size.plus(one).scaled(CHARACTER);
                let cost = cost.times(self.size_of(pattern).scaled(PATTERN_CHARACTER));
                CallCost { cost, size: Some(Range { min: 0, max: size.max }) }
            }
            ("ip", ..) if overload == "cidr_ip" => plain(one),
            (
                "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver",
                _,
                [argument, ..],
            ) => plain(text(argument)),
            ("ip.isCanonical", _, [argument]) => plain(self.size_of(argument).scaled(2.0 * CHARACTER)),
            ("containsIP" | "containsCIDR", _, [argument]) => {
                let address = Range { min: 4, max: 16 };
                let mut cost = address.plus(address).scaled(CHARACTER);
                if name == "containsCIDR" {
                    cost = cost.plus(address.scaled(CHARACTER)).plus(one);
                }
                if matches!(overload, "cidr_contains_ip_string" | "cidr_contains_cidr_string") {
                    cost = cost.plus(text(argument));
                }
                plain(cost)
            }
            ("validate", _, [argument]) => {
                plain(text(argument).scaled(FORMAT_PATTERN_CHARS as f64 * PATTERN_CHARACTER))
            }
            ("_==_", _, [a, b]) => match (a.ty, b.ty) {
                (Type::Named("kubernetes.URL"), Type::Named("kubernetes.URL")) => {
                    let size = b.size.unwrap_or(one);
                    plain(Range { min: 1, max: size.max }.scaled(CHARACTER))
                }
                (Type::Named("kubernetes.NamedFormat"), Type::Named("kubernetes.NamedFormat")) => {
                    plain(Range { min: 1, max: 64 }.scaled(CHARACTER))
                }
                (Type::Named(a), Type::Named(b)) if a == b => plain(one),
                _ => return None,
            },
            _ => return None,
        })
    }

    fn traversal(&self, target: &Argument<'a>) -> Range {
        let size = self.size_of(target);
        let (Type::List(item) | Type::Optional(item)) = target.ty else {
            if let Type::Map(pair) = target.ty {
                return size.times(self.item_cost(&pair.0, target));
            }
            return size.scaled(CHARACTER);
        };
        size.times(self.item_cost(item, target))
    }

    fn item_cost(&self, item: &Type, list: &Argument<'_>) -> Range {
        let one = Range::fixed(1);
        match item {
            Type::String | Type::Bytes => one.plus(self.item_size(list).scaled(CHARACTER)),
            _ => one,
        }
    }

    /// The size of the items of a list, by its path alone.
    fn item_size(&self, list: &Argument<'_>) -> Range {
        let mut path = list.path.clone();
        if path.is_empty() {
            return Range::UNKNOWN;
        }
        path.push(Part::Items);
        self.declared_size(&path).unwrap_or(Range::UNKNOWN)
    }

    fn split_max(&self, most: &Argument<'_>, otherwise: u64) -> u64 {
        match &self.tree.nodes[most.id].expr {
            // A negative number is taken as it is in memory, as upstream does.
            Expr::Literal(Literal::Int(number)) => *number as u64,
            _ => otherwise,
        }
    }

    fn joined(&self, list: &Argument<'a>, between: Option<&Argument<'a>>) -> Range {
        let count = self.size_of(list);
        let mut size = match list.ty {
            Type::List(_) => count.times(self.item_size(list)),
            _ => Range::fixed(0),
        };
        if let Some(between) = between {
            let gaps = Range { min: count.min.saturating_sub(1), max: count.max.saturating_sub(1) };
            size = size.plus(self.size_of(between).times(gaps));
        }
        size
    }
}

/// Equal or not, or in which order: at most as long as the shorter is.
fn compared(a: Range, b: Range) -> Range {
    let max = a.max.min(b.max);
    Range { min: u64::from(max > 0), max }.scaled(CHARACTER)
}

fn is_text_comparison(overload: &str) -> bool {
    let ordered = ["less_", "greater_"].iter().any(|prefix| overload.starts_with(prefix));
    ordered && (overload.ends_with("_string") || overload.ends_with("_bytes"))
}

fn sort_factor(overload: &str) -> f64 {
    match overload.starts_with("list_string_") || overload.starts_with("list_bytes_") {
        true => 2.0 + CHARACTER,
        false => 2.0,
    }
}

/// The size of a text in which each old part is replaced by a new one.
fn replaced(size: Range, old: Range, new: Range) -> Range {
    let (mut count, mut kept) = (Range::fixed(0), Range::fixed(0));
    if old.min == 0 {
        // Nothing is replaced around each character.
        count.max = size.max.saturating_add(1);
        kept.max = size.max;
    } else if new.max <= old.min {
        kept.max = size.max;
    } else {
        count.max = (size.max as f64 / old.min as f64).ceil() as u64;
    }
    if old.max == 0 {
        count.min = size.min.saturating_add(1);
        kept.min = size.min;
    } else if old.max <= new.min {
        kept.min = size.min;
    } else {
        count.min = (size.min as f64 / old.max as f64).ceil() as u64;
    }
    count.times(new).plus(kept)
}
