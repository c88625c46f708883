//! Ownership that was written down when the type was another: what is one field now was once owned in parts.

use super::atom::{Atom, Form};
use super::element::Element;
use super::field_set::{Entry, FieldSet};

impl FieldSet {
    /// Owns every list and object that is one field today as one field. Other changes of a type need nothing: what is not
    /// there any more can't be compared.
    pub(super) fn fit(&mut self, form: Form<'_>) {
        for (step, entry) in self.entries_mut() {
            if let Some(form) = child_form(step, form) {
                fit_entry(entry, form);
            }
        }
    }
}

fn child_form<'a>(step: &Element, form: Form<'a>) -> Option<Form<'a>> {
    match (form.atom(None), step) {
        (Atom::Map(map), Element::Field(name)) => map.child(name),
        (Atom::List(list), _) => Some(list.item),
        _ => None,
    }
}

fn fit_entry(entry: &mut Entry, form: Form<'_>) {
    if entry.children.is_empty() {
        return;
    }
    match form.atom(None) {
        Atom::Scalar(_) => {}
        Atom::Map(map) if map.is_deduced() => {}
        Atom::Map(map) if map.atomic => *entry = Entry::leaf(),
        Atom::List(list) if list.is_atomic() => *entry = Entry::leaf(),
        Atom::Map(_) | Atom::List(_) => entry.children.fit(form),
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
            let mut set = FieldSet::decode(&before).unwrap();
            set.fit(form);
            assert_eq!(set.encode(), after);
        }
    }
}
