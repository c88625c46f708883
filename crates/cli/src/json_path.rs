//! JSONPath templates in kubectl's dialect: text, `{.paths[*]}`, `{range}` … `{end}`, filters, unions.

mod follow;
mod parse;

use serde_json::Value;

use crate::go;

/// A template that was understood.
#[derive(Debug, Clone, PartialEq)]
pub struct Template {
    parts: Vec<Part>,
    source: String,
}

/// A part of a template.
#[derive(Debug, Clone, PartialEq)]
enum Part {
    /// As it is.
    Text(String),
    /// The steps between braces.
    Steps(Vec<Step>),
    /// Once for each value that the steps lead to.
    Range(Vec<Step>, Vec<Part>),
}

/// One step from values to others.
#[derive(Debug, Clone, PartialEq)]
enum Step {
    Text(String),
    Literal(Value),
    Field(String),
    /// All values of an object or a list.
    All,
    /// This value and everything below it that has values of its own.
    Everything,
    Slice(Slice),
    Filter(Box<Filter>),
    Union(Vec<Vec<Step>>),
}

/// Items of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Slice {
    from: Option<i64>,
    to: Option<i64>,
    step: Option<i64>,
    /// Only one item was named.
    single: bool,
}

#[derive(Debug, Clone, PartialEq)]
struct Filter {
    left: Vec<Step>,
    /// The sign of the comparison and what to compare with; without them it is enough that there is a value.
    test: Option<(String, Vec<Step>)>,
}

impl Template {
    /// Reads a template.
    pub fn parse(text: &str) -> Result<Template, String> {
        Ok(Template { parts: parse::template(text)?, source: text.to_owned() })
    }

    /// Reads a path that may lack its braces and its first dot.
    pub fn relaxed(text: &str) -> Result<Template, String> {
        Template::parse(&braced(text)?)
    }

    /// What was read.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// What it finds, one list for each of its parts.
    pub fn find(&self, object: &Value) -> Result<Vec<Vec<Value>>, String> {
        follow::parts(&self.parts, object)
    }

    /// What it prints.
    pub fn print(&self, object: &Value) -> Result<String, String> {
        let printed = self.find(object)?.into_iter().map(|found| {
            let texts: Vec<_> = found.iter().map(shown).collect();
            texts.join(" ")
        });
        Ok(printed.collect())
    }

    /// All that it finds, as JSON.
    pub fn print_as_json(&self, object: &Value) -> Result<String, String> {
        let found = self.find(object)?;
        Ok(found.into_iter().map(|found| go::indented_json(&Value::Array(found)) + "\n").collect())
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Array(_) | Value::Object(_) => go::json(value),
        other => go::text(other),
    }
}

/// `metadata.name`, `.metadata.name` and `{metadata.name}` all mean `{.metadata.name}`.
pub fn braced(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Ok(String::new());
    }
    let inner = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or(text);
    let inner = inner.strip_prefix('.').unwrap_or(inner);
    if inner.is_empty() || inner.contains(['{', '}']) {
        let forms = "a 'name1.name2' or '.name1.name2' or '{name1.name2}' or '{.name1.name2}'";
        return Err(format!("unexpected path string, expected {forms}"));
    }
    Ok(format!("{{.{inner}}}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sample() -> Value {
        json!({
            "kind": "List",
            "items": [
                {"metadata": {"name": "a", "labels": {"x.y/z": "1"}}, "spec": {"n": 1, "l": ["p", "q", "r"]}, "ok": true},
                {"metadata": {"name": "b"}, "spec": {"n": 2, "l": []}},
            ],
        })
    }

    #[test]
    fn templates_print_what_kubectl_prints() {
        for (template, expected) in [
            ("plain", "plain"),
            ("{.kind}", "List"),
            ("{.missing}", ""),
            ("{.items[0].metadata.name}", "a"),
            ("{.items[-1].metadata.name}", "b"),
            ("{.items[*].metadata.name}", "a b"),
            ("{..name}", "a b"),
            ("{.items[*]['metadata.name','spec.n']}", "a b 1 2"),
            ("{.items[0].spec.l[0:2]}", "p q"),
            ("{.items[0].spec.l[1:]}", "q r"),
            ("{.items[0].spec.l[::2]}", "p r"),
            ("{.items[0].spec.l}", r#"["p","q","r"]"#),
            ("{.items[0].metadata.labels}", r#"{"x.y/z":"1"}"#),
            (r"{.items[0].metadata.labels.x\.y/z}", "1"),
            ("{.items[?(@.spec.n==2)].metadata.name}", "b"),
            ("{.items[?(@.spec.n>=1)].metadata.name}", "a b"),
            ("{.items[?(@.metadata.name!=\"a\")].metadata.name}", "b"),
            ("{.items[?(@.metadata.labels)].metadata.name}", "a"),
            ("{.items[?(@.ok==true)].metadata.name}", "a"),
            ("{range .items[*]}{.metadata.name}={.spec.n}{\"\\n\"}{end}", "a=1\nb=2\n"),
            ("{range .items[*]}[{range .spec.l[*]}{@},{end}]{end}!", "[p,q,r,][]!"),
            ("{\"a\\tb\"} {'c'}", "a\tb c"),
            ("{$.kind}", "List"),
            ("{.items[0].spec.*}", r#"["p","q","r"] 1"#),
        ] {
            let parsed = Template::parse(template).unwrap_or_else(|error| panic!("{template}: {error}"));
            assert_eq!(parsed.print(&sample()).as_deref(), Ok(expected), "{template}");
        }
    }

    #[test]
    fn what_is_wrong_is_told() {
        for (template, expected) in [
            ("{.a", "unclosed action"),
            ("{.a[", "unterminated array"),
            ("{.a[x]}", "invalid array index x"),
            ("{.a[?(@.b]}", "unterminated filter"),
            ("{range .a}", ""),
            ("{end}", "not in range, nothing to end"),
            ("{foo}", "unrecognized identifier foo"),
            ("{\"a}", "unterminated quoted string"),
            ("{..}{....a}", "invalid multiple recursive descent"),
            ("{#}", "unrecognized character in action: U+0023 '#'"),
        ] {
            let said = Template::parse(template).err().unwrap_or_default();
            assert_eq!(said, expected, "{template}");
        }
        let found = |template: &str| Template::parse(template).unwrap().print(&sample()).unwrap_err();
        assert_eq!(found("{.items[9]}"), "array index out of bounds: index 9, length 2");
        assert_eq!(found("{.kind[0]}"), "string is not array or slice");
        assert_eq!(found("{.items[0].spec.l[2:1]}"), "starting index 2 is greater than ending index 1");
    }

    #[test]
    fn a_path_may_lack_its_braces() {
        for text in ["metadata.name", ".metadata.name", "{metadata.name}", "{.metadata.name}"] {
            assert_eq!(braced(text).as_deref(), Ok("{.metadata.name}"));
        }
        assert!(braced("{.a}{.b}").is_err());
    }
}
