//! Field selectors: which objects a user means, by a few of their fields.

use std::collections::BTreeMap;
use std::fmt;

/// Something whose fields can be asked for by path, such as `metadata.name`.
pub trait Fields {
    /// The value of the field, if it has one. A missing field counts as empty.
    fn get(&self, path: &str) -> Option<&str>;
}

impl Fields for BTreeMap<String, String> {
    fn get(&self, path: &str) -> Option<&str> {
        Self::get(self, path).map(String::as_str)
    }
}

impl<K: AsRef<str>, V: AsRef<str>> Fields for [(K, V)] {
    fn get(&self, path: &str) -> Option<&str> {
        self.iter().find(|(candidate, _)| candidate.as_ref() == path).map(|(_, value)| value.as_ref())
    }
}

/// All of some requirements.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Selector {
    requirements: Vec<Requirement>,
}

/// One condition on one field.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Requirement {
    /// The path of the field.
    pub field: String,
    /// How it relates to the value.
    pub operator: Operator,
    /// The value, without escapes.
    pub value: String,
}

/// How a field relates to a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operator {
    /// `=` and `==`
    Equals,
    /// `!=`
    NotEquals,
}

impl Selector {
    /// Selects every object.
    pub const fn everything() -> Self {
        Self { requirements: Vec::new() }
    }

    /// Selects the objects whose field has this value.
    pub fn equals(field: impl Into<String>, value: impl Into<String>) -> Self {
        let requirement = Requirement { field: field.into(), operator: Operator::Equals, value: value.into() };
        Self { requirements: vec![requirement] }
    }

    /// Reads the form that stands in queries: `metadata.name=a,status.phase!=Running`. In values a backslash keeps the
    /// next comma, equals sign or backslash from having its meaning.
    pub fn parse(text: &str) -> Result<Self, FieldSelectorError> {
        let mut terms = split_terms(text);
        terms.sort_unstable();
        let mut requirements = Vec::new();
        for term in terms.into_iter().filter(|term| !term.is_empty()) {
            let Some((field, operator, value)) = split_term(term) else {
                return Err(FieldSelectorError::NotATerm { selector: text.to_owned(), term: term.to_owned() });
            };
            let value = unescape(value)?;
            // Nothing on both sides asks for nothing, as in `transform`.
            if !(field.is_empty() && value.is_empty()) {
                requirements.push(Requirement { field: field.to_owned(), operator, value });
            }
        }
        Ok(Self { requirements })
    }

    /// The same selector with each field and value passed through `change`, which may rename a field or refuse it. A
    /// requirement whose field and value both become empty is dropped.
    pub fn transform<E>(&self, mut change: impl FnMut(&str, &str) -> Result<(String, String), E>) -> Result<Self, E> {
        let mut requirements = Vec::with_capacity(self.requirements.len());
        for requirement in &self.requirements {
            let (field, value) = change(&requirement.field, &requirement.value)?;
            if !(field.is_empty() && value.is_empty()) {
                requirements.push(Requirement { field, operator: requirement.operator, value });
            }
        }
        Ok(Self { requirements })
    }

    /// Whether an object with these fields is meant.
    pub fn matches(&self, fields: &(impl Fields + ?Sized)) -> bool {
        self.requirements.iter().all(|requirement| requirement.matches(fields))
    }

    /// Whether every object is meant.
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    /// What is asked for.
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// The value that the field must have, if there is one: for going straight to an object by its name.
    pub fn exact_match(&self, field: &str) -> Option<&str> {
        let asks = |requirement: &&Requirement| requirement.operator == Operator::Equals && requirement.field == field;
        self.requirements.iter().find(asks).map(|requirement| requirement.value.as_str())
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.requirements.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(formatter, "{comma}{requirement}")?;
        }
        Ok(())
    }
}

impl Requirement {
    /// Whether an object with these fields meets the condition.
    pub fn matches(&self, fields: &(impl Fields + ?Sized)) -> bool {
        let equal = fields.get(&self.field).unwrap_or_default() == self.value;
        match self.operator {
            Operator::Equals => equal,
            Operator::NotEquals => !equal,
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operator = match self.operator {
            Operator::Equals => "=",
            Operator::NotEquals => "!=",
        };
        write!(formatter, "{}{operator}{}", self.field, escape(&self.value))
    }
}

/// Why a text is no field selector. The words are those of Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FieldSelectorError {
    /// A part without an operator.
    NotATerm {
        /// The whole text.
        selector: String,
        /// The part.
        term: String,
    },
    /// A backslash before something that needs none.
    Escape {
        /// The backslash and what follows.
        sequence: String,
    },
    /// A comma or an equals sign in a value, without a backslash.
    Unescaped(char),
}

impl fmt::Display for FieldSelectorError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotATerm { selector, term } => {
                write!(formatter, "invalid selector: '{selector}'; can't understand '{term}'")
            }
            Self::Escape { sequence } => {
                write!(formatter, "invalid field selector: invalid escape sequence: {sequence}")
            }
            // Upstream prints the number of the character.
            Self::Unescaped(character) => {
                write!(formatter, "invalid field selector: unescaped character in value: {}", u32::from(*character))
            }
        }
    }
}

impl std::error::Error for FieldSelectorError {}

/// A value with its backslashes, ready to stand in a selector.
pub fn escape(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for character in value.chars() {
        if matches!(character, '\\' | ',' | '=') {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

fn unescape(text: &str) -> Result<String, FieldSelectorError> {
    let mut value = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some(escaped @ ('\\' | ',' | '=')) => value.push(escaped),
                Some(other) => return Err(FieldSelectorError::Escape { sequence: format!("\\{other}") }),
                None => return Err(FieldSelectorError::Escape { sequence: "\\".to_owned() }),
            },
            ',' | '=' => return Err(FieldSelectorError::Unescaped(character)),
            _ => value.push(character),
        }
    }
    Ok(value)
}

/// Cuts at commas that have no backslash before them.
fn split_terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let mut start = 0;
    let mut escaped = false;
    for (position, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b',' => {
                terms.push(&text[start..position]);
                start = position + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

/// Cuts at the first operator. Fields have no escapes.
fn split_term(term: &str) -> Option<(&str, Operator, &str)> {
    let position = term.char_indices().map(|(position, _)| position).find(|position| {
        let rest = &term[*position..];
        rest.starts_with("!=") || rest.starts_with('=')
    })?;
    let (field, rest) = term.split_at(position);
    let (operator, value) = match rest.strip_prefix("!=") {
        Some(value) => (Operator::NotEquals, value),
        None => (Operator::Equals, rest.strip_prefix("==").or_else(|| rest.strip_prefix('='))?),
    };
    Some((field, operator, value))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(text: &str) -> String {
        Selector::parse(text).map_or_else(|error| error.to_string(), |selector| format!("parsed as {selector}"))
    }

    #[test]
    fn field_selectors_are_read_as_kubernetes_reads_them() {
        for (text, expected) in [
            ("", "parsed as "),
            (",", "parsed as "),
            ("a=b", "parsed as a=b"),
            ("a==b", "parsed as a=b"),
            ("a!=b", "parsed as a!=b"),
            ("z=1,a=2", "parsed as a=2,z=1"),
            ("a=b,", "parsed as a=b"),
            ("a=", "parsed as a="),
            ("=b", "parsed as =b"),
            ("=", "parsed as "),
            (r"a=b\,c", r"parsed as a=b\,c"),
            (r"a=\\\=", r"parsed as a=\\\="),
            ("a = b", "parsed as a = b"),
            ("metadata.name", "invalid selector: 'metadata.name'; can't understand 'metadata.name'"),
            ("a=b,c", "invalid selector: 'a=b,c'; can't understand 'c'"),
            ("a=b=c", "invalid field selector: unescaped character in value: 61"),
            ("a===b", "invalid field selector: unescaped character in value: 61"),
            (r"a=b\c", r"invalid field selector: invalid escape sequence: \c"),
            (r"a=b\", r"invalid field selector: invalid escape sequence: \"),
        ] {
            assert_eq!(message(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_missing_field_counts_as_empty() {
        let fields = [("metadata.name", "a"), ("status.phase", "Running")];
        for (text, expected) in [
            ("metadata.name=a", true),
            ("metadata.name=a,status.phase!=Running", false),
            ("spec.nodeName=", true),
            ("spec.nodeName!=", false),
            ("", true),
        ] {
            assert_eq!(Selector::parse(text).unwrap().matches(fields.as_slice()), expected, "{text:?}");
        }
        let selector = Selector::parse("a!=1,b=2").unwrap();
        assert_eq!((selector.exact_match("a"), selector.exact_match("b")), (None, Some("2")));
    }

    #[test]
    fn a_server_can_rename_drop_and_refuse_fields() {
        let rename = |field: &str, value: &str| match field {
            "name" => Ok(("metadata.name".to_owned(), value.to_owned())),
            "any" => Ok((String::new(), String::new())),
            _ => Err(format!("field label not supported: {field}")),
        };
        let transformed = |text: &str| Selector::parse(text).unwrap().transform(rename).map(|it| it.to_string());
        assert_eq!(transformed("name!=a,any=x"), Ok("metadata.name!=a".to_owned()));
        assert_eq!(transformed("bogus=1"), Err("field label not supported: bogus".to_owned()));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "[a-c=!,\\\\é]{0,16}") {
            let _ = Selector::parse(&text);
        }

        #[test]
        fn any_value_survives_printing_and_reading(value in "\\PC{0,16}") {
            let selector = Selector::equals("metadata.name", value);
            prop_assert_eq!(Selector::parse(&selector.to_string()).unwrap(), selector);
        }
    }
}
