//! Functions of texts. Places in them are counted in characters.

use super::EvalError;
use super::calls::{Evaluated, Run, unfit};
use super::value::Value;

/// The longest text that is made of others. What costs little must not take much memory.
pub(super) const TEXT_BYTES_MAX: usize = 16 * 1024 * 1024;

pub(super) fn run(name: &str) -> Option<Run> {
    Some(match name {
        "contains" => contains,
        "startsWith" => starts_with,
        "endsWith" => ends_with,
        "charAt" => char_at,
        "indexOf" => index_of,
        "lastIndexOf" => last_index_of,
        "lowerAscii" => lower,
        "upperAscii" => upper,
        "replace" => replace,
        "split" => split,
        "substring" => substring,
        "trim" => trim,
        "join" => join,
        "strings.quote" => quote,
        "format" => super::text_format::format,
        "jsonpatch.escapeKey" => escape_key,
        _ => return None,
    })
}

fn failed<'a>(message: String) -> Evaluated<'a> {
    Err(EvalError::failed(message))
}

fn number<'a>(place: usize) -> Evaluated<'a> {
    Ok(Value::Int(i64::try_from(place).unwrap_or(i64::MAX)))
}

fn contains<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    match args {
        [Value::String(text), Value::String(part)] => Ok(Value::Bool(text.as_str().contains(part.as_str()))),
        _ => unfit(),
    }
}

fn starts_with<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    match args {
        [Value::String(text), Value::String(part)] => Ok(Value::Bool(text.as_str().starts_with(part.as_str()))),
        _ => unfit(),
    }
}

fn ends_with<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    match args {
        [Value::String(text), Value::String(part)] => Ok(Value::Bool(text.as_str().ends_with(part.as_str()))),
        _ => unfit(),
    }
}

fn char_at<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    let [Value::String(text), Value::Int(place)] = args else { return unfit() };
    let letters: Vec<char> = text.as_str().chars().collect();
    match usize::try_from(*place) {
        Ok(at) if at < letters.len() => Ok(Value::text(letters[at].to_string())),
        Ok(at) if at == letters.len() => Ok(Value::text("")),
        _ => failed(format!("index out of range: {place}")),
    }
}

fn index_of<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    let (text, part, from) = match args {
        [Value::List(list), item] => return super::lists::index_of(list, item, false),
        [Value::String(text), Value::String(part)] => (text, part, 0),
        [Value::String(text), Value::String(part), Value::Int(from)] => (text, part, *from),
        _ => return unfit(),
    };
    if part.as_str().is_empty() {
        return Ok(Value::Int(from));
    }
    let Ok(start) = usize::try_from(from) else { return failed(format!("index out of range: {from}")) };
    let (text, part): (Vec<char>, Vec<char>) = (text.as_str().chars().collect(), part.as_str().chars().collect());
    let found = text.windows(part.len()).enumerate().skip(start).find(|(_, window)| *window == part.as_slice());
    found.map_or(Ok(Value::Int(-1)), |(place, _)| number(place))
}

fn last_index_of<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    let (text, part, from) = match args {
        [Value::List(list), item] => return super::lists::index_of(list, item, true),
        [Value::String(text), Value::String(part)] => (text, part, None),
        [Value::String(text), Value::String(part), Value::Int(from)] => (text, part, Some(*from)),
        _ => return unfit(),
    };
    let (text, part): (Vec<char>, Vec<char>) = (text.as_str().chars().collect(), part.as_str().chars().collect());
    if part.is_empty() {
        return from.map_or_else(|| number(text.len()), |from| Ok(Value::Int(from)));
    }
    if text.len() < part.len() && from.is_none() {
        return Ok(Value::Int(-1));
    }
    let last = from.unwrap_or_else(|| i64::try_from(text.len()).unwrap_or(i64::MAX) - 1);
    let Ok(last) = usize::try_from(last) else { return failed(format!("index out of range: {last}")) };
    if last >= text.len() {
        return Ok(Value::Int(-1));
    }
    let mut found =
        text.windows(part.len()).enumerate().take(last + 1).filter(|(_, window)| *window == part.as_slice());
    found.next_back().map_or(Ok(Value::Int(-1)), |(place, _)| number(place))
}

fn lower<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    match args {
        [Value::String(text)] => Ok(Value::text(text.as_str().to_ascii_lowercase())),
        _ => unfit(),
    }
}

fn upper<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    match args {
        [Value::String(text)] => Ok(Value::text(text.as_str().to_ascii_uppercase())),
        _ => unfit(),
    }
}

fn replace<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    let (text, old, new, times) = match args {
        [Value::String(text), Value::String(old), Value::String(new)] => (text, old, new, -1),
        [Value::String(text), Value::String(old), Value::String(new), Value::Int(times)] => (text, old, new, *times),
        _ => return unfit(),
    };
    let (text_len, new_len) = (text.as_str().len(), new.as_str().len());
    if (text_len + 1).saturating_mul(new_len) > TEXT_BYTES_MAX {
        let places = text.as_str().matches(old.as_str()).count();
        if places.saturating_mul(new_len) > TEXT_BYTES_MAX {
            return Err(EvalError::CostExceeded);
        }
    }
    Ok(Value::text(match usize::try_from(times) {
        Ok(times) => text.as_str().replacen(old.as_str(), new.as_str(), times),
        Err(_) => text.as_str().replace(old.as_str(), new.as_str()),
    }))
}

fn split<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    let (text, by, most) = match args {
        [Value::String(text), Value::String(by)] => (text.as_str(), by.as_str(), -1),
        [Value::String(text), Value::String(by), Value::Int(most)] => (text.as_str(), by.as_str(), *most),
        _ => return unfit(),
    };
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let parts: Vec<&str> = match (most, by) {
        (0, _) => Vec::new(),
        (_, "") => {
            let mut rest = text;
            let mut parts = Vec::new();
            while let Some(letter) = rest.chars().next() {
                if parts.len() + 1 == most {
                    break;
                }
                let (first, after) = rest.split_at(letter.len_utf8());
                parts.push(first);
                rest = after;
            }
            parts.extend(Some(rest).filter(|rest| !rest.is_empty()));
            parts
        }
        _ => text.splitn(most, by).collect(),
    };
    Ok(Value::list(parts.into_iter().map(Value::text).collect()))
}

fn substring<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    let (text, start, end) = match args {
        [Value::String(text), Value::Int(start)] => (text, *start, None),
        [Value::String(text), Value::Int(start), Value::Int(end)] => (text, *start, Some(*end)),
        _ => return unfit(),
    };
    let letters: Vec<char> = text.as_str().chars().collect();
    let len = i64::try_from(letters.len()).unwrap_or(i64::MAX);
    if let Some(end) = end.filter(|end| start > *end) {
        return failed(format!("invalid substring range. start: {start}, end: {end}"));
    }
    let end = end.unwrap_or(len);
    let place = |at: i64| usize::try_from(at).ok().filter(|at| *at <= letters.len());
    match (place(start), place(end)) {
        (None, _) => failed(format!("index out of range: {start}")),
        (_, None) => failed(format!("index out of range: {end}")),
        (Some(start), Some(end)) => Ok(Value::text(letters[start.min(end)..end].iter().collect::<String>())),
    }
}

fn trim<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    match args {
        [Value::String(text)] => Ok(Value::text(text.as_str().trim())),
        _ => unfit(),
    }
}

fn join<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    let (list, by) = match args {
        [Value::List(list)] => (list, ""),
        [Value::List(list), Value::String(by)] => (list, by.as_str()),
        _ => return unfit(),
    };
    let mut joined = String::new();
    for place in 0..list.len() {
        if place > 0 {
            joined.push_str(by);
        }
        if joined.len() > TEXT_BYTES_MAX {
            return Err(EvalError::CostExceeded);
        }
        let item = list.get(place)?;
        match item.as_str() {
            Some(text) => joined.push_str(text),
            None => return failed(format!("join: invalid input: {item}")),
        }
    }
    Ok(Value::text(joined))
}

fn quote<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    match args {
        [Value::String(text)] => Ok(Value::text(quoted(text.as_str()))),
        _ => unfit(),
    }
}

/// A text in quotes, as an expression would write it.
pub(super) fn quoted(text: &str) -> String {
    let mut found = String::from("\"");
    for letter in text.chars() {
        match letter {
            '\x07' => found.push_str("\\a"),
            '\x08' => found.push_str("\\b"),
            '\x0c' => found.push_str("\\f"),
            '\n' => found.push_str("\\n"),
            '\r' => found.push_str("\\r"),
            '\t' => found.push_str("\\t"),
            '\x0b' => found.push_str("\\v"),
            '\\' => found.push_str("\\\\"),
            '"' => found.push_str("\\\""),
            other => found.push(other),
        }
    }
    found.push('"');
    found
}

fn escape_key<'a>(args: &[Value<'a>]) -> Evaluated<'a> {
    match args {
        [Value::String(text)] => Ok(Value::text(text.as_str().replace('~', "~0").replace('/', "~1"))),
        _ => unfit(),
    }
}
