//! Paths such as `.spec.color` or `.metadata.labels['a']` through a schema.

use serde_json::Value;

use crate::edit::Edit;

/// Whether `['name']` may stand in a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Brackets {
    Allowed,
    Forbidden,
}

/// The schema that a path leads to and the path in its usual form, or why it leads nowhere.
pub(super) fn resolve<'a>(path: &str, schema: &'a Value, brackets: Brackets) -> Result<(String, &'a Value), String> {
    let (mut at, mut usual) = (schema, String::new());
    let tokens = tokens(path);
    let mut tokens = tokens.into_iter();
    while let Some(token) = tokens.next() {
        let name = match token {
            "." => tokens.next().ok_or("unexpected end of JSON path")?.to_owned(),
            "[" if brackets == Brackets::Forbidden => return Err("array notation is not allowed".to_owned()),
            "[" => {
                let quoted = tokens.next().ok_or("unexpected end of JSON path")?;
                let inner = quoted.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
                let name = inner.ok_or_else(|| format!("expected single quoted string but got {quoted}"))?;
                match tokens.next() {
                    Some("]") => name.replace("\\'", "'").replace("\\\\", "\\"),
                    Some(other) => return Err(format!("expected ] but got {other}")),
                    None => return Err("unexpected end of JSON path".to_owned()),
                }
            }
            other => return Err(format!("expected [ or . but got: {other}")),
        };
        at = step(at, &name).ok_or("does not refer to a valid field")?;
        usual = format!("{usual}.{name}");
    }
    Ok((usual, at))
}

fn step<'a>(schema: &'a Value, name: &str) -> Option<&'a Value> {
    if schema.has("properties") {
        return schema["properties"].get(name);
    }
    schema.get("additionalProperties").filter(|rest| rest.is_object())
}

/// Dots, brackets, texts in single quotes, and what is between them.
fn tokens(path: &str) -> Vec<&str> {
    let (mut found, mut rest) = (Vec::new(), path);
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '.' | '[' | ']' => 1,
            '\'' => {
                let end = rest.char_indices().skip(1).find(|(at, c)| *c == '\'' && !rest[..*at].ends_with('\\'));
                end.map_or(rest.len(), |(at, _)| at + 1)
            }
            _ => rest.find(['.', '[', ']']).unwrap_or(rest.len()),
        };
        let (token, after) = rest.split_at(length);
        found.push(token);
        rest = after;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_path_is_followed_through_a_schema() {
        let schema = json!({"properties": {"spec": {"properties": {
            "a": {"type": "string"}, "m": {"additionalProperties": {"type": "integer"}},
        }}}});
        for (path, brackets, expected) in [
            (".spec.a", Brackets::Forbidden, Ok("string")),
            (".spec['a']", Brackets::Allowed, Ok("string")),
            (".spec['a']", Brackets::Forbidden, Err("array notation is not allowed")),
            (".spec.m.x", Brackets::Allowed, Ok("integer")),
            (".spec.z", Brackets::Allowed, Err("does not refer to a valid field")),
            ("spec", Brackets::Allowed, Err("expected [ or . but got: spec")),
            (".spec.", Brackets::Allowed, Err("unexpected end of JSON path")),
        ] {
            let found = resolve(path, &schema, brackets);
            let found = found.as_ref().map(|(_, schema)| schema.text("type")).map_err(|error| error.as_str());
            assert_eq!(found, expected, "{path}");
        }
    }
}
