//! Lists and maps that a client gave with nothing in them.
//!
//! They are stored as if they were absent, and rules take them so. An error that quotes what is around them shows them as they were given.

use serde_json::{Map, Value};

/// A list or a map that was given empty, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Emptied {
    /// Fields and indices from the root: `spec.rules[0].ports`.
    path: String,
    list: bool,
}

impl Emptied {
    pub(crate) fn list(path: &str) -> Self {
        Self { path: path.to_owned(), list: true }
    }

    pub(crate) fn map(path: &str) -> Self {
        Self { path: path.to_owned(), list: false }
    }

    /// Fields and indices from the root: `spec.rules[0].ports`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Whether the object shows it although there is nothing in it: as null.
    pub fn is_printed(&self, object: &Value) -> bool {
        let steps = self.path.split(['.', '[']).filter(|step| !step.is_empty());
        let found = steps.into_iter().try_fold(object, |at, step| match step.strip_suffix(']') {
            Some(index) => at.get(index.parse::<usize>().ok()?),
            None => at.get(step),
        });
        found.is_some_and(Value::is_null)
    }

    /// Makes it null again after [`restore`](Self::restore).
    pub fn empty(&self, object: &mut Value) {
        if let Some(found) = find(object, &self.path) {
            *found = Value::Null;
        }
    }

    /// Puts it back, if what it stood in is still there and nothing has taken its place.
    pub fn restore(&self, object: &mut Value) {
        let (around, name) = self.path.rsplit_once('.').unwrap_or(("", &self.path));
        let Some(Value::Object(fields)) = find(object, around) else { return };
        if fields.get(name).is_none_or(Value::is_null) && !name.ends_with(']') {
            let empty = if self.list { Value::Array(Vec::new()) } else { Value::Object(Map::new()) };
            fields.insert(name.to_owned(), empty);
        }
    }
}

fn find<'a>(object: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    let steps = path.split(['.', '[']).filter(|step| !step.is_empty());
    steps.into_iter().try_fold(object, |at, step| match step.strip_suffix(']') {
        Some(index) => at.get_mut(index.parse::<usize>().ok()?),
        None => at.get_mut(step),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_was_given_empty_comes_back_where_nothing_took_its_place() {
        let mut object = json!({"spec": {"rules": [{"a": 1}], "labels": {"x": "y"}}});
        Emptied::list("spec.rules[0].ports").restore(&mut object);
        Emptied::map("spec.labels").restore(&mut object);
        Emptied::map("spec.gone.labels").restore(&mut object);
        Emptied::map("data").restore(&mut object);
        assert_eq!(object, json!({"spec": {"rules": [{"a": 1, "ports": []}], "labels": {"x": "y"}}, "data": {}}));
    }

    #[test]
    fn what_is_printed_as_null_can_be_shown_as_given_for_a_while() {
        let mut object = json!({"spec": {"limits": null}, "ports": [1]});
        let [limits, other] = [Emptied::list("spec.limits"), Emptied::list("spec.other")];
        assert!(limits.is_printed(&object) && !other.is_printed(&object));
        limits.restore(&mut object);
        assert_eq!(object["spec"]["limits"], json!([]));
        limits.empty(&mut object);
        assert_eq!(object["spec"]["limits"], json!(null));
    }
}
