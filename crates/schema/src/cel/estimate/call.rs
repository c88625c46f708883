//! What calls of functions may cost, and how large is what they give.

use super::{Estimator, Part, Path, Range};
use crate::cel::cost::{CHARACTER, FORMAT_PATTERN_CHARS, LIST, PATTERN_CHARACTER, STRUCT};
use crate::cel::tree::{Expr, Id, Literal};
use crate::cel::types::Type;

/// A part of an expression as the cost of a call sees it.
pub(super) struct Argument<'a> {
    pub(super) id: Id,
    pub(super) path: Path<'a>,
    pub(super) ty: &'a Type,
    pub(super) size: Option<Range>,
}

/// What a call costs itself, and the size of what it gives.
pub(super) struct CallCost {
    pub(super) cost: Range,
    pub(super) size: Option<Range>,
}

impl<'a> Estimator<'a> {
    /// The size of an argument, as Kubernetes asks for it.
    fn size_of(&self, argument: &Argument<'_>) -> Range {
        argument.size.or_else(|| self.declared_size(&argument.path)).unwrap_or(Range::UNKNOWN)
    }

    pub(super) fn function(
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
