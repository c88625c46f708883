//! The functions that expressions may call: those of CEL, of its extensions, and of Kubernetes.
//!
//! A signature is written `target.arguments>result`, one letter each; the target is left out for functions that have
//! none. The letters are those of [`letter`]; `*` alone takes anything and gives something unknown.

use super::types::Type;

/// Names and signatures.
const FUNCTIONS: &[(&str, &str)] = &[
    ("!_", "B>B"),
    ("-_", "I>I D>D"),
    ("_%_", "II>I UU>U"),
    ("_&&_", "BB>B"),
    ("_||_", "BB>B"),
    ("_*_", "II>I UU>U DD>D"),
    ("_/_", "II>I UU>U DD>D"),
    ("_-_", "II>I UU>U DD>D TT>R TR>T RR>R"),
    ("_<_", "NUMBERS BB>B SS>B YY>B TT>B RR>B"),
    ("_<=_", "NUMBERS BB>B SS>B YY>B TT>B RR>B"),
    ("_>_", "NUMBERS BB>B SS>B YY>B TT>B RR>B"),
    ("_>=_", "NUMBERS BB>B SS>B YY>B TT>B RR>B"),
    ("add", "q.q>q q.I>q"),
    ("allowed", "*"),
    ("asApproximateFloat", "q.>D"),
    ("asInteger", "q.>I"),
    ("bool", "B>B S>B"),
    ("bytes", "Y>Y S>Y"),
    ("charAt", "S.I>S"),
    ("check", "*"),
    ("cidr", "S>c"),
    ("compareTo", "q.q>I v.v>I"),
    ("contains", "S.S>B"),
    ("containsCIDR", "c.S>B c.c>B"),
    ("containsIP", "c.S>B c.i>B"),
    ("distinct", "*"),
    ("double", "D>D I>D U>D S>D"),
    ("duration", "R>R S>R I>R"),
    ("dyn", "Z>Z"),
    ("endsWith", "S.S>B"),
    ("error", "*"),
    ("errored", "*"),
    ("escapeKey", "*"),
    ("family", "i.>I"),
    ("fieldSelector", "*"),
    ("find", "S.S>S"),
    ("findAll", "*"),
    ("first", "*"),
    ("flatten", "*"),
    ("format", "S.L>S"),
    ("format.named", "*"),
    ("getDate", "T.>I T.S>I"),
    ("getDayOfMonth", "T.>I T.S>I"),
    ("getDayOfWeek", "T.>I T.S>I"),
    ("getDayOfYear", "T.>I T.S>I"),
    ("getEscapedPath", "u.>S"),
    ("getFullYear", "T.>I T.S>I"),
    ("getHost", "u.>S"),
    ("getHostname", "u.>S"),
    ("getHours", "T.>I T.S>I R.>I"),
    ("getMilliseconds", "T.>I T.S>I R.>I"),
    ("getMinutes", "T.>I T.S>I R.>I"),
    ("getMonth", "T.>I T.S>I"),
    ("getPort", "u.>S"),
    ("getQuery", "*"),
    ("getScheme", "u.>S"),
    ("getSeconds", "T.>I T.S>I R.>I"),
    ("group", "*"),
    ("hasValue", "o.>B"),
    ("indexOf", "S.S>I S.SI>I L.Z>I"),
    ("int", "I>I U>I D>I S>I T>I R>I"),
    ("ip", "S>i c.>i"),
    ("ip.isCanonical", "S>B"),
    ("isCIDR", "S>B"),
    ("isGlobalUnicast", "i.>B"),
    ("isGreaterThan", "q.q>B v.v>B"),
    ("isIP", "S>B"),
    ("isInteger", "q.>B"),
    ("isLessThan", "q.q>B v.v>B"),
    ("isLinkLocalMulticast", "i.>B"),
    ("isLinkLocalUnicast", "i.>B"),
    ("isLoopback", "i.>B"),
    ("isQuantity", "S>B"),
    ("isSemver", "S>B SB>B"),
    ("isSorted", "L.>B"),
    ("isURL", "S>B"),
    ("isUnspecified", "i.>B"),
    ("join", "L.>S L.S>S"),
    ("jsonpatch.escapeKey", "S>S"),
    ("labelSelector", "*"),
    ("last", "*"),
    ("lastIndexOf", "S.S>I S.SI>I L.Z>I"),
    ("lists.range", "*"),
    ("lowerAscii", "S.>S"),
    ("major", "v.>I"),
    ("masked", "c.>c"),
    ("matches", "S.S>B SS>B"),
    ("max", "*"),
    ("min", "*"),
    ("minor", "v.>I"),
    ("name", "*"),
    ("namespace", "*"),
    ("optional.none", "*"),
    ("optional.of", "*"),
    ("optional.ofNonZeroValue", "*"),
    ("or", "*"),
    ("orValue", "*"),
    ("patch", "v.>I"),
    ("path", "*"),
    ("prefixLength", "c.>I"),
    ("quantity", "S>q"),
    ("reason", "*"),
    ("replace", "S.SS>S S.SSI>S"),
    ("resource", "*"),
    ("reverse", "*"),
    ("semver", "S>v SB>v"),
    ("serviceAccount", "*"),
    ("sets.contains", "LL>B"),
    ("sets.equivalent", "LL>B"),
    ("sets.intersects", "LL>B"),
    ("sign", "q.>I"),
    ("size", "S>I Y>I L>I M>I S.>I Y.>I L.>I M.>I"),
    ("slice", "*"),
    ("sort", "*"),
    ("split", "*"),
    ("startsWith", "S.S>B"),
    ("string", "B>S I>S U>S D>S S>S Y>S T>S R>S i>S c>S"),
    ("strings.quote", "S>S"),
    ("sub", "q.q>q q.I>q"),
    ("subresource", "*"),
    ("substring", "S.I>S S.II>S"),
    ("sum", "*"),
    ("timestamp", "T>T S>T I>T"),
    ("trim", "S.>S"),
    ("type", "*"),
    ("uint", "U>U I>U D>U S>U"),
    ("upperAscii", "S.>S"),
    ("url", "S>u"),
    ("validate", "*"),
    ("value", "*"),
];

/// Every pair of numbers may be compared.
const NUMBERS: &str = "II>B UU>B DD>B IU>B ID>B UI>B UD>B DI>B DU>B";

/// Names that look like calls and are macros, which bring names of their own.
const MACROS: &[&str] = &[
    "all",
    "exists",
    "existsOne",
    "exists_one",
    "filter",
    "map",
    "optFlatMap",
    "optMap",
    "sortBy",
    "transformList",
    "transformMap",
    "transformMapEntry",
];

/// What a call gives.
#[derive(Debug, PartialEq)]
pub(super) enum Outcome {
    /// No function has this name.
    Undeclared,
    /// No signature takes these arguments.
    NoOverload,
    /// A value of this type.
    Gives(Type),
}

/// Whether this name brings names of its own, so that its arguments can't be judged.
pub(super) fn is_macro(name: &str) -> bool {
    MACROS.contains(&name) || name.contains('@') || name.starts_with("format.")
}

/// What calling the function gives.
pub(super) fn call(name: &str, target: Option<&Type>, arguments: &[Type]) -> Outcome {
    let Some((_, signatures)) = FUNCTIONS.iter().find(|(known, _)| *known == name) else { return Outcome::Undeclared };
    let mut gives: Option<Type> = None;
    let sure = target.into_iter().chain(arguments).all(|ty| *ty != Type::Unknown);
    for signature in signatures.split(' ').flat_map(|s| if s == "NUMBERS" { NUMBERS } else { s }.split(' ')) {
        let Some((takes, result)) = signature.split_once('>') else { return Outcome::Gives(Type::Unknown) };
        let (on, takes) = takes.split_once('.').map_or((None, takes), |(on, takes)| (Some(on), takes));
        let target_fits = match (on, target) {
            (Some(letter), Some(ty)) => fits(letter, ty),
            (None, None) => true,
            _ => false,
        };
        let arguments_fit =
            takes.len() == arguments.len() && (0..takes.len()).all(|i| fits(&takes[i..=i], &arguments[i]));
        if target_fits && arguments_fit {
            let result = letter(result);
            gives = Some(match gives {
                Some(before) if before != result => Type::Dyn,
                _ => result,
            });
        }
    }
    match gives {
        None => Outcome::NoOverload,
        Some(Type::Dyn) if !sure => Outcome::Gives(Type::Unknown),
        Some(ty) => Outcome::Gives(ty),
    }
}

fn fits(symbol: &str, ty: &Type) -> bool {
    match (symbol, ty) {
        ("Z", _) => true,
        ("L", Type::List(_)) | ("M", Type::Map(..)) | ("o", Type::Optional(_)) => true,
        (_, open) if open.is_open() => true,
        ("L" | "M" | "o", _) => false,
        (symbol, ty) => letter(symbol) == *ty,
    }
}

fn letter(symbol: &str) -> Type {
    match symbol {
        "B" => Type::Bool,
        "I" => Type::Int,
        "U" => Type::Uint,
        "D" => Type::Double,
        "S" => Type::String,
        "Y" => Type::Bytes,
        "T" => Type::Timestamp,
        "R" => Type::Duration,
        "Z" => Type::Dyn,
        "q" => Type::named("kubernetes.Quantity"),
        "u" => Type::named("kubernetes.URL"),
        "i" => Type::named("net.IP"),
        "c" => Type::named("net.CIDR"),
        "v" => Type::named("kubernetes.Semver"),
        _ => Type::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_resolved_by_its_arguments() {
        for (name, target, arguments, expected) in [
            ("size", None, vec![Type::String], Outcome::Gives(Type::Int)),
            ("size", None, vec![Type::Int], Outcome::NoOverload),
            ("_+_x", None, vec![], Outcome::Undeclared),
            ("_<_", None, vec![Type::Int, Type::Double], Outcome::Gives(Type::Bool)),
            ("_*_", None, vec![Type::Dyn, Type::Dyn], Outcome::Gives(Type::Dyn)),
            ("_*_", None, vec![Type::Unknown, Type::Dyn], Outcome::Gives(Type::Unknown)),
            ("hasValue", Some(Type::String), vec![], Outcome::NoOverload),
        ] {
            assert_eq!(call(name, target.as_ref(), &arguments), expected, "{name}");
        }
    }
}
