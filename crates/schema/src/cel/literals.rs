//! What can be told of literals before anything is evaluated, once all types are known.

use setpoint_api::time::parse_duration;

use super::Complaint;
use super::text_format::{Clause, clauses};
use super::time::Instant;
use super::tree::{Expr, Id, Literal, Tree};
use super::types::Type;

/// Spans, times, patterns and formats that are written out and can't be read; lists and maps of several types.
pub(super) fn complaints(tree: &Tree, types: &[Type]) -> Vec<Complaint> {
    let mut found = Vec::new();
    let exempt = formatted(tree);
    for (id, node) in tree.nodes.iter().enumerate() {
        match &node.expr {
            Expr::Call { function, target, args } => found.extend(of_call(tree, function, *target, args)),
            Expr::List(items) if !exempt[id] => found.extend(of_list(tree, types, items)),
            Expr::Map(entries) if !exempt[id] => found.extend(of_map(tree, types, entries)),
            _ => {}
        }
        if let Expr::Call { function, target: Some(target), args } = &node.expr
            && function == "format"
        {
            found.extend(of_format(tree, types, id, *target, args));
        }
    }
    found
}

fn of_call(tree: &Tree, function: &str, target: Option<Id>, args: &[Id]) -> Option<Complaint> {
    let (offset, _) = match (function, target, args) {
        ("duration", None, [text]) => text_at(tree, *text).filter(|(_, text)| parse_duration(text).is_err()),
        ("timestamp", None, [text]) => text_at(tree, *text).filter(|(_, text)| Instant::parse(text).is_none()),
        ("matches", Some(_), [pattern]) | ("matches", None, [_, pattern]) => {
            text_at(tree, *pattern).filter(|(_, text)| super::patterns::compile(text).is_err())
        }
        _ => None,
    }?;
    Some(Complaint { offset, message: format!("invalid {function} argument") })
}

fn text_at(tree: &Tree, id: Id) -> Option<(usize, &str)> {
    match &tree.nodes[id].expr {
        Expr::Literal(Literal::String(text)) => Some((tree.nodes[id].offset, text)),
        _ => None,
    }
}

fn mismatch(tree: &Tree, at: Id, expected: &Type, found: &Type) -> Complaint {
    let message = format!("expected type '{}' but found '{}'", expected.shown(), found.shown());
    Complaint { offset: tree.nodes[at].offset, message }
}

/// The type of an item, which is inside where it may be absent.
fn item_type(types: &[Type], id: Id, optional: bool) -> &Type {
    if optional { types[id].unwrapped().0 } else { &types[id] }
}

fn of_list(tree: &Tree, types: &[Type], items: &[(Id, bool)]) -> Option<Complaint> {
    let (first, optional) = items.first()?;
    let expected = item_type(types, *first, *optional);
    let other = items.iter().find(|(item, optional)| item_type(types, *item, *optional) != expected);
    other.map(|(item, optional)| mismatch(tree, *item, expected, item_type(types, *item, *optional)))
}

fn of_map(tree: &Tree, types: &[Type], entries: &[(Id, Id, bool)]) -> Vec<Complaint> {
    let Some((key, value, optional)) = entries.first() else { return Vec::new() };
    let (keys, values) = (&types[*key], item_type(types, *value, *optional));
    let mut found = Vec::new();
    for (key, value, optional) in entries {
        if types[*key] != *keys {
            found.push(mismatch(tree, *key, keys, &types[*key]));
        }
        let ty = item_type(types, *value, *optional);
        if ty != values {
            found.push(mismatch(tree, *value, values, ty));
        }
    }
    found
}

/// A format that is written out, with the values that are written out for it.
fn of_format(tree: &Tree, types: &[Type], call: Id, target: Id, args: &[Id]) -> Option<Complaint> {
    let (_, pattern) = text_at(tree, target)?;
    let Expr::List(values) = &tree.nodes[*args.first()?].expr else { return None };
    let at = |id: Id, message: String| Some(Complaint { offset: tree.nodes[id].offset, message });
    let clauses = match clauses(pattern) {
        Ok(clauses) => clauses,
        Err(error) => return at(call, error.to_string()),
    };
    let mut count = 0;
    for clause in &clauses {
        let Clause::Value(kind, _) = clause else { continue };
        let Some((value, _)) = values.get(count) else { return at(call, format!("index {count} out of range")) };
        if let Some(wrong) = super::text_format::unfit_type(*kind, &types[*value]) {
            return at(*value, wrong);
        }
        count += 1;
    }
    if values.len() > count {
        let message = format!("too many arguments supplied to string.format (expected {count}, got {})", values.len());
        return at(call, message);
    }
    None
}

/// Which nodes stand inside a call of `format`, which takes values of all types.
fn formatted(tree: &Tree) -> Vec<bool> {
    let mut marked = vec![false; tree.nodes.len()];
    let mut open: Vec<Id> = Vec::new();
    for node in &tree.nodes {
        if let Expr::Call { function, target, args } = &node.expr
            && function == "format"
        {
            open.extend(target.iter().chain(args));
        }
    }
    while let Some(id) = open.pop() {
        if std::mem::replace(&mut marked[id], true) {
            continue;
        }
        match &tree.nodes[id].expr {
            Expr::Literal(_) | Expr::Ident(_) => {}
            Expr::Select { operand, .. } => open.push(*operand),
            Expr::Call { target, args, .. } => open.extend(target.iter().chain(args)),
            Expr::List(items) => open.extend(items.iter().map(|(item, _)| *item)),
            Expr::Map(entries) => open.extend(entries.iter().flat_map(|(key, value, _)| [*key, *value])),
            Expr::Struct { fields, .. } => open.extend(fields.iter().map(|field| field.1)),
            Expr::Loop(parts) => open.extend([parts.range, parts.init, parts.condition, parts.step, parts.result]),
        }
    }
    marked
}
