//! Pod security: a namespace says by its labels how much its pods may do to their node.

mod baseline;
pub(super) mod namespace;
mod restricted;

use std::sync::atomic::Ordering;

use serde_json::Value;
use setpoint_api::{GroupResource, Status};
use setpoint_schema::Edit;

use super::forbidden;
use crate::call::Call;
use crate::objects;

/// How much pods may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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

/// The minor version of Kubernetes whose rules are held against pods. What a namespace knows of later ones are today's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Minor(u32);

impl Minor {
    /// The rules of today.
    const LATEST: Minor = Minor(36);

    /// From `latest` or `v1.30`. What can't be read is the latest.
    fn parse(text: &str) -> Minor {
        let minor = text.strip_prefix("v1.").and_then(|minor| minor.parse().ok());
        minor.map_or(Minor::LATEST, |minor| Minor(minor).min(Minor::LATEST))
    }

    /// Whether these are rules of this minor version or a later one.
    fn has(self, since: u32) -> bool {
        self.0 >= since
    }
}

/// Whether a pod has a user namespace of its own: its root is nobody on the node.
fn has_own_users(pod: &Value) -> bool {
    pod["spec"].get("hostUsers") == Some(&Value::Bool(false))
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
    let enforced = policy(&labels, "enforce");
    if let Some(found) = violations(enforced.0, &enforced.1, pod) {
        let why = format!("violates PodSecurity \"{}:{}\": {found}", enforced.0.name(), enforced.1);
        return Err(forbidden(call, pod, why));
    }
    warn(call, &labels, pod);
    Ok(())
}

/// Warns of pods to come: those of a template are refused only when they are made.
pub(super) fn check_template(call: &mut Call<'_>, object: &Value) {
    let template = match &*call.kind().kind {
        "PodTemplate" => &object["template"],
        "CronJob" => &object["spec"]["jobTemplate"]["spec"]["template"],
        _ => &object["spec"]["template"],
    };
    if call.subresource.is_none() && template.is_object() {
        let labels = namespace_labels(call);
        warn(call, &labels, template);
    }
}

fn warn(call: &mut Call<'_>, labels: &Value, pod: &Value) {
    let (level, version) = warned(labels, unlabelled(call));
    if let Some(found) = violations(level, &version, pod) {
        call.warnings.push(format!("would violate PodSecurity \"{}:{version}\": {found}", level.name()));
    }
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

/// The level that is warned of in a namespace whose labels name none. The system's own pods need their nodes.
fn unlabelled(call: &Call<'_>) -> Level {
    let warns = call.server.warns_of_risky_pods.load(Ordering::Relaxed) && call.namespace != Some("kube-system");
    if warns { Level::Baseline } else { Level::Privileged }
}

/// Level and version of what is warned of: what is enforced, unless the labels say otherwise.
fn warned(labels: &Value, unlabelled: Level) -> (Level, String) {
    let text = |name: &str| labels.text(&format!("pod-security.kubernetes.io/{name}"));
    let (enforced, mut warned) = (policy(labels, "enforce"), policy(labels, "warn"));
    if labels.has("pod-security.kubernetes.io/warn") {
        // A level that nobody knows is warned of by nobody.
        return if is_level(text("warn")) { warned } else { (Level::Privileged, warned.1) };
    }
    if !labels.has("pod-security.kubernetes.io/enforce") {
        warned.0 = unlabelled;
    }
    if is_level(text("enforce")) && enforced.0 > warned.0 {
        warned.0 = enforced.0;
        if !labels.has("pod-security.kubernetes.io/warn-version") {
            warned.1 = enforced.1;
        }
    }
    warned
}

fn is_level(text: &str) -> bool {
    matches!(text, "privileged" | "baseline" | "restricted")
}

/// What is wrong with a pod under the rules of a level at a version.
fn found(level: Level, version: &str, pod: &Value) -> Vec<Violation> {
    let minor = Minor::parse(version);
    match level {
        Level::Privileged => Vec::new(),
        Level::Baseline => baseline::check(pod, minor),
        Level::Restricted => restricted::check(pod, minor),
    }
}

/// What is wrong with a pod, as one text.
fn violations(level: Level, version: &str, pod: &Value) -> Option<String> {
    let found = found(level, version, pod);
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
