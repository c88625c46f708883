//! What is there in the end, without what differs between two runs that mean the same.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value};

/// Differences that are told; who has more has one reason for all of them.
const TOLD_MAX: usize = 8;

/// Bytes of a value that are told.
const VALUE_BYTES_MAX: usize = 200;

/// Objects by where they are. Those with generated names are in one place.
#[derive(Debug, PartialEq)]
pub(crate) struct Picture(BTreeMap<String, Vec<Value>>);

impl Picture {
    /// The picture of objects, each with its resource. `view` says what of an object counts.
    pub(crate) fn of(objects: Vec<(String, Value)>, view: impl Fn(Value) -> Option<Value>) -> Picture {
        let aliases = aliases(&objects);
        let mut all: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for (resource, mut object) in objects {
            let place = place(&resource, &object, &aliases);
            strip(&mut object, &aliases);
            if let Some(object) = view(object) {
                all.entry(place).or_default().push(object);
            }
        }
        for twins in all.values_mut() {
            twins.sort_by_cached_key(Value::to_string);
        }
        Picture(all)
    }

    /// The first places at which another picture is not the same, in words.
    pub(crate) fn difference(&self, got: &Picture) -> Option<String> {
        let mut lines = Vec::new();
        for (place, wanted) in &self.0 {
            match got.0.get(place) {
                None => lines.push(format!("{place} is missing")),
                Some(got) if got.len() != wanted.len() => {
                    lines.push(format!("{place}: {} objects instead of {}", got.len(), wanted.len()));
                }
                Some(got) => {
                    let pairs = wanted.iter().zip(got);
                    pairs.for_each(|(wanted, got)| compare(place, &mut String::new(), wanted, got, &mut lines));
                }
            }
        }
        lines.extend(
            got.0.keys().filter(|place| !self.0.contains_key(*place)).map(|place| format!("{place} is left over")),
        );
        let more = lines.len().saturating_sub(TOLD_MAX);
        lines.truncate(TOLD_MAX);
        lines.extend((more > 0).then(|| format!("and {more} more")));
        (!lines.is_empty()).then(|| lines.join("\n  "))
    }
}

/// Tells field by field where two objects differ.
fn compare(place: &str, path: &mut String, wanted: &Value, got: &Value, lines: &mut Vec<String>) {
    if wanted == got {
        return;
    }
    if let (Value::Object(wanted), Value::Object(got)) = (wanted, got) {
        let names = wanted.keys().chain(got.keys().filter(|name| !wanted.contains_key(*name)));
        for name in names {
            let end = path.len();
            path.push('.');
            path.push_str(name);
            let field = |of: &Map<String, Value>| of.get(name).cloned().unwrap_or_default();
            compare(place, path, &field(wanted), &field(got), lines);
            path.truncate(end);
        }
    } else {
        lines.push(format!("{place}: {} is {} instead of {}", path.trim_start_matches('.'), short(got), short(wanted)));
    }
}

fn short(value: &Value) -> String {
    let mut text = match value {
        Value::Null => "missing".to_owned(),
        value => value.to_string(),
    };
    if text.len() > VALUE_BYTES_MAX {
        let end = (0..=VALUE_BYTES_MAX).rev().find(|&at| text.is_char_boundary(at)).unwrap_or_default();
        text.truncate(end);
        text.push_str(" ...");
    }
    text
}

type Aliases = HashMap<String, String>;

/// What the server hands out by chance, and what stands for it: identities, generated names, addresses.
fn aliases(objects: &[(String, Value)]) -> Aliases {
    let mut aliases = Aliases::new();
    for (_, object) in objects {
        if let (Some(name), Some(prefix)) = (text(object, "/metadata/name"), text(object, "/metadata/generateName")) {
            aliases.insert(name.to_owned(), format!("{prefix}*"));
        }
    }
    let mut drawn = Aliases::new();
    for (resource, object) in objects {
        let place = place(resource, object, &aliases);
        for (pointer, what) in [("/metadata/uid", "uid"), ("/status/podIP", "address"), ("/spec/clusterIP", "address")]
        {
            if let Some(value) = text(object, pointer).filter(|value| !["", "None"].contains(value)) {
                drawn.insert(value.to_owned(), format!("<{what} of {place}>"));
            }
        }
    }
    aliases.extend(drawn);
    aliases
}

fn text<'a>(object: &'a Value, pointer: &str) -> Option<&'a str> {
    object.pointer(pointer)?.as_str()
}

fn place(resource: &str, object: &Value, aliases: &Aliases) -> String {
    let namespace = text(object, "/metadata/namespace").map(|namespace| format!("{namespace}/"));
    let name = text(object, "/metadata/name").unwrap_or_default();
    let name = aliases.get(name).map_or(name, String::as_str);
    format!("{resource} {}{name}", namespace.unwrap_or_default())
}

/// Takes out identities, versions and times, and puts what stands for it in the place of what was handed out by chance.
fn strip(value: &mut Value, aliases: &Aliases) {
    const PASSING: [&str; 6] =
        ["uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "observedGeneration"];
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| !PASSING.contains(&name.as_str()));
            for (name, value) in fields {
                match name.as_str() {
                    "nodePort" | "healthCheckNodePort" => *value = "<port>".into(),
                    _ => strip(value, aliases),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| strip(item, aliases)),
        Value::String(text) if is_time(text) => *text = "<time>".to_owned(),
        Value::String(text) => {
            if let Some(other) = aliased(text, aliases) {
                *text = other;
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// A text in which each word that was handed out by chance is replaced by what stands for it; none if there is no such word.
fn aliased(text: &str, aliases: &Aliases) -> Option<String> {
    let ends_word = |letter: char| !letter.is_ascii_alphanumeric() && !matches!(letter, '-' | '.' | ':');
    let word_of = |piece| str::trim_end_matches(piece, ends_word);
    let pieces = || text.split_inclusive(ends_word);
    pieces().any(|piece| aliases.contains_key(word_of(piece))).then(|| {
        let replaced = pieces().map(|piece| {
            let word = word_of(piece);
            format!("{}{}", aliases.get(word).map_or(word, String::as_str), &piece[word.len()..])
        });
        replaced.collect()
    })
}

fn is_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 20 && bytes[4] == b'-' && bytes[7] == b'-' && bytes[10] == b'T' && bytes[bytes.len() - 1] == b'Z'
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn picture(objects: &[Value]) -> Picture {
        let objects = objects.iter().map(|object| ("pods".to_owned(), object.clone())).collect();
        Picture::of(objects, Some)
    }

    /// The same in both: nothing is told.
    fn same(one: &[Value], other: &[Value]) {
        assert_eq!(picture(one).difference(&picture(other)), None);
    }

    fn differ(one: Value, other: Value, told: &str) {
        assert_eq!(picture(&[one]).difference(&picture(&[other])).as_deref(), Some(told));
    }

    #[test]
    fn what_passes_is_left_out() {
        let at = |time: &str, version: &str| json!({"metadata": {"name": "a", "uid": version, "resourceVersion": version}, "status": {"at": time}});
        same(&[at("2026-01-01T00:00:00Z", "1")], &[at("2027-01-01T00:00:00Z", "2")]);
    }

    #[test]
    fn names_identities_and_addresses_drawn_by_chance_are_the_same() {
        let pod = |name: &str, ip: &str, size: u64| {
            json!({
                "metadata": {"name": name, "generateName": "web-", "uid": format!("uid-{name}"), "labels": {"controller": format!("uid-{name}")}},
                "spec": {"size": size, "nodePort": ip.len()}, "status": {"podIP": ip},
            })
        };
        let slice = |name: &str, ip: &str| json!({"metadata": {"name": "web"}, "target": name, "address": ip, "message": format!("pod default/{name} (at {ip}) is well")});
        same(
            &[pod("web-a", "10.0.0.1", 1), pod("web-b", "10.0.0.2", 2), slice("web-a", "10.0.0.1")],
            &[pod("web-y", "10.0.0.7", 1), pod("web-x", "10.0.10.8", 2), slice("web-x", "10.0.10.8")],
        );
    }

    #[test]
    fn what_a_text_says_of_something_else_is_a_difference() {
        let pod = |name: &str| json!({"metadata": {"name": name, "generateName": "web-"}});
        let about = |name: &str| json!({"metadata": {"name": "web"}, "message": format!("pod {name} is well")});
        let told = picture(&[pod("web-a"), about("web-a")]).difference(&picture(&[pod("web-a"), about("web-ab")]));
        let line = "pods web: message is \"pod web-ab is well\" instead of \"pod web-* is well\"";
        assert_eq!(told.as_deref(), Some(line));
    }

    #[test]
    fn a_difference_says_where() {
        let object = |status: Value| json!({"metadata": {"namespace": "default", "name": "a"}, "status": status});
        differ(object(json!({"n": 1})), object(json!({"n": 2})), "pods default/a: status.n is 2 instead of 1");
        differ(object(json!({"n": 1})), object(json!({})), "pods default/a: status.n is missing instead of 1");
        differ(object(json!({})), object(json!({"n": "x"})), "pods default/a: status.n is \"x\" instead of missing");
        differ(
            json!({"metadata": {"name": "a"}}),
            json!({"metadata": {"name": "b"}}),
            "pods a is missing\n  pods b is left over",
        );
        let twin = |name: &str| json!({"metadata": {"name": name, "generateName": "w-"}});
        let told = picture(&[twin("w-1"), twin("w-2")]).difference(&picture(&[twin("w-1")]));
        assert_eq!(told.as_deref(), Some("pods w-*: 1 objects instead of 2"));
    }
}
