//! Pod security: a namespace says by its labels how much its pods may do to their node.

mod baseline;
mod restricted;

use serde_json::Value;
use setpoint_api::{GroupResource, Status};
use setpoint_schema::Edit;

use super::forbidden;
use crate::call::Call;
use crate::objects;

/// How much pods may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    /// Anything.
    Privileged,
    /// Nothing that is known to escalate.
    Baseline,
    /// Only what current practice holds safe.
    Restricted,
}

impl Level {
    /// What can't be read is taken as the strictest.
    fn parse(text: &str) -> Level {
        match text {
            "" | "privileged" => Level::Privileged,
            "baseline" => Level::Baseline,
            _ => Level::Restricted,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Level::Privileged => "privileged",
            Level::Baseline => "baseline",
            Level::Restricted => "restricted",
        }
    }
}

/// Something that a level does not allow: what, and where.
#[derive(Debug, PartialEq, Eq)]
struct Violation {
    what: String,
    detail: String,
}

impl Violation {
    fn new(what: &str, detail: impl Into<String>) -> Violation {
        Violation { what: what.to_owned(), detail: detail.into() }
    }
}

/// Refuses a new pod that does what its namespace does not allow, or warns of it.
pub(super) fn check(call: &mut Call<'_>, pod: &Value) -> Result<(), Box<Status>> {
    let labels = namespace_labels(call);
    let (enforced, warned) = (policy(&labels, "enforce"), policy(&labels, "warn"));
    if let Some(found) = violations(enforced.0, pod) {
        let why = format!("violates PodSecurity \"{}:{}\": {found}", enforced.0.name(), enforced.1);
        return Err(forbidden(call, pod, why));
    }
    if let Some(found) = violations(warned.0, pod) {
        let warning = format!("would violate PodSecurity \"{}:{}\": {found}", warned.0.name(), warned.1);
        call.warnings.push(warning);
    }
    Ok(())
}

/// A change matters only if it touches what the rules look at.
pub(super) fn check_change(call: &mut Call<'_>, new: &Value, old: &Value) -> Result<(), Box<Status>> {
    let judged = |pod: &Value| {
        let annotations = pod["metadata"]["annotations"].as_object().into_iter().flatten();
        let kept = annotations.filter(|(key, _)| key.starts_with("container.apparmor.security.beta.kubernetes.io/"));
        let mut spec = pod["spec"].clone();
        ["nodeName", "activeDeadlineSeconds", "tolerations", "schedulingGates", "terminationGracePeriodSeconds"]
            .iter()
            .for_each(|field| drop(spec.remove(field)));
        ["containers", "initContainers"].iter().for_each(|list| {
            spec.items_mut(list).for_each(|container| {
                container.remove("image");
            });
        });
        (spec, kept.map(|(key, value)| (key.clone(), value.clone())).collect::<Vec<_>>())
    };
    if judged(new) == judged(old) { Ok(()) } else { check(call, new) }
}

fn namespace_labels(call: &Call<'_>) -> Value {
    let namespaces = GroupResource::new("", "namespaces");
    let found = call.server.store.snapshot().get(&namespaces, None, call.namespace.unwrap_or_default());
    found.map(|namespace| objects::value(&namespace)["metadata"]["labels"].clone()).unwrap_or_default()
}

/// Level and version under one of the modes.
fn policy(labels: &Value, mode: &str) -> (Level, String) {
    let level = labels.text(&format!("pod-security.kubernetes.io/{mode}"));
    let version = labels.text(&format!("pod-security.kubernetes.io/{mode}-version"));
    let version = if version.is_empty() { "latest" } else { version };
    (Level::parse(level), version.to_owned())
}

/// What is wrong with a pod, as one text.
fn violations(level: Level, pod: &Value) -> Option<String> {
    let found = match level {
        Level::Privileged => Vec::new(),
        Level::Baseline => baseline::check(pod),
        Level::Restricted => restricted::check(pod),
    };
    let texts = found.iter().map(|violation| match &*violation.detail {
        "" => violation.what.clone(),
        detail => format!("{} ({detail})", violation.what),
    });
    let texts: Vec<String> = texts.collect();
    (!texts.is_empty()).then(|| texts.join(", "))
}

/// All containers of a pod, in the order in which messages name them.
fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    lists.into_iter().flat_map(|list| pod["spec"][list].as_array().into_iter().flatten())
}

/// Names of the containers that something holds for.
fn named(pod: &Value, is: impl Fn(&Value) -> bool) -> Vec<&str> {
    containers(pod).filter(|container| is(container)).map(|container| container.text("name")).collect()
}

/// `container "a"`, `containers "a", "b"`.
fn listed(noun: &str, names: &[&str]) -> String {
    let plural = if names.len() == 1 { "" } else { "s" };
    format!("{noun}{plural} {}", quoted(names))
}

fn quoted(names: &[&str]) -> String {
    names.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ")
}

/// Each once, in order.
fn distinct(mut names: Vec<&str>) -> Vec<&str> {
    names.sort_unstable();
    names.dedup();
    names
}

/// Pod and containers that set something: `pod and container "a"`.
fn setters(pod: bool, names: &[&str]) -> Option<String> {
    match (pod, names.is_empty()) {
        (false, true) => None,
        (true, true) => Some("pod".to_owned()),
        (false, false) => Some(listed("container", names)),
        (true, false) => Some(format!("pod and {}", listed("container", names))),
    }
}

#[cfg(test)]
mod tests;
