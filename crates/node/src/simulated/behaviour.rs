//! What a container does, by its spec and by the annotations of its pod.

use std::time::Duration;

use setpoint_runtime::cache::Pairs;

use super::command::{self, End};
use super::identity::ANNOTATIONS;
use super::pod::Container;

/// What a container does once its pod is on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behaviour {
    /// Whether its image can be pulled.
    pub has_image: bool,
    /// How it ends; it runs on without.
    pub end: Option<End>,
    /// How long after its start it is ready; never without.
    pub ready_after: Option<Duration>,
}

/// Tags that say that there is no such image.
const MISSING: [&str; 3] = ["404", "nonexistent", "non-existent"];

/// What a container of a pod with these annotations does.
pub fn of(container: &Container, annotations: &Pairs) -> Behaviour {
    let words: Vec<Box<str>> = container.command.iter().chain(&container.args).cloned().collect();
    let chosen = end_by(annotations);
    let end = if container.is_sidecar() { None } else { chosen.or_else(|| command::end_of(&words)) };
    Behaviour { has_image: !is_missing(&container.image), end, ready_after: ready_after(container, annotations) }
}

/// What an init container does: it ends well unless its command says otherwise, for that is what it is there for.
pub fn of_init(container: &Container) -> Behaviour {
    let none = Pairs::default();
    let found = of(container, &none);
    match container.is_sidecar() {
        true => found,
        false => {
            let end = found.end.unwrap_or(End { after: Duration::ZERO, code: 0 });
            Behaviour { end: Some(end), ready_after: None, ..found }
        }
    }
}

/// A time among the annotations.
pub fn span(annotations: &Pairs, name: &str) -> Option<Duration> {
    text(annotations, name).and_then(command::span)
}

fn end_by(annotations: &Pairs) -> Option<End> {
    if text(annotations, "crash-loop") == Some("true") {
        return Some(End { after: Duration::from_secs(1), code: 1 });
    }
    let (after, code) = (span(annotations, "run-for"), text(annotations, "exit-code").and_then(|it| it.parse().ok()));
    (after.is_some() || code.is_some())
        .then(|| End { after: after.unwrap_or_default(), code: code.unwrap_or_default() })
}

fn ready_after(container: &Container, annotations: &Pairs) -> Option<Duration> {
    if text(annotations, "never-ready") == Some("true") {
        return None;
    }
    let Some(probe) = &container.readiness_probe else {
        return Some(span(annotations, "ready-delay").unwrap_or_default());
    };
    let fails = probe.exec.as_ref().and_then(|exec| command::end_of(&exec.command)).is_some_and(|end| end.code != 0);
    let delay = Duration::from_secs(u64::try_from(probe.initial_delay_seconds).unwrap_or_default());
    (!fails).then(|| span(annotations, "ready-delay").unwrap_or(delay))
}

fn text<'a>(annotations: &'a Pairs, name: &str) -> Option<&'a str> {
    annotations.get(&format!("{ANNOTATIONS}{name}"))
}

fn is_missing(image: &str) -> bool {
    let name = image.rsplit('/').next().unwrap_or(image);
    let tag = name.split_once(':').map_or("", |(_, tag)| tag.split('@').next().unwrap_or(tag));
    MISSING.iter().any(|missing| tag.contains(missing))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(
        container: serde_json::Value,
        annotations: serde_json::Value,
        expected: (bool, Option<(u64, i32)>, Option<u64>),
    ) {
        let container: Container = serde_json::from_value(container).unwrap();
        let annotations: Pairs = serde_json::from_value(annotations).unwrap();
        let found = of(&container, &annotations);
        let end = found.end.map(|end| (end.after.as_secs(), end.code));
        assert_eq!((found.has_image, end, found.ready_after.map(|it| it.as_secs())), expected, "{container:?}");
    }

    #[test]
    fn spec_and_annotations_choose() {
        let image = |image: &str| json!({"name": "a", "image": image});
        check(image("nginx"), json!({}), (true, None, Some(0)));
        check(image("nginx:404"), json!({}), (false, None, Some(0)));
        check(image("registry:5000/nginx:non-existent-1"), json!({}), (false, None, Some(0)));
        check(image("nonexistent/nginx:1"), json!({}), (true, None, Some(0)));
        check(json!({"image": "a", "command": ["sleep"], "args": ["5"]}), json!({}), (true, Some((5, 0)), Some(0)));
        check(image("a"), json!({"simulated.setpoint.dev/exit-code": "3"}), (true, Some((0, 3)), Some(0)));
        check(image("a"), json!({"simulated.setpoint.dev/run-for": "1m"}), (true, Some((60, 0)), Some(0)));
        check(image("a"), json!({"simulated.setpoint.dev/crash-loop": "true"}), (true, Some((1, 1)), Some(0)));
        check(image("a"), json!({"simulated.setpoint.dev/never-ready": "true"}), (true, None, None));
        let probed = |command: &str| json!({"image": "a", "readinessProbe": {"initialDelaySeconds": 7, "exec": {"command": [command]}}});
        check(probed("true"), json!({}), (true, None, Some(7)));
        check(probed("false"), json!({}), (true, None, None));
    }
}
