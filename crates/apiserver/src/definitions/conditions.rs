//! The conditions of a definition, with the words of upstream.

use serde_json::{Value, json};
use setpoint_schema::Edit;

pub(crate) const NAMES_ACCEPTED: &str = "NamesAccepted";
pub(crate) const ESTABLISHED: &str = "Established";
pub(crate) const TERMINATING: &str = "Terminating";
pub(crate) const APPROVED: &str = "KubernetesAPIApprovalPolicyConformant";

const APPROVAL: &str = "api-approved.kubernetes.io";

/// A condition without its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Condition {
    pub(crate) kind: &'static str,
    pub(crate) status: &'static str,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Condition {
    pub(crate) fn new(kind: &'static str, is: bool, reason: &'static str, message: impl Into<String>) -> Condition {
        Condition { kind, status: if is { "True" } else { "False" }, reason, message: message.into() }
    }

    /// Sets it in a definition. The time moves only with the status.
    pub(crate) fn set(&self, definition: &mut Value, now: &str) {
        let status = definition.ensure("status");
        if status.get("conditions").and_then(Value::as_array).is_none() {
            status.set("conditions", json!([]));
        }
        let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut) else { return };
        let new = json!({
            "type": self.kind, "status": self.status, "lastTransitionTime": now, "reason": self.reason,
            "message": self.message,
        });
        match conditions.iter_mut().find(|condition| condition.text("type") == self.kind) {
            None => conditions.push(new),
            Some(old) => {
                let time = old.get("lastTransitionTime").filter(|time| !time.is_null()).cloned();
                let same = old.text("status") == self.status;
                *old = new;
                if let (true, Some(time)) = (same, time) {
                    old.set("lastTransitionTime", time);
                }
            }
        }
    }

    /// Whether a definition has it already.
    pub(crate) fn is_in(&self, definition: &Value) -> bool {
        find(definition, self.kind).is_some_and(|found| {
            found.text("status") == self.status
                && found.text("reason") == self.reason
                && found.text("message") == self.message
        })
    }
}

/// Whether a condition is there and true.
pub(crate) fn is_true(definition: &Value, kind: &str) -> bool {
    find(definition, kind).is_some_and(|condition| condition.text("status") == "True")
}

pub(crate) fn find<'a>(definition: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = definition.find(&["status", "conditions"]).and_then(Value::as_array)?;
    conditions.iter().find(|condition| condition.text("type") == kind)
}

/// Whether a kind in a group of Kubernetes' own was approved; other groups need no approval.
pub(crate) fn approval(definition: &Value) -> Option<Condition> {
    let group = definition["spec"].text("group");
    let within = |domain: &str| group == domain || group.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
    if !within("k8s.io") && !within("kubernetes.io") {
        return None;
    }
    let text = definition.find(&["metadata", "annotations", APPROVAL]).and_then(Value::as_str).unwrap_or("");
    let see = "see https://github.com/kubernetes/enhancements/pull/1111";
    Some(match text {
        "" => {
            let message = format!("protected groups must have approval annotation \"{APPROVAL}\", {see}");
            Condition::new(APPROVED, false, "MissingAnnotation", message)
        }
        text if text.starts_with("unapproved") => {
            let message = format!("not approved: {}", setpoint_api::quote::quote(text));
            Condition::new(APPROVED, false, "UnapprovedAnnotation", message)
        }
        text if is_url(text) => Condition::new(APPROVED, true, "ApprovedAnnotation", format!("approved in {text}")),
        _ => {
            let message = format!(
                "protected groups must have approval annotation \"{APPROVAL}\" with either a URL or a reason starting with \"unapproved\", {see}"
            );
            Condition::new(APPROVED, false, "InvalidAnnotation", message)
        }
    })
}

fn is_url(text: &str) -> bool {
    let is_scheme = |scheme: &str| !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric());
    text.split_once("://").is_some_and(|(scheme, rest)| is_scheme(scheme) && !rest.is_empty() && !rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_moves_with_the_status() {
        let mut object = json!({"status": {"conditions": null}});
        let time = |object: &Value| object["status"]["conditions"][0]["lastTransitionTime"].clone();
        Condition::new(ESTABLISHED, false, "Installing", "a").set(&mut object, "t1");
        Condition::new(ESTABLISHED, false, "NotAccepted", "b").set(&mut object, "t2");
        assert_eq!((time(&object), &object["status"]["conditions"][0]["reason"]), (json!("t1"), &json!("NotAccepted")));
        let established = Condition::new(ESTABLISHED, true, "InitialNamesAccepted", "c");
        established.set(&mut object, "t3");
        assert_eq!(time(&object), "t3");
        assert!(is_true(&object, ESTABLISHED) && established.is_in(&object) && !is_true(&object, TERMINATING));
    }

    #[test]
    fn only_groups_of_kubernetes_need_approval() {
        let check = |group: &str, annotation: &str, expected: Option<(&str, &str)>| {
            let object = json!({"metadata": {"annotations": {APPROVAL: annotation}}, "spec": {"group": group}});
            let found = approval(&object);
            assert_eq!(found.as_ref().map(|found| (found.status, found.reason)), expected, "{group} {annotation}");
        };
        check("example.com", "", None);
        check("notk8s.io", "", None);
        check("x.k8s.io", "https://github.com/kubernetes/enhancements/pull/1", Some(("True", "ApprovedAnnotation")));
        check("k8s.io", "unapproved, experimental", Some(("False", "UnapprovedAnnotation")));
        check("x.kubernetes.io", "", Some(("False", "MissingAnnotation")));
        check("x.kubernetes.io", "yes", Some(("False", "InvalidAnnotation")));
    }
}
