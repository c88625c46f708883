//! What the levels say about pods.

use serde_json::{Value, json};

use super::{Level, violations};
use crate::body::full;
use crate::testing::Server;

fn check(level: Level, spec: Value, expected: Option<&str>) {
    assert_eq!(violations(level, &json!({"metadata": {"name": "p"}, "spec": spec})).as_deref(), expected);
}

#[test]
fn an_ordinary_pod_is_within_the_baseline_and_not_restricted() {
    let spec = json!({"containers": [{"name": "c"}]});
    check(Level::Privileged, spec.clone(), None);
    check(Level::Baseline, spec.clone(), None);
    let expected = "allowPrivilegeEscalation != false (container \"c\" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container \"c\" must set securityContext.capabilities.drop=[\"ALL\"]), runAsNonRoot != true (pod or container \"c\" must set securityContext.runAsNonRoot=true), seccompProfile (pod or container \"c\" must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")";
    check(Level::Restricted, spec, Some(expected));
}

#[test]
fn a_hardened_pod_is_restricted() {
    let spec = json!({
        "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{"name": "c", "securityContext": {
            "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
        }}],
        "volumes": [{"name": "v", "emptyDir": {}}],
    });
    check(Level::Restricted, spec, None);
}

#[test]
fn the_ways_to_the_node_are_named() {
    let spec = json!({
        "hostNetwork": true, "hostPID": true,
        "containers": [
            {"name": "a", "ports": [{"hostPort": 1}, {"hostPort": 2}], "securityContext": {"privileged": true}},
            {"name": "b", "ports": [{"hostPort": 1}], "securityContext": {"capabilities": {"add": ["SYS_TIME", "KILL"]}}},
        ],
        "volumes": [{"name": "h", "hostPath": {"path": "/"}}],
    });
    let expected = "non-default capabilities (container \"b\" must not include \"SYS_TIME\" in securityContext.capabilities.add), host namespaces (hostNetwork=true, hostPID=true), hostPath volumes (volume \"h\"), hostPort (containers \"a\", \"b\" use hostPorts 1, 2), privileged (container \"a\" must not set securityContext.privileged=true)";
    check(Level::Baseline, spec, Some(expected));
}

#[test]
fn a_level_that_nobody_knows_is_the_strictest() {
    assert_eq!(Level::parse("basline"), Level::Restricted);
    assert_eq!(Level::parse(""), Level::Privileged);
}

#[test]
fn what_is_enforced_is_warned_of_unless_the_labels_say_otherwise() {
    let label = |name: &str| format!("pod-security.kubernetes.io/{name}");
    for (labels, expected) in [
        (json!({}), (Level::Privileged, "latest")),
        (json!({label("enforce"): "baseline", label("enforce-version"): "v1.30"}), (Level::Baseline, "v1.30")),
        (json!({label("enforce"): "restricted", label("warn"): "baseline"}), (Level::Baseline, "latest")),
        (json!({label("enforce"): "unknown"}), (Level::Privileged, "latest")),
        (json!({label("enforce"): "restricted", label("warn"): "unknown"}), (Level::Privileged, "latest")),
    ] {
        let (level, version) = super::warned(&labels, Level::Privileged);
        assert_eq!((level, &*version), expected, "{labels}");
        let (level, version) = super::warned(&labels, Level::Baseline);
        let expected = if labels == json!({}) { (Level::Baseline, "latest") } else { expected };
        assert_eq!((level, &*version), expected, "{labels}, and a level for those without");
    }
}

#[tokio::test]
async fn a_namespace_names_levels_that_there_are_and_tells_of_pods_that_are_too_free() {
    let server = Server::start().await;
    let labelled = |labels: Value| json!({"metadata": {"labels": labels}});
    let bad = json!({"pod-security.kubernetes.io/enforce": "strict", "pod-security.kubernetes.io/warn-version": "1.2"});
    let (code, message) = server.refused("PATCH", "/api/v1/namespaces/default", labelled(bad)).await;
    let expected = "Namespace \"default\" is invalid: [metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"strict\": must be one of privileged, baseline, restricted, metadata.labels[pod-security.kubernetes.io/warn-version]: Invalid value: \"1.2\": must be \"latest\" or \"v1.x\"]";
    assert_eq!((code, &*message), (422, expected));
    server.pod("a").await;
    let request = http::Request::patch("/api/v1/namespaces/default")
        .header("content-type", "application/merge-patch+json")
        .body(full(labelled(json!({"pod-security.kubernetes.io/enforce": "restricted"})).to_string()))
        .unwrap();
    let response = server.answer(request).await;
    let warnings: Vec<&str> = response.headers().get_all("warning").iter().map(|it| it.to_str().unwrap()).collect();
    let expected = [
        "299 - \"existing pods in namespace \\\"default\\\" violate the new PodSecurity enforce level \\\"restricted:latest\\\"\"",
        "299 - \"a: allowPrivilegeEscalation != false, unrestricted capabilities, runAsNonRoot != true, seccompProfile\"",
    ];
    assert_eq!(warnings, expected);
}
