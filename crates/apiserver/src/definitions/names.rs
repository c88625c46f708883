//! Who may have which name: within a group every name belongs to one kind, and who came first keeps it.

use std::collections::HashSet;

use serde_json::Value;
use setpoint_api::quote::quote;
use setpoint_schema::Edit;

/// The names of a kind, as its definition wants them or as they were accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) kind: String,
    pub(crate) list_kind: String,
    pub(crate) categories: Vec<String>,
}

impl Names {
    /// Reads `spec.names` or `status.acceptedNames`.
    pub(crate) fn read(value: &Value) -> Names {
        let list = |name: &str| {
            let items = value.get(name).and_then(Value::as_array).into_iter().flatten();
            items.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Names {
            plural: value.text("plural").to_owned(),
            singular: value.text("singular").to_owned(),
            short_names: list("shortNames"),
            kind: value.text("kind").to_owned(),
            list_kind: value.text("listKind").to_owned(),
            categories: list("categories"),
        }
    }

    /// Writes them as they stand in a definition.
    pub(crate) fn write(&self) -> Value {
        let mut value = serde_json::json!({"plural": self.plural, "kind": self.kind});
        for (name, text) in [("singular", &self.singular), ("listKind", &self.list_kind)] {
            if !text.is_empty() {
                value.set(name, text.as_str());
            }
        }
        for (name, list) in [("shortNames", &self.short_names), ("categories", &self.categories)] {
            if !list.is_empty() {
                value.set(name, list.clone());
            }
        }
        value
    }
}

/// Names that are taken in one group.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    resources: HashSet<String>,
    kinds: HashSet<String>,
}

impl Taken {
    /// Takes names. Empty ones, of a definition that has none yet, are nobody's.
    pub(crate) fn add(&mut self, names: &Names) {
        let resources = [&names.plural, &names.singular].into_iter().chain(&names.short_names);
        self.resources.extend(resources.filter(|name| !name.is_empty()).cloned());
        self.kinds.extend([&names.kind, &names.list_kind].into_iter().filter(|name| !name.is_empty()).cloned());
    }
}

/// What became of a definition's wish for names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    /// The names that it has.
    pub(crate) accepted: Names,
    /// Reason and message of the last name that another has.
    pub(crate) conflict: Option<(&'static str, String)>,
}

/// Gives a definition the names that it wants, as far as they are free. Each is judged on its own, and one that was
/// accepted before stays until it can be replaced.
pub(crate) fn claim(wanted: &Names, accepted: &Names, taken: &Taken) -> Claim {
    let mut conflict = None;
    let mut next = accepted.clone();
    let mut one = |wanted: &str, accepted: &mut String, used: &HashSet<String>, reason| {
        if wanted != accepted.as_str() && used.contains(wanted) {
            conflict = Some((reason, in_use(wanted)));
        } else {
            *accepted = wanted.to_owned();
        }
    };
    one(&wanted.plural, &mut next.plural, &taken.resources, "PluralConflict");
    one(&wanted.singular, &mut next.singular, &taken.resources, "SingularConflict");
    if let Some(message) = short_name_conflict(wanted, accepted, taken) {
        conflict = Some(("ShortNamesConflict", message));
    } else {
        next.short_names.clone_from(&wanted.short_names);
    }
    let mut one = |wanted: &str, accepted: &mut String, reason| {
        if wanted != accepted.as_str() && taken.kinds.contains(wanted) {
            conflict = Some((reason, in_use(wanted)));
        } else {
            *accepted = wanted.to_owned();
        }
    };
    one(&wanted.kind, &mut next.kind, "KindConflict");
    one(&wanted.list_kind, &mut next.list_kind, "ListKindConflict");
    next.categories.clone_from(&wanted.categories);
    Claim { accepted: next, conflict }
}

/// The short names that another has, in Go's words for one or several errors.
fn short_name_conflict(wanted: &Names, accepted: &Names, taken: &Taken) -> Option<String> {
    let new = wanted.short_names.iter().filter(|name| !accepted.short_names.contains(name));
    let mut messages: Vec<String> = Vec::new();
    for name in new.filter(|name| taken.resources.contains(*name)) {
        let message = in_use(name);
        if !messages.contains(&message) {
            messages.push(message);
        }
    }
    match messages.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        several => Some(format!("[{}]", several.join(", "))),
    }
}

fn in_use(name: &str) -> String {
    format!("{} is already in use", quote(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(plural: &str, kind: &str, short: &[&str]) -> Names {
        Names {
            plural: plural.to_owned(),
            singular: kind.to_lowercase(),
            short_names: short.iter().map(|name| (*name).to_owned()).collect(),
            kind: kind.to_owned(),
            list_kind: format!("{kind}List"),
            categories: Vec::new(),
        }
    }

    fn taken(names: &Names) -> Taken {
        let mut taken = Taken::default();
        taken.add(names);
        taken
    }

    #[test]
    fn free_names_are_all_accepted() {
        let wanted = names("widgets", "Widget", &["wd"]);
        let claim = claim(&wanted, &Names::default(), &Taken::default());
        assert_eq!(claim, Claim { accepted: wanted, conflict: None });
    }

    #[test]
    fn the_last_conflict_is_told_and_free_names_are_kept() {
        let first = names("widgets", "Widget", &["wd", "w"]);
        let claim = claim(&names("gadgets", "Widget", &["wd", "w", "g"]), &Names::default(), &taken(&first));
        assert_eq!(claim.conflict, Some(("ListKindConflict", "\"WidgetList\" is already in use".to_owned())));
        assert_eq!(claim.accepted, Names { plural: "gadgets".to_owned(), ..Names::default() });
    }

    #[test]
    fn names_of_ones_own_are_no_conflict() {
        let own = names("widgets", "Widget", &["wd"]);
        let wanted = names("widgets", "Widget", &["wd", "x"]);
        assert_eq!(claim(&wanted, &own, &taken(&own)).accepted, wanted);
    }

    #[test]
    fn several_short_names_are_told_together() {
        let first = names("widgets", "Widget", &["wd", "w"]);
        let claim = claim(&names("gadgets", "Gadget", &["wd", "w"]), &Names::default(), &taken(&first));
        let message = r#"["wd" is already in use, "w" is already in use]"#;
        assert_eq!(claim.conflict, Some(("ShortNamesConflict", message.to_owned())));
    }
}
