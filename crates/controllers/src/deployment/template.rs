//! Templates: whether two are the same, and the name that one gives its set.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde_json::Value;
use setpoint_api::quantity::Quantity;

/// The label that tells the pods of one template from those of another.
pub const HASH: &str = "pod-template-hash";

/// Longest name of a set.
const NAME_MAX: usize = 253;

/// Whether two templates ask for the same pods; the hash of one is no part of what it asks for.
pub fn is_same(one: Option<&PodTemplateSpec>, other: Option<&PodTemplateSpec>) -> bool {
    let (Some(one), Some(other)) = (one, other) else { return one.is_none() && other.is_none() };
    if one.spec == other.spec && one.metadata == other.metadata {
        return true;
    }
    comparable(one) == comparable(other)
}

/// The template without what means nothing: the hash, empty lists and maps, and ways to write a quantity.
fn comparable(template: &PodTemplateSpec) -> Option<Value> {
    let mut value = serde_json::to_value(without_hash(template)).ok()?;
    normalize("", &mut value);
    Some(value)
}

fn normalize(name: &str, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let holds_quantities = matches!(name, "limits" | "requests" | "overhead");
            for (field, value) in fields.iter_mut() {
                normalize(if holds_quantities { "divisor" } else { field }, value);
            }
            fields.retain(|_, value| !is_empty(value));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| normalize("", item)),
        Value::String(text) if matches!(name, "divisor" | "sizeLimit") => {
            if let Ok(quantity) = Quantity::parse(text) {
                *text = quantity.to_string();
            }
        }
        _ => {}
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

/// The same template without the hash.
pub fn without_hash(template: &PodTemplateSpec) -> PodTemplateSpec {
    let mut template = template.clone();
    if let Some(labels) = template.metadata.as_mut().and_then(|metadata| metadata.labels.as_mut()) {
        labels.remove(HASH);
    }
    template
}

/// Labels with the hash among them.
pub fn with_hash(labels: Option<&BTreeMap<String, String>>, hash: &str) -> BTreeMap<String, String> {
    let mut labels = labels.cloned().unwrap_or_default();
    labels.insert(HASH.to_owned(), hash.to_owned());
    labels
}

/// A short name for a template. Two templates may have the same; then the deployment counts the collision, and both get
/// another name.
pub fn hash(template: &PodTemplateSpec, collisions: Option<i32>) -> String {
    /// Letters and digits that make no words and can't be mistaken for each other.
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let text = serde_json::to_vec(template).unwrap_or_default();
    let collisions = collisions.map(|count| i64::from(count).to_le_bytes());
    let bytes = text.iter().chain(collisions.iter().flatten());
    // FNV-1a.
    let hash = bytes.fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    hash.to_string().bytes().map(|digit| char::from(ALPHABET[usize::from(digit) % ALPHABET.len()])).collect()
}

/// The name of the set of a deployment and a hash.
pub fn set_name(deployment: &str, hash: &str) -> String {
    let room = NAME_MAX.saturating_sub(hash.len() + 1).min(deployment.len());
    format!("{}-{hash}", deployment.get(..room).unwrap_or(deployment))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn template(value: Value) -> PodTemplateSpec {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn templates_are_the_same_if_they_ask_for_the_same_pods() {
        let web = template(json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c",
            "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}]}}));
        let same = [
            json!({"metadata": {"labels": {"app": "web", HASH: "x"}}, "spec": {"containers": [{"name": "c",
                "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}]}}),
            json!({"metadata": {"labels": {"app": "web"}, "annotations": {}}, "spec": {"containers": [{"name": "c", "env": [],
                "resources": {"limits": {"cpu": "1000m", "memory": "1024Mi"}}}], "volumes": []}}),
        ];
        let different = [
            json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c"}]}}),
            json!({"metadata": {"labels": {"app": "web"}, "annotations": {"a": ""}}, "spec": {"containers": [{"name": "c",
                "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}]}}),
        ];
        for other in same {
            assert!(is_same(Some(&web), Some(&template(other.clone()))), "{other}");
        }
        for other in different {
            assert!(!is_same(Some(&web), Some(&template(other.clone()))), "{other}");
        }
        assert!(!is_same(Some(&web), None));
    }

    #[test]
    fn a_hash_follows_from_the_template_and_the_collisions() {
        let template = template(json!({"spec": {"containers": [{"name": "c"}]}}));
        let hashes = [None, Some(0), Some(1)].map(|collisions| hash(&template, collisions));
        assert_eq!(hashes[0], hash(&template, None));
        assert!(hashes[0] != hashes[1] && hashes[1] != hashes[2] && hashes[0] != hashes[2]);
        assert!(hashes.iter().all(|hash| (1..=10).contains(&hash.len()) && !hash.contains(['a', 'e', 'i', 'o', 'u'])));
    }

    #[test]
    fn a_long_name_leaves_room_for_the_hash() {
        assert_eq!(set_name("web", "abc"), "web-abc");
        assert_eq!(set_name(&"x".repeat(253), "abc").len(), 253);
    }
}
