//! Filling in what a user left out, as the schema says.

use serde_json::Value;

use super::tree::Place;

/// Fills in defaults, also inside what was just filled in.
pub(super) fn fill(value: &mut Value, place: Place<'_>) {
    if !place.node().below.defaults {
        return;
    }
    match value {
        Value::Object(fields) => {
            for field in place.fields() {
                let Some(inner) = place.field(&field.name) else { continue };
                let Some(default) = inner.default() else { continue };
                let absent = match fields.get(&*field.name) {
                    None => true,
                    Some(given) => given.is_null() && !inner.node().nullable,
                };
                if absent {
                    fields.insert(field.name.to_string(), default.clone());
                }
            }
            for (name, value) in fields.iter_mut() {
                match (place.field(name), place.additional()) {
                    (Some(inner), _) => fill(value, inner),
                    (None, Some(inner)) => fill_element(value, inner),
                    (None, None) => {}
                }
            }
        }
        Value::Array(items) => {
            if let Some(inner) = place.item() {
                items.iter_mut().for_each(|item| fill_element(item, inner));
            }
        }
        _ => {}
    }
}

/// An item that is null and may not be becomes the default of its schema.
fn fill_element(value: &mut Value, place: Place<'_>) {
    if value.is_null()
        && !place.node().nullable
        && let Some(default) = place.default()
    {
        *value = default.clone();
    }
    fill(value, place);
}
