//! What the levels say about pods.

use serde_json::{Value, json};

use super::{Level, violations};

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
