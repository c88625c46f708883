//! Parts of metadata and status that every kind shares: owner references, conditions, list metadata.

use serde::{Deserialize, Serialize};

use crate::field::{BadValue, FieldError, Path};
use crate::kind::{GroupVersion, GroupVersionKind};
use crate::name;

/// Says that one object belongs to another: the garbage collector deletes it when its last owner is gone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnerReference {
    /// The owner's `apiVersion`.
    #[serde(default)]
    pub api_version: String,
    /// The owner's kind.
    #[serde(default)]
    pub kind: String,
    /// The owner's name, in the same namespace or cluster-wide.
    #[serde(default)]
    pub name: String,
    /// The owner's uid: a later object of the same name is not the owner.
    #[serde(default)]
    pub uid: String,
    /// Whether this owner is the one that manages the object. At most one may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<bool>,
    /// Whether a foreground deletion of the owner waits for the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_owner_deletion: Option<bool>,
}

impl OwnerReference {
    /// Whether this owner manages the object.
    pub fn is_controller(&self) -> bool {
        self.controller == Some(true)
    }
}

/// The owner that manages the object, if there is one.
pub fn controller_of(owners: &[OwnerReference]) -> Option<&OwnerReference> {
    owners.iter().find(|owner| owner.is_controller())
}

/// What is wrong with the owner references at `path`.
pub fn validate_owner_references(owners: &[OwnerReference], path: &Path<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut controller: Option<&OwnerReference> = None;
    for owner in owners {
        validate_owner_reference(owner, path, &mut errors);
        if !owner.is_controller() {
            continue;
        }
        match controller {
            None => controller = Some(owner),
            Some(first) => errors.push(second_controller(owners, first, owner, path)),
        }
    }
    errors
}

fn validate_owner_reference(owner: &OwnerReference, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let kind = match owner.api_version.parse::<GroupVersion>() {
        Ok(group_version) => group_version.with_kind(owner.kind.as_str()),
        Err(_) => GroupVersionKind::new("", "", owner.kind.as_str()),
    };
    if kind.version.is_empty() {
        let at = path.child("apiVersion");
        errors.push(FieldError::invalid(&at, &owner.api_version, "version must not be empty"));
    }
    for (field, value) in [("kind", &owner.kind), ("name", &owner.name), ("uid", &owner.uid)] {
        if value.is_empty() {
            errors.push(FieldError::invalid(&path.child(field), value, "must not be empty"));
        }
    }
    if kind == GroupVersionKind::new("", "v1", "Event") {
        let detail = format!("{kind} is disallowed from being an owner");
        errors.push(FieldError::invalid(path, BadValue::encode(owner), detail));
    }
}

fn second_controller(
    owners: &[OwnerReference],
    first: &OwnerReference,
    second: &OwnerReference,
    path: &Path<'_>,
) -> FieldError {
    let detail = format!(
        "Only one reference can have Controller set to true. Found \"true\" in references for {}/{} and {}/{}",
        first.kind, first.name, second.kind, second.name
    );
    FieldError::invalid(path, BadValue::encode(&owners), detail)
}

/// A condition of an object: one aspect of its state, with when and why it last changed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// The aspect, such as `Ready`. One condition per type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// The generation of `spec` that this condition speaks about.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub observed_generation: i64,
    /// When `status` last changed, in RFC 3339.
    #[serde(default)]
    pub last_transition_time: String,
    /// One word for programs.
    #[serde(default)]
    pub reason: String,
    /// A sentence for people.
    #[serde(default)]
    pub message: String,
}

/// Whether a condition holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// Not known.
    Unknown,
}

/// Puts a condition in its place, and says whether anything changed. The time of the last transition moves only when the
/// status does, so a controller may pass the present each time.
pub fn set_condition(conditions: &mut Vec<Condition>, new: Condition) -> bool {
    let Some(existing) = conditions.iter_mut().find(|condition| condition.kind == new.kind) else {
        conditions.push(new);
        return true;
    };
    let transition = if existing.status == new.status {
        existing.last_transition_time.clone()
    } else {
        new.last_transition_time.clone()
    };
    let merged = Condition { last_transition_time: transition, ..new };
    let changed = *existing != merged;
    *existing = merged;
    changed
}

/// Takes a condition away, and says whether it was there.
pub fn remove_condition(conditions: &mut Vec<Condition>, kind: &str) -> bool {
    let before = conditions.len();
    conditions.retain(|condition| condition.kind != kind);
    conditions.len() != before
}

/// The condition of this type.
pub fn find_condition<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.kind == kind)
}

/// Whether the condition of this type is there and holds.
pub fn is_true(conditions: &[Condition], kind: &str) -> bool {
    find_condition(conditions, kind).is_some_and(|condition| condition.status == ConditionStatus::True)
}

/// Longest reason of a condition, as Kubernetes bounds it.
const REASON_BYTES_MAX: usize = 1024;
/// Longest message of a condition, as Kubernetes bounds it.
const MESSAGE_BYTES_MAX: usize = 32 * 1024;

/// What is wrong with the conditions at `path`.
pub fn validate_conditions(conditions: &[Condition], path: &Path<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, condition) in conditions.iter().enumerate() {
        let at = path.index(index);
        if conditions[..index].iter().any(|earlier| earlier.kind == condition.kind) {
            errors.push(FieldError::duplicate(&at.child("type"), &condition.kind));
        }
        validate_condition(condition, &at, &mut errors);
    }
    errors
}

fn validate_condition(condition: &Condition, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let kind = path.child("type");
    errors.extend(
        name::qualified_name(&condition.kind)
            .into_iter()
            .map(|message| FieldError::invalid(&kind, &condition.kind, message)),
    );
    if condition.observed_generation < 0 {
        let detail = "must be greater than or equal to zero";
        errors.push(FieldError::invalid(&path.child("observedGeneration"), condition.observed_generation, detail));
    }
    if condition.last_transition_time.is_empty() {
        errors.push(FieldError::required(&path.child("lastTransitionTime"), ""));
    }
    let reason = path.child("reason");
    if condition.reason.is_empty() {
        errors.push(FieldError::required(&reason, ""));
    } else {
        errors.extend(
            name::condition_reason(&condition.reason)
                .into_iter()
                .map(|message| FieldError::invalid(&reason, &condition.reason, message)),
        );
        if condition.reason.len() > REASON_BYTES_MAX {
            errors.push(FieldError::too_long(&reason, REASON_BYTES_MAX));
        }
    }
    if condition.message.len() > MESSAGE_BYTES_MAX {
        errors.push(FieldError::too_long(&path.child("message"), MESSAGE_BYTES_MAX));
    }
}

/// The metadata of a list: where it was read and how it goes on.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListMeta {
    /// The revision at which the list is true.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// Where the next page starts; empty on the last one.
    #[serde(default, rename = "continue", skip_serializing_if = "String::is_empty")]
    pub continue_token: String,
    /// How many items come after this page, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remaining_item_count: Option<i64>,
}

fn is_zero(number: &i64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn owner(name: &str, controller: Option<bool>) -> OwnerReference {
        OwnerReference {
            api_version: "apps/v1".to_owned(),
            kind: "ReplicaSet".to_owned(),
            name: name.to_owned(),
            uid: "1".to_owned(),
            controller,
            block_owner_deletion: None,
        }
    }

    fn condition(kind: &str, status: ConditionStatus, time: &str) -> Condition {
        Condition {
            kind: kind.to_owned(),
            status,
            observed_generation: 0,
            last_transition_time: time.to_owned(),
            reason: "Because".to_owned(),
            message: String::new(),
        }
    }

    #[test]
    fn the_controller_is_the_owner_marked_as_such() {
        let owners = [owner("a", None), owner("b", Some(false)), owner("c", Some(true))];
        assert_eq!(controller_of(&owners).map(|owner| owner.name.as_str()), Some("c"));
        assert_eq!(controller_of(&owners[..2]), None);
    }

    #[test]
    fn an_owner_reference_keeps_its_wire_form() {
        let wire = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "a", "uid": "1", "controller": true});
        assert_eq!(serde_json::to_value(owner("a", Some(true))).unwrap(), wire);
        assert_eq!(serde_json::from_value::<OwnerReference>(wire).unwrap(), owner("a", Some(true)));
    }

    #[test]
    fn owner_references_are_refused_in_the_words_of_kubernetes() {
        let check = |owners: &[OwnerReference], expected: &[&str]| {
            let path = Path::root("metadata");
            let seen: Vec<_> = validate_owner_references(owners, &path.child("ownerReferences"))
                .iter()
                .map(ToString::to_string)
                .collect();
            assert_eq!(seen, expected);
        };
        check(&[owner("a", Some(true)), owner("b", None)], &[]);
        check(
            &[OwnerReference { api_version: "a/b/c".to_owned(), ..OwnerReference::default() }],
            &[
                "metadata.ownerReferences.apiVersion: Invalid value: \"a/b/c\": version must not be empty",
                "metadata.ownerReferences.kind: Invalid value: \"\": must not be empty",
                "metadata.ownerReferences.name: Invalid value: \"\": must not be empty",
                "metadata.ownerReferences.uid: Invalid value: \"\": must not be empty",
            ],
        );
        let event = OwnerReference { api_version: "v1".to_owned(), kind: "Event".to_owned(), ..owner("a", None) };
        check(
            &[event],
            &[
                "metadata.ownerReferences: Invalid value: {\"apiVersion\":\"v1\",\"kind\":\"Event\",\"name\":\"a\",\"uid\":\"1\"}: \
               /v1, Kind=Event is disallowed from being an owner",
            ],
        );
        check(
            &[owner("a", Some(true)), owner("b", Some(true))],
            &["metadata.ownerReferences: Invalid value: [\
               {\"apiVersion\":\"apps/v1\",\"kind\":\"ReplicaSet\",\"name\":\"a\",\"uid\":\"1\",\"controller\":true},\
               {\"apiVersion\":\"apps/v1\",\"kind\":\"ReplicaSet\",\"name\":\"b\",\"uid\":\"1\",\"controller\":true}]: \
               Only one reference can have Controller set to true. \
               Found \"true\" in references for ReplicaSet/a and ReplicaSet/b"],
        );
    }

    #[test]
    fn the_transition_time_moves_only_with_the_status() {
        let mut conditions = Vec::new();
        assert!(set_condition(&mut conditions, condition("Ready", ConditionStatus::False, "t1")));
        assert!(!set_condition(&mut conditions, condition("Ready", ConditionStatus::False, "t2")));
        assert_eq!(conditions[0].last_transition_time, "t1");

        let reworded = Condition { message: "still".to_owned(), ..condition("Ready", ConditionStatus::False, "t3") };
        assert!(set_condition(&mut conditions, reworded));
        assert_eq!((conditions[0].last_transition_time.as_str(), conditions[0].message.as_str()), ("t1", "still"));

        assert!(!is_true(&conditions, "Ready"));
        assert!(set_condition(&mut conditions, condition("Ready", ConditionStatus::True, "t4")));
        assert_eq!(conditions[0].last_transition_time, "t4");
        assert!(is_true(&conditions, "Ready"));
        assert!(remove_condition(&mut conditions, "Ready") && !remove_condition(&mut conditions, "Ready"));
        assert_eq!(find_condition(&conditions, "Ready"), None);
    }

    #[test]
    fn conditions_are_validated() {
        let bad = Condition {
            observed_generation: -1,
            reason: "no spaces".to_owned(),
            ..condition("Ready", ConditionStatus::True, "")
        };
        let path = Path::root("conditions");
        let seen: Vec<_> = validate_conditions(&[condition("Ready", ConditionStatus::True, "t"), bad], &path)
            .iter()
            .map(|error| format!("{} {}", error.field, error.kind))
            .collect();
        assert_eq!(
            seen,
            [
                "conditions[1].type Duplicate value",
                "conditions[1].observedGeneration Invalid value",
                "conditions[1].lastTransitionTime Required value",
                "conditions[1].reason Invalid value",
            ]
        );
    }
}
