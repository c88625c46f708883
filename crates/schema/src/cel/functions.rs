//! The functions that expressions may call: their signatures.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use super::types::Type;

/// Name, overload, style (`member` or `global`), arguments, result. Capital letters stand for any type.
const TABLE: &str = include_str!("../../facts/cel-functions.tsv");

/// A function and its overloads, in the order in which they are tried.
#[derive(Debug)]
pub(super) struct Function {
    pub(super) name: &'static str,
    pub(super) overloads: Vec<Overload>,
}

/// One signature. A target is its first argument.
#[derive(Debug)]
pub(super) struct Overload {
    pub(super) id: &'static str,
    pub(super) member: bool,
    pub(super) args: Vec<Type>,
    pub(super) result: Type,
    /// How many types are open, numbered from 0.
    pub(super) params: usize,
}

/// The function of this name.
pub(super) fn function(name: &str) -> Option<&'static Function> {
    static FUNCTIONS: OnceLock<HashMap<&'static str, Function>> = OnceLock::new();
    FUNCTIONS.get_or_init(read).get(name)
}

fn read() -> HashMap<&'static str, Function> {
    let mut functions: HashMap<&'static str, Function> = HashMap::new();
    for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
        let mut columns = line.split('\t');
        let mut next = || columns.next().unwrap_or_default();
        let (name, id, style, args, result) = (next(), next(), next(), next(), next());
        let mut letters = Vec::new();
        let args: Vec<Type> =
            args.split("; ").filter(|arg| !arg.is_empty()).map(|arg| type_of(arg, &mut letters)).collect();
        let result = type_of(result, &mut letters);
        let overload = Overload { id, member: style == "member", args, result, params: letters.len() };
        functions.entry(name).or_insert_with(|| Function { name, overloads: Vec::new() }).overloads.push(overload);
    }
    functions
}

fn type_of(text: &'static str, letters: &mut Vec<&'static str>) -> Type {
    if let Some((outer, inner)) = text.strip_suffix(')').and_then(|text| text.split_once('(')) {
        return match outer {
            "list" => Type::list(type_of(inner, letters)),
            "optional_type" => Type::optional(type_of(inner, letters)),
            "type" => Type::Type(Arc::new(type_of(inner, letters))),
            _ => {
                let (key, value) = inner.split_once(", ").unwrap_or((inner, "dyn"));
                let key = type_of(key, letters);
                Type::map(key, type_of(value, letters))
            }
        };
    }
    match text {
        "dyn" => Type::Dyn,
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "timestamp" => Type::Timestamp,
        "duration" => Type::Duration,
        letter if letter.len() == 1 => {
            let place = letters.iter().position(|known| *known == letter).unwrap_or_else(|| {
                letters.push(letter);
                letters.len() - 1
            });
            Type::Param(place)
        }
        name => Type::Named(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_read() {
        let overload = |name: &str, at: usize| {
            let overload = &function(name).expect("declared").overloads[at];
            let args: Vec<_> = overload.args.iter().map(ToString::to_string).collect();
            format!("{} {} {}", overload.member, args.join(" "), overload.result)
        };
        assert_eq!(overload("@in", 1), "false _var0 map(_var0, _var1) bool");
        assert_eq!(overload("getQuery", 0), "true kubernetes.URL map(string, list(string))");
        assert_eq!(overload("optional.none", 0), "false  optional_type(_var0)");
        assert!(function("no").is_none());
    }
}
