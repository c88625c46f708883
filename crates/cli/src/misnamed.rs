//! A field that a kind doesn't have: where it stands in a file, and which one was meant.

use serde_json::Value;

use crate::manifest::Known;
use crate::request::{Ask, Server};
use crate::slip;

/// What a server says after the path of such a field.
const SAID: &str = ": field not declared in schema";

/// What to do next, where the message tells of such a field.
pub async fn advice(server: &Server, known: &Known, message: &str) -> Option<String> {
    let path = path(message)?;
    let (last, parents) = path.split_last()?;
    let schemas = server.get(Ask::get(document(&known.kind.group, &known.kind.version)).quietly()).await.ok()?;
    let near = siblings(&schemas, known, parents).and_then(|names| {
        slip::nearest(last, names.iter().map(String::as_str)).map(|near| format!("did you mean `{near}`?"))
    });
    let text = std::fs::read_to_string(&known.source).unwrap_or_default();
    let place = line(&text, last).map(|line| format!("`{last}` stands in {}:{line}", known.source));
    let told: Vec<String> = place.into_iter().chain(near).collect();
    (!told.is_empty()).then(|| told.join("; "))
}

/// Where a server tells the schemas of a group and version.
fn document(group: &str, version: &str) -> String {
    if group.is_empty() { format!("/openapi/v3/api/{version}") } else { format!("/openapi/v3/apis/{group}/{version}") }
}

/// The names on the way to the field, without places in lists.
fn path(message: &str) -> Option<Vec<String>> {
    let (before, _) = message.split_once(SAID)?;
    let begin = before.rfind([' ', '\n']).map_or(0, |at| at + 1);
    let (mut names, mut is_place, mut is_quoted) = (Vec::new(), false, false);
    for letter in before[begin..].chars() {
        match letter {
            '"' => is_quoted = !is_quoted,
            '[' if !is_quoted => is_place = true,
            ']' if !is_quoted => is_place = false,
            '.' if !is_place => names.push(String::new()),
            letter if !is_place => names.last_mut()?.push(letter),
            _ => {}
        }
    }
    (!names.is_empty()).then_some(names)
}

/// The names of the fields beside it.
fn siblings(document: &Value, known: &Known, parents: &[String]) -> Option<Vec<String>> {
    let all = &document["components"]["schemas"];
    let is_it = |schema: &&Value| {
        let kinds = schema["x-kubernetes-group-version-kind"].as_array();
        let is_named =
            |one: &Value| one["kind"] == known.kind.kind.as_str() && one["group"] == known.kind.group.as_str();
        kinds.is_some_and(|kinds| kinds.iter().any(is_named)) && schema["properties"].is_object()
    };
    let mut schema = all.as_object()?.values().find(is_it)?;
    for name in parents {
        schema = inner(all, &schema["properties"][name])?;
    }
    Some(schema["properties"].as_object()?.keys().cloned().collect())
}

/// The schema with fields that another one refers to, or is a list or a map of.
fn inner<'a>(all: &'a Value, schema: &'a Value) -> Option<&'a Value> {
    if schema["properties"].is_object() {
        return Some(schema);
    }
    let referred = |schema: &'a Value| schema["$ref"].as_str()?.rsplit('/').next().map(|name| &all[name]);
    let next = referred(schema)
        .or_else(|| referred(&schema["allOf"][0]))
        .or_else(|| schema.get("items"))
        .or_else(|| schema.get("additionalProperties"))?;
    inner(all, next)
}

/// The line with a key, if only one has it.
fn line(text: &str, key: &str) -> Option<usize> {
    let has = |line: &str| {
        line.match_indices(key).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            let after = line[at + key.len()..].trim_start_matches('"').trim_start();
            before.is_none_or(|letter| letter.is_whitespace() || "{,\"".contains(letter)) && after.starts_with(':')
        })
    };
    let mut lines = text.lines().enumerate().filter(|(_, line)| has(line)).map(|(at, _)| at + 1);
    lines.next().filter(|_| lines.next().is_none())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_path_of_a_field_is_read_without_places_in_lists() {
        let said =
            r#"failed to create (/web; apps/v1, Kind=D): .spec.list[name="a.b"].imag: field not declared in schema"#;
        assert_eq!(path(said).unwrap(), ["spec", "list", "imag"]);
        assert_eq!(path("no such thing"), None);
    }

    #[test]
    fn the_fields_beside_it_are_found_through_lists_and_references() {
        let refers = |name: &str| json!({"allOf": [{"$ref": format!("#/components/schemas/{name}")}]});
        let document = json!({"components": {"schemas": {
            "Web": {"x-kubernetes-group-version-kind": [{"group": "", "kind": "Pod"}], "properties": {"spec": refers("Spec")}},
            "Spec": {"properties": {"list": {"type": "array", "items": refers("Item")}}},
            "Item": {"properties": {"image": {}, "name": {}}},
        }}});
        let kind = crate::discovery::tests::sample().find("pods").unwrap().clone();
        let known =
            Known { kind, namespace: String::new(), name: String::new(), object: json!({}), source: String::new() };
        let names = |parents: &[&str]| {
            siblings(&document, &known, &parents.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(names(&["spec", "list"]).unwrap(), ["image", "name"]);
        assert_eq!(names(&["none"]), None);
    }

    #[test]
    fn a_field_is_found_in_the_one_line_that_has_it() {
        let text = "a: imag\ncontainers: [{name: c, imag: x}]\n";
        assert_eq!(line(text, "imag"), Some(2));
        assert_eq!(line("{\"imag\": 1}", "imag"), Some(1));
        assert_eq!(line("imag: 1\nimag: 2", "imag"), None);
    }
}
