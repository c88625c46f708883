//! Paths to values in an object, as printer columns name them: `.status.conditions[?(@.type=="Ready")].status`.

use serde_json::Value;

/// Most values that one step may find: a path with many wildcards ends instead of growing.
const FOUND_MAX: usize = 10_000;

/// A path that was understood.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct JsonPath {
    steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Field(String),
    /// All values of an object or a list.
    All,
    /// All values at any depth, this one first.
    Everything,
    /// One item; negative counts from the end.
    Index(i64),
    /// Items from the first to before the second.
    Slice(Option<i64>, Option<i64>, i64),
    Filter(Box<Filter>),
    Union(Vec<JsonPath>),
}

#[derive(Debug, Clone, PartialEq)]
struct Filter {
    left: Operand,
    test: Option<(Comparison, Operand)>,
}

#[derive(Debug, Clone, PartialEq)]
enum Operand {
    Path(JsonPath),
    Literal(Value),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

const COMPARISONS: &[(&str, Comparison)] = &[
    ("==", Comparison::Equal),
    ("!=", Comparison::NotEqual),
    ("<=", Comparison::LessOrEqual),
    (">=", Comparison::GreaterOrEqual),
    ("<", Comparison::Less),
    (">", Comparison::Greater),
];

impl JsonPath {
    /// Reads a path; None if it can't be understood.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (mut steps, mut rest) = (Vec::new(), text.trim());
        rest = rest.strip_prefix(['$', '@']).unwrap_or(rest);
        while let Some(first) = rest.chars().next() {
            rest = match first {
                '.' if rest.starts_with("..") => {
                    steps.push(Step::Everything);
                    let after = &rest[2..];
                    if after.starts_with('[') { after } else { Self::field(after, &mut steps)? }
                }
                '.' if rest.starts_with(".[") => &rest[1..],
                '.' => Self::field(&rest[1..], &mut steps)?,
                '[' => {
                    let end = closing(rest)?;
                    steps.push(subscript(rest[1..end].trim())?);
                    &rest[end + 1..]
                }
                _ if steps.is_empty() => Self::field(rest, &mut steps)?,
                _ => return None,
            };
        }
        Some(Self { steps })
    }

    /// The first value that the path leads to.
    pub(super) fn first<'a>(&self, object: &'a Value) -> Option<&'a Value> {
        self.all(object).into_iter().next()
    }

    fn all<'a>(&self, object: &'a Value) -> Vec<&'a Value> {
        let mut found = vec![object];
        for step in &self.steps {
            let mut next = Vec::new();
            for value in found {
                step.follow(value, &mut next);
                next.truncate(FOUND_MAX);
            }
            found = next;
        }
        found
    }

    /// Reads the name of a field; a backslash takes the meaning from what follows it.
    fn field<'t>(text: &'t str, steps: &mut Vec<Step>) -> Option<&'t str> {
        let mut name = String::new();
        let mut letters = text.char_indices();
        let mut end = text.len();
        while let Some((at, letter)) = letters.next() {
            match letter {
                '\\' => name.push(letters.next()?.1),
                '.' | '[' | ']' | ' ' | ',' | '{' | '}' => {
                    end = at;
                    break;
                }
                other => name.push(other),
            }
        }
        match name.as_str() {
            "" => return if text.is_empty() && steps.is_empty() { Some("") } else { None },
            "*" => steps.push(Step::All),
            _ => steps.push(Step::Field(name)),
        }
        Some(&text[end..])
    }
}

impl Step {
    fn follow<'a>(&self, value: &'a Value, found: &mut Vec<&'a Value>) {
        match self {
            Self::Field(name) => found.extend(value.get(name)),
            Self::All => found.extend(children(value)),
            Self::Everything => everything(value, found),
            Self::Index(index) => {
                found.extend(value.as_array().and_then(|items| items.get(place(*index, items.len())?)))
            }
            Self::Slice(from, to, step) => found.extend(slice(value, *from, *to, *step)),
            Self::Filter(filter) => {
                let items = value.as_array().into_iter().flatten();
                found.extend(items.filter(|item| filter.takes(item)));
            }
            Self::Union(paths) => paths.iter().for_each(|path| found.extend(path.all(value))),
        }
    }
}

impl Filter {
    fn takes(&self, item: &Value) -> bool {
        let left = self.left.value(item);
        match &self.test {
            None => left.is_some(),
            Some((comparison, right)) => match (left, right.value(item)) {
                (Some(left), Some(right)) => comparison.holds(left, right),
                _ => false,
            },
        }
    }
}

impl Operand {
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let quoted = |quote: char| text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
        if let Some(inner) = quoted('"').or_else(|| quoted('\'')) {
            return Some(Self::Literal(inner.into()));
        }
        if text.starts_with(['@', '$', '.']) {
            return JsonPath::parse(text).map(Self::Path);
        }
        serde_json::from_str::<Value>(text).ok().filter(|literal| !literal.is_object()).map(Self::Literal)
    }

    fn value<'a>(&'a self, item: &'a Value) -> Option<&'a Value> {
        match self {
            Self::Path(path) => path.first(item),
            Self::Literal(literal) => Some(literal),
        }
    }
}

impl Comparison {
    fn holds(self, left: &Value, right: &Value) -> bool {
        let order = match (left, right) {
            (Value::Number(a), Value::Number(b)) => a.as_f64().partial_cmp(&b.as_f64()),
            (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
            _ => None,
        };
        let equal = order.map_or(left == right, |order| order.is_eq());
        match self {
            Self::Equal => equal,
            Self::NotEqual => !equal,
            Self::Less => order.is_some_and(|order| order.is_lt()),
            Self::LessOrEqual => order.is_some_and(|order| order.is_le()),
            Self::Greater => order.is_some_and(|order| order.is_gt()),
            Self::GreaterOrEqual => order.is_some_and(|order| order.is_ge()),
        }
    }
}

/// Where the bracket at the start is closed.
fn closing(text: &str) -> Option<usize> {
    let (mut depth, mut quote) = (0_usize, None);
    for (at, letter) in text.char_indices() {
        match (quote, letter) {
            (Some(open), letter) if letter == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(letter),
            (None, '[') => depth += 1,
            (None, ']') if depth == 1 => return Some(at),
            (None, ']') => depth -= 1,
            (None, _) => {}
        }
    }
    None
}

/// What stands between brackets.
fn subscript(text: &str) -> Option<Step> {
    if text == "*" {
        return Some(Step::All);
    }
    if let Some(filter) = text.strip_prefix("?(").and_then(|rest| rest.strip_suffix(')')) {
        return filter_step(filter);
    }
    let parts = split_outside_quotes(text);
    if parts.len() > 1 {
        let paths = parts.iter().map(|part| Some(JsonPath { steps: vec![subscript(part.trim())?] }));
        return Some(Step::Union(paths.collect::<Option<_>>()?));
    }
    if let Some(name) = text.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')) {
        return Some(Step::Field(name.to_owned()));
    }
    if let Some((from, to)) = text.split_once(':') {
        let (to, step) = to.split_once(':').unwrap_or((to, ""));
        let bound = |text: &str| if text.is_empty() { Some(None) } else { text.parse().ok().map(Some) };
        return Some(Step::Slice(bound(from)?, bound(to)?, bound(step)?.unwrap_or(1)));
    }
    text.parse().ok().map(Step::Index)
}

fn filter_step(text: &str) -> Option<Step> {
    let found = (0..text.len()).filter(|at| text.is_char_boundary(*at) && !inside_quotes(text, *at)).find_map(|at| {
        let (sign, comparison) = COMPARISONS.iter().find(|(sign, _)| text[at..].starts_with(sign))?;
        Some((at, sign.len(), *comparison))
    });
    let filter = match found {
        Some((at, length, comparison)) => Filter {
            left: Operand::parse(&text[..at])?,
            test: Some((comparison, Operand::parse(&text[at + length..])?)),
        },
        None => Filter { left: Operand::parse(text)?, test: None },
    };
    Some(Step::Filter(Box::new(filter)))
}

fn inside_quotes(text: &str, at: usize) -> bool {
    let mut quote = None;
    for letter in text[..at].chars() {
        match quote {
            Some(open) if letter == open => quote = None,
            None if matches!(letter, '\'' | '"') => quote = Some(letter),
            _ => {}
        }
    }
    quote.is_some()
}

fn split_outside_quotes(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = 0;
    for (at, _) in text.match_indices(',').filter(|(at, _)| !inside_quotes(text, *at)) {
        parts.push(&text[start..at]);
        start = at + 1;
    }
    parts.push(&text[start..]);
    parts
}

fn children(value: &Value) -> Box<dyn Iterator<Item = &Value> + '_> {
    match value {
        Value::Array(items) => Box::new(items.iter()),
        Value::Object(fields) => Box::new(fields.values()),
        _ => Box::new(std::iter::empty()),
    }
}

fn everything<'a>(value: &'a Value, found: &mut Vec<&'a Value>) {
    if found.len() < FOUND_MAX {
        found.push(value);
        children(value).for_each(|child| everything(child, found));
    }
}

fn place(index: i64, length: usize) -> Option<usize> {
    usize::try_from(if index < 0 { index + i64::try_from(length).ok()? } else { index }).ok()
}

fn slice(value: &Value, from: Option<i64>, to: Option<i64>, step: i64) -> impl Iterator<Item = &Value> {
    let items = value.as_array().map_or(&[] as &[Value], |items| items);
    let bound = |index: i64| place(index, items.len()).unwrap_or(0).min(items.len());
    let (from, to) = (bound(from.unwrap_or(0)), to.map_or(items.len(), bound));
    let step = usize::try_from(step).unwrap_or(1).max(1);
    items.get(from..to).unwrap_or(&[]).iter().step_by(step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_path_leads_to_a_value() {
        let object = json!({
            "metadata": {"annotations": {"a.b/c": "x"}},
            "spec": {"ports": [{"name": "a", "port": 1}, {"name": "b", "port": 2}], "n": 3},
            "status": {"conditions": [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]},
        });
        for (path, expected) in [
            (".spec.n", Some(json!(3))),
            (".spec.missing", None),
            (".metadata.annotations.a\\.b/c", Some(json!("x"))),
            (".metadata.annotations['a.b/c']", Some(json!("x"))),
            (".spec.ports[1].name", Some(json!("b"))),
            (".spec.ports[-1].port", Some(json!(2))),
            (".spec.ports[9]", None),
            (".spec.ports[*].port", Some(json!(1))),
            (".spec.ports[1:].port", Some(json!(2))),
            (".status.conditions[?(@.type==\"Ready\")].status", Some(json!("True"))),
            (".status.conditions[?(@.type=='Gone')].status", None),
            (".spec.ports[?(@.port>1)].name", Some(json!("b"))),
            ("..port", Some(json!(1))),
        ] {
            let found = JsonPath::parse(path).unwrap_or_else(|| panic!("{path} is a path"));
            assert_eq!(found.first(&object), expected.as_ref(), "{path}");
        }
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for text in [".spec[", ".spec.", ".a[x]", ".a[?(@.b==)]"] {
            assert_eq!(JsonPath::parse(text), None, "{text}");
        }
    }
}
