//! What the levels say about pods.

use serde_json::{Value, json};

use super::{Level, violations};
use crate::body::full;
use crate::testing::Server;

fn check(level: Level, spec: Value, expected: Option<&str>) {
    check_at(level, "latest", spec, expected);
}

fn check_at(level: Level, version: &str, spec: Value, expected: Option<&str>) {
    let pod = json!({"metadata": {"name": "p"}, "spec": spec});
    assert_eq!(violations(level, version, &pod).as_deref(), expected, "{version}");
}

/// Each rule that was added or changed by a version, on both sides of that version.
#[test]
fn a_version_has_the_rules_of_its_time() {
    let container = |more: Value| {
        let mut container = json!({"name": "c", "securityContext": {
            "allowPrivilegeEscalation": false, "runAsNonRoot": true, "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        }});
        more.as_object().unwrap().iter().for_each(|(name, value)| container["securityContext"][name] = value.clone());
        json!({"containers": [container]})
    };
    let with = |more: Value, field: &str, value: Value| {
        let mut spec = container(more);
        spec[field] = value;
        spec
    };
    let sysctl = |name: &str| with(json!({}), "securityContext", json!({"sysctls": [{"name": name, "value": "1"}]}));
    let selinux = with(json!({}), "securityContext", json!({"seLinuxOptions": {"type": "container_engine_t"}}));
    let mut probe = container(json!({}));
    probe["containers"][0]["livenessProbe"] = json!({"httpGet": {"host": "192.0.2.1", "port": 1}});
    let windows = |more: Value| with(more, "os", json!({"name": "windows"}));
    let open = json!({"allowPrivilegeEscalation": null, "capabilities": null, "seccompProfile": null});
    let own_users = |more: Value| with(more, "hostUsers", json!(false));
    use Level::{Baseline, Restricted};
    // Until the first version the first answer, from then on the second.
    for (level, since, spec, before, after) in [
        (Restricted, 8, container(json!({"allowPrivilegeEscalation": null})), None, Some("allowPrivilegeEscalation")),
        (Restricted, 19, container(json!({"seccompProfile": null})), None, Some("seccompProfile")),
        (Baseline, 19, container(json!({"seccompProfile": {"type": "Unconfined"}})), None, Some("seccompProfile")),
        (Restricted, 22, container(json!({"capabilities": null})), None, Some("unrestricted capabilities")),
        (Restricted, 23, container(json!({"runAsUser": 0})), None, Some("runAsUser=0")),
        (Restricted, 25, windows(open), Some("allowPrivilegeEscalation"), None),
        (Baseline, 27, sysctl("net.ipv4.ip_local_reserved_ports"), Some("forbidden sysctls"), None),
        (Baseline, 29, sysctl("net.ipv4.tcp_keepalive_time"), Some("forbidden sysctls"), None),
        (Baseline, 32, sysctl("net.ipv4.tcp_rmem"), Some("forbidden sysctls"), None),
        (Baseline, 31, selinux, Some("seLinuxOptions"), None),
        (Baseline, 34, probe, None, Some("probe or lifecycle host")),
        (Baseline, 35, own_users(json!({"procMount": "Unmasked"})), Some("procMount"), None),
        (Restricted, 35, own_users(json!({"runAsNonRoot": false, "runAsUser": 0})), Some("runAsNonRoot"), None),
    ] {
        for (version, expected) in [
            (format!("v1.{}", since - 1), before),
            (format!("v1.{since}"), after),
            ("v1.99".to_owned(), after),
            ("latest".to_owned(), after),
            ("unreadable".to_owned(), after),
        ] {
            let pod = json!({"metadata": {"name": "p"}, "spec": spec});
            let found = violations(level, &version, &pod);
            let is_expected = match (&found, expected) {
                (None, None) => true,
                (Some(found), Some(expected)) => found.starts_with(expected),
                _ => false,
            };
            assert!(is_expected, "{version} {spec}: {found:?}");
        }
    }
    // What a pod of its own users may do under the baseline stays forbidden to the restricted ones.
    let unmasked = own_users(json!({"procMount": "Unmasked"}));
    let expected = "procMount (container \"c\" must not set securityContext.procMount to \"Unmasked\")";
    for version in ["v1.34", "v1.35", "latest"] {
        check_at(Restricted, version, unmasked.clone(), Some(expected));
    }
}

#[test]
fn before_there_were_fields_for_it_annotations_counted() {
    let annotations = json!({
        "seccomp.security.alpha.kubernetes.io/pod": "unconfined",
        "container.seccomp.security.alpha.kubernetes.io/c": "docker/default",
    });
    let pod = json!({"metadata": {"annotations": annotations}, "spec": {"containers": [{"name": "c"}]}});
    let expected =
        "seccompProfile (forbidden annotation seccomp.security.alpha.kubernetes.io/pod=\"unconfined\")".to_owned();
    assert_eq!(violations(Level::Baseline, "v1.18", &pod), Some(expected));
    assert_eq!(violations(Level::Baseline, "v1.19", &pod), None);
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
