//! Admission through the whole server.

use serde_json::{Value, json};
use setpoint_schema::Edit;

use super::{Plugin, UnknownPlugin};
use crate::testing::Server;

const PODS: &str = "/api/v1/namespaces/default/pods";

#[tokio::test(start_paused = true)]
async fn a_pod_needs_a_service_account() {
    let server = Server::start().await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let (code, message) = server.refused("POST", PODS, pod.clone()).await;
    let expected = "pods \"p\" is forbidden: error looking up service account default/default: serviceaccount \"default\" not found";
    assert_eq!((code, &*message), (403, expected));
    let mut other = pod;
    other["spec"]["serviceAccountName"] = json!("/a%");
    let (code, message) = server.refused("POST", PODS, other).await;
    let expected = "pods \"p\" is forbidden: error looking up service account default//a%: invalid resource name \"/a%\": [may not contain '/' may not contain '%']";
    assert_eq!((code, &*message), (403, expected));
}

#[tokio::test(start_paused = true)]
async fn rules_that_are_left_out_add_nothing_and_refuse_nothing() {
    let server = Server::start().await;
    server.api.leave_out(Plugin::ALL.to_vec());
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let made = server.done("POST", PODS, pod).await;
    let absent = |field: &str| !made["spec"].has(field);
    assert!(absent("serviceAccountName") && absent("volumes") && absent("tolerations"), "{made}");
    let volume = json!({
        "metadata": {"name": "v"},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/v"}},
    });
    let made = server.done("POST", "/api/v1/persistentvolumes", volume).await;
    assert!(!made["metadata"].has("finalizers"), "{made}");
}

#[test]
fn only_rules_that_add_can_be_left_out() {
    for plugin in Plugin::ALL {
        assert_eq!(plugin.name().parse(), Ok(plugin));
    }
    assert_eq!("NodeRestriction".parse::<Plugin>(), Err(UnknownPlugin));
}

#[tokio::test]
async fn a_pod_gets_its_token_tolerations_and_priority() {
    let server = Server::start().await;
    let pod = server.pod("p").await;
    let spec = &pod["spec"];
    assert_eq!((spec.text("serviceAccountName"), spec.number("priority")), ("default", Some(0)));
    let volume = spec["volumes"][0].text("name");
    assert!(volume.starts_with("kube-api-access-"), "{volume}");
    assert_eq!(spec["containers"][0]["volumeMounts"][0].text("name"), volume);
    let keys: Vec<&str> = spec["tolerations"].as_array().unwrap().iter().map(|t| t.text("key")).collect();
    assert_eq!(keys, ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]);
}

#[tokio::test]
async fn the_class_of_a_pod_decides_its_priority() {
    let server = Server::start().await;
    server.pod("other").await;
    let pod = |spec: Value| {
        let mut pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        spec.as_object().unwrap().iter().for_each(|(field, value)| pod["spec"].set(field, value.clone()));
        pod
    };
    let (code, message) = server.refused("POST", PODS, pod(json!({"priorityClassName": "none"}))).await;
    assert_eq!((code, &*message), (403, "pods \"p\" is forbidden: no PriorityClass with name none was found"));
    let (code, _) = server.refused("POST", PODS, pod(json!({"priority": 5}))).await;
    assert_eq!(code, 403);
    let made = server.done("POST", PODS, pod(json!({"priorityClassName": "system-node-critical"}))).await;
    assert_eq!(made["spec"].number("priority"), Some(2_000_001_000));
}

#[tokio::test]
async fn the_systems_namespaces_are_not_deleted() {
    let server = Server::start().await;
    let (code, message) = server.refused("DELETE", "/api/v1/namespaces/kube-system", Value::Null).await;
    assert_eq!((code, &*message), (403, "namespaces \"kube-system\" is forbidden: this namespace may not be deleted"));
}

#[tokio::test]
async fn a_claim_gets_the_newest_default_class_and_is_protected() {
    let server = Server::start().await;
    let class = json!({
        "metadata": {"name": "fast", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "example.com/disk",
    });
    server.done("POST", "/apis/storage.k8s.io/v1/storageclasses", class).await;
    let claim = json!({
        "metadata": {"name": "c"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    let claim = server.done("POST", "/api/v1/namespaces/default/persistentvolumeclaims", claim).await;
    assert_eq!(claim["spec"].text("storageClassName"), "fast");
    assert_eq!(claim["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
}

fn sized_pod(name: &str, resources: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]}})
}

#[tokio::test]
async fn containers_get_the_defaults_of_their_namespace_and_stay_within_its_bounds() {
    let server = Server::start().await;
    server.pod("other").await;
    let range = json!({"metadata": {"name": "r"}, "spec": {"limits": [
        {"type": "Container", "max": {"cpu": "2", "memory": "1Gi"}, "min": {"cpu": "100m"},
         "default": {"cpu": "500m", "memory": "512Mi"}, "defaultRequest": {"cpu": "200m"}, "maxLimitRequestRatio": {"cpu": "10"}},
        {"type": "Pod", "max": {"cpu": "2"}},
        {"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "10Gi"}}]}});
    server.done("POST", "/api/v1/namespaces/default/limitranges", range).await;
    let made = server.done("POST", PODS, sized_pod("p", json!({}))).await;
    let limits = json!({"cpu": "500m", "memory": "512Mi"});
    let resources = json!({"limits": limits, "requests": {"cpu": "200m", "memory": "512Mi"}});
    assert_eq!(made["spec"]["containers"][0]["resources"], resources);
    assert_eq!(
        made["metadata"]["annotations"]["kubernetes.io/limit-ranger"],
        "LimitRanger plugin set: cpu, memory request for container c; cpu, memory limit for container c"
    );
    for (resources, expected) in [
        (json!({"requests": {"cpu": "50m"}}), "minimum cpu usage per Container is 100m, but request is 50m"),
        (
            json!({"limits": {"cpu": "3"}, "requests": {"cpu": "1"}}),
            "[maximum cpu usage per Container is 2, but limit is 3, maximum cpu usage per Pod is 2, but limit is 3]",
        ),
        (
            json!({"limits": {"cpu": "2"}, "requests": {"cpu": "100m"}}),
            "cpu max limit to request ratio per Container is 10, but provided ratio is 20.000000",
        ),
    ] {
        let (code, message) = server.refused("POST", PODS, sized_pod("q", resources)).await;
        assert_eq!((code, message), (403, format!("pods \"q\" is forbidden: {expected}")));
    }
    let claim = json!({"metadata": {"name": "c"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "20Gi"}}}});
    let (code, message) = server.refused("POST", "/api/v1/namespaces/default/persistentvolumeclaims", claim).await;
    let expected = "persistentvolumeclaims \"c\" is forbidden: maximum storage usage per PersistentVolumeClaim is 10Gi, but request is 20Gi";
    assert_eq!((code, &*message), (403, expected));
}

const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";

/// A quota whose controller has counted nothing yet.
async fn quota(server: &Server, name: &str, hard: Value, spec: Value) {
    let mut quota = json!({"metadata": {"name": name}, "spec": spec});
    quota["spec"]["hard"] = hard.clone();
    server.done("POST", QUOTAS, quota).await;
    let used: Value = hard.as_object().unwrap().keys().map(|name| (name.clone(), json!("0"))).collect();
    let status = json!({"status": {"hard": hard, "used": used}});
    server.done("PATCH", &format!("{QUOTAS}/{name}/status"), status).await;
}

async fn used(server: &Server, name: &str) -> Value {
    server.done("GET", &format!("{QUOTAS}/{name}"), Value::Null).await["status"]["used"].clone()
}

#[tokio::test]
async fn a_quota_is_never_overdrawn_however_many_write_at_once() {
    let server = Server::start().await;
    quota(&server, "q", json!({"configmaps": "5", "count/configmaps": "7"}), json!({})).await;
    let write = |number: usize| {
        let map = json!({"metadata": {"name": format!("m{number}")}});
        server.send("POST", "/api/v1/namespaces/default/configmaps", map)
    };
    let answers = futures_util::future::join_all((0..20).map(write)).await;
    let codes: Vec<u16> = answers.iter().map(|(code, _)| *code).collect();
    assert_eq!(codes.iter().filter(|code| **code == 201).count(), 5, "{codes:?}");
    assert_eq!(used(&server, "q").await, json!({"configmaps": "5", "count/configmaps": "5"}));
    let map = json!({"metadata": {"name": "more"}});
    let (code, message) = server.refused("POST", "/api/v1/namespaces/default/configmaps?dryRun=All", map).await;
    let expected = "configmaps \"more\" is forbidden: exceeded quota: q, requested: configmaps=1, used: configmaps=5, limited: configmaps=5";
    assert_eq!((code, &*message), (403, expected));
}

#[tokio::test]
async fn a_write_that_fails_takes_nothing_of_a_quota() {
    let server = Server::start().await;
    quota(&server, "q", json!({"count/secrets": "2"}), json!({})).await;
    let secret = json!({"metadata": {"name": "s"}});
    server.done("POST", "/api/v1/namespaces/default/secrets", secret.clone()).await;
    let (code, _) = server.refused("POST", "/api/v1/namespaces/default/secrets", secret).await;
    assert_eq!((code, used(&server, "q").await), (409, json!({"count/secrets": "1"})));
}

#[tokio::test]
async fn pods_say_what_they_take_of_a_quota() {
    let server = Server::start().await;
    server.pod("other").await;
    quota(&server, "q", json!({"pods": "3", "requests.cpu": "1", "limits.memory": "1Gi"}), json!({})).await;
    let (code, message) = server.refused("POST", PODS, sized_pod("p", json!({}))).await;
    let expected = "pods \"p\" is forbidden: failed quota: q: must specify limits.memory for: c; requests.cpu for: c";
    assert_eq!((code, &*message), (403, expected));
    let pod = |cpu: &str| sized_pod("p", json!({"requests": {"cpu": cpu}, "limits": {"memory": "512Mi"}}));
    let (_, message) = server.refused("POST", PODS, pod("1500m")).await;
    let expected = "pods \"p\" is forbidden: exceeded quota: q, requested: requests.cpu=1500m, used: requests.cpu=0, limited: requests.cpu=1";
    assert_eq!(message, expected);
    server.done("POST", PODS, pod("400m")).await;
    assert_eq!(used(&server, "q").await, json!({"limits.memory": "512Mi", "pods": "1", "requests.cpu": "400m"}));
}

#[tokio::test]
async fn scopes_choose_the_pods_that_a_quota_counts() {
    let server = Server::start().await;
    server.pod("other").await;
    quota(&server, "best", json!({"pods": "1"}), json!({"scopes": ["BestEffort"]})).await;
    quota(&server, "short", json!({"pods": "0"}), json!({"scopes": ["Terminating"]})).await;
    server.done("POST", PODS, sized_pod("a", json!({"requests": {"cpu": "1"}}))).await;
    assert_eq!(used(&server, "best").await, json!({"pods": "0"}));
    server.done("POST", PODS, sized_pod("b", json!({}))).await;
    assert_eq!(used(&server, "best").await, json!({"pods": "1"}));
    let (code, message) = server.refused("POST", PODS, sized_pod("c", json!({}))).await;
    assert_eq!((code, message.contains("exceeded quota: best")), (403, true));
    let deadline = json!({"spec": {"activeDeadlineSeconds": 5}});
    let (code, message) = server.refused("PATCH", &format!("{PODS}/a"), deadline).await;
    assert_eq!((code, message.contains("exceeded quota: short")), (403, true), "{message}");
}

#[tokio::test]
async fn an_update_takes_only_what_is_more_than_before() {
    let server = Server::start().await;
    let hard = json!({"services": "2", "services.nodeports": "2", "services.loadbalancers": "0"});
    quota(&server, "q", hard, json!({})).await;
    let services = "/api/v1/namespaces/default/services";
    let port = |port: u16| json!({"name": format!("p{port}"), "port": port});
    let service = json!({"metadata": {"name": "s"}, "spec": {"type": "NodePort", "ports": [port(1)]}});
    server.done("POST", services, service).await;
    let ports = json!({"spec": {"ports": [port(1), port(2)]}});
    server.done("PATCH", &format!("{services}/s"), ports).await;
    let expected = json!({"services": "1", "services.loadbalancers": "0", "services.nodeports": "2"});
    assert_eq!(used(&server, "q").await, expected);
    let balancer = json!({"spec": {"type": "LoadBalancer"}});
    let (code, message) = server.refused("PATCH", &format!("{services}/s"), balancer).await;
    let expected = "services \"s\" is forbidden: exceeded quota: q, requested: services.loadbalancers=1, used: services.loadbalancers=0, limited: services.loadbalancers=0";
    assert_eq!((code, &*message), (403, expected));
}

#[tokio::test]
async fn a_quota_that_nobody_has_counted_yet_holds_what_it_counts() {
    let server = Server::start().await;
    server.done("POST", QUOTAS, json!({"metadata": {"name": "q"}, "spec": {"hard": {"configmaps": "5"}}})).await;
    server.done("PATCH", &format!("{QUOTAS}/q/status"), json!({"status": {"hard": {"configmaps": "5"}}})).await;
    let map = json!({"metadata": {"name": "m"}});
    let (code, message) = server.refused("POST", "/api/v1/namespaces/default/configmaps", map).await;
    let expected = "configmaps \"m\" is forbidden: status unknown for quota: q, resources: configmaps";
    assert_eq!((code, &*message), (403, expected));
}

#[tokio::test]
async fn a_running_pod_grows_as_far_as_its_node_has_room() {
    let server = Server::start().await;
    server.pod("other").await;
    let node = json!({"metadata": {"name": "n", "labels": {"kubernetes.io/os": "linux"}}});
    server.done("POST", "/api/v1/nodes", node).await;
    let status = json!({"status": {"allocatable": {"cpu": "2", "memory": "1Gi", "pods": "5"}}});
    server.done("PATCH", "/api/v1/nodes/n/status", status).await;
    let mut pod = sized_pod("p", json!({"requests": {"cpu": "1"}}));
    pod["spec"]["nodeName"] = json!("n");
    server.done("POST", PODS, pod).await;
    let grown = |cpu: &str| {
        let resources = json!({"requests": {"cpu": cpu}});
        json!({"spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]}})
    };
    let mut request = http::Request::new(crate::body::full(grown("3").to_string()));
    *request.method_mut() = http::Method::PATCH;
    *request.uri_mut() = format!("{PODS}/p/resize").parse().unwrap();
    let media = "application/strategic-merge-patch+json".parse().unwrap();
    request.headers_mut().insert(http::header::CONTENT_TYPE, media);
    let (code, answer) = server.ask(request).await;
    let expected = "pods \"p\" is forbidden: node didn't have enough allocatable resources: cpu, requested: 3000, allocatable: 2000";
    assert_eq!((code, answer.text("message")), (403, expected));
}

#[tokio::test]
async fn admin_access_to_devices_needs_a_marked_namespace() {
    let server = Server::start().await;
    let claims = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
    let exactly = json!({"deviceClassName": "gpu.example.com", "adminAccess": true});
    let claim =
        json!({"metadata": {"name": "c"}, "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}});
    let (code, message) = server.refused("POST", claims, claim.clone()).await;
    let expected = "ResourceClaim.resource.k8s.io \"c\" is invalid: spec.devices.requests[0].adminAccess: Forbidden: admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace";
    assert_eq!((code, &*message), (422, expected));
    let marked = json!({"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}});
    server.done("PATCH", "/api/v1/namespaces/default", marked).await;
    server.done("POST", claims, claim).await;
}

/// CVE-2020-8554, for every way to write a Service: whoever may could draw the traffic of others.
#[tokio::test]
async fn a_service_gets_no_new_external_addresses_unless_the_server_takes_them() {
    let server = Server::start().await;
    let services = "/api/v1/namespaces/default/services";
    let service = |name: &str, addresses: &[&str]| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
               "spec": {"ports": [{"port": 80}], "externalIPs": addresses}})
    };
    let denied = |name: &str| {
        (403, format!("services \"{name}\" is forbidden: Use of external IPs is denied by admission control"))
    };
    assert_eq!(server.refused("POST", services, service("s", &["192.0.2.1"])).await, denied("s"));
    server.done("POST", services, service("plain", &[])).await;
    let plain = format!("{services}/plain");
    let added = json!({"spec": {"externalIPs": ["192.0.2.1"]}});
    for (kind, body) in [
        ("application/merge-patch+json", added.clone()),
        ("application/strategic-merge-patch+json", added.clone()),
        ("application/json-patch+json", json!([{"op": "add", "path": "/spec/externalIPs", "value": ["192.0.2.1"]}])),
        ("application/apply-patch+yaml", service("plain", &["192.0.2.1"])),
    ] {
        let path = if kind.contains("apply") { format!("{plain}?fieldManager=m&force=true") } else { plain.clone() };
        let request = http::Request::patch(path).header("content-type", kind);
        let (code, answer) = server.ask(request.body(crate::body::full(body.to_string())).unwrap()).await;
        assert_eq!((code, answer.text("message").to_owned()), denied("plain"), "{kind}");
    }
    let mut whole = server.done("GET", &plain, Value::Null).await;
    whole["spec"].set("externalIPs", json!(["192.0.2.1"]));
    assert_eq!(server.refused("PUT", &plain, whole).await, denied("plain"));

    server.api.leave_out(vec![Plugin::DenyServiceExternalIPs]);
    server.done("POST", services, service("open", &["192.0.2.1", "192.0.2.2"])).await;
}
