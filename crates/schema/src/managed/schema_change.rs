//! Ownership that was written down when the type was another: what is one field now was once owned in parts.

use super::atom::{Atom, Form};
use super::element::Element;
use super::field_set::{Entry, FieldSet};

impl FieldSet {
    /// The set with every list and object that is one field today owned as one field. Other changes of a type need
    /// nothing: what is not there any more can't be compared.
    pub(super) fn fitted(&self, form: Form<'_>) -> Self {
        self.fit(form).unwrap_or_else(|| self.clone())
    }

    /// None if it fits already.
    fn fit(&self, form: Form<'_>) -> Option<Self> {
        let mut changed = false;
        let mut all = Self::new();
        for (step, entry) in self.entries() {
            let fitting = child_form(step, form).and_then(|form| fit_entry(entry, form));
            changed |= fitting.is_some();
            all.add(step.clone(), fitting.unwrap_or_else(|| entry.clone()));
        }
        changed.then_some(all)
    }
}

fn child_form<'a>(step: &Element, form: Form<'a>) -> Option<Form<'a>> {
    match (form.atom(None), step) {
        (Atom::Map(map), Element::Field(name)) => map.child(name),
        (Atom::List(list), _) => Some(list.item),
        _ => None,
    }
}

fn fit_entry(entry: &Entry, form: Form<'_>) -> Option<Entry> {
    let is_leaf = entry.children.is_empty();
    match form.atom(None) {
        Atom::Scalar(_) => None,
        Atom::Map(map) if map.is_deduced() => None,
        Atom::Map(map) if map.atomic => (!is_leaf).then(Entry::leaf),
        Atom::List(list) if list.is_atomic() => (!is_leaf).then(Entry::leaf),
        Atom::Map(_) | Atom::List(_) => {
            let children = entry.children.fit(form)?;
            Some(Entry { member: entry.member, children })
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::facts::kind_type;

    #[test]
    fn what_is_one_field_today_is_owned_as_one() {
        let form = Form::of(kind_type("v1", "Pod").unwrap());
        for (before, after) in [
            (
                json!({"f:spec": {"f:nodeSelector": {".": {}, "f:a": {}}, "f:hostname": {}}}),
                json!({"f:spec": {"f:nodeSelector": {}, "f:hostname": {}}}),
            ),
            (
                json!({"f:spec": {"f:containers": {r#"k:{"name":"a"}"#: {".": {}, "f:args": {"i:0": {}}}}}}),
                json!({"f:spec": {"f:containers": {r#"k:{"name":"a"}"#: {".": {}, "f:args": {}}}}}),
            ),
            (json!({"f:metadata": {"f:labels": {"f:a": {}}}}), json!({"f:metadata": {"f:labels": {"f:a": {}}}})),
            (json!({"f:gone": {"f:a": {}}}), json!({"f:gone": {"f:a": {}}})),
        ] {
            assert_eq!(FieldSet::decode(&before).unwrap().fitted(form).encode(), after);
        }
    }
}
