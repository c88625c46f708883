//! What a pod gets if its author doesn't say.

use serde_json::{Map, Value, json};

use super::image_name::is_latest;
use super::resources::{aggregate, is_pod_level};
use crate::builtin::core::resource_list::{allows_overcommit, is_huge_page, round_up};
use crate::edit::Edit;

/// Files in volumes are readable by all unless said otherwise: 0644.
const FILE_MODE: i32 = 0o644;
/// The lists of containers of a pod.
pub const CONTAINER_LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];
/// Annotations of a time before init containers were fields.
const INIT_CONTAINER_ANNOTATIONS: [&str; 4] = [
    "pod.beta.kubernetes.io/init-containers",
    "pod.alpha.kubernetes.io/init-containers",
    "pod.beta.kubernetes.io/init-container-statuses",
    "pod.alpha.kubernetes.io/init-container-statuses",
];

/// Fills in what the author of a pod left out.
pub fn default_pod(pod: &mut Value) {
    drop_init_container_annotations(pod);
    let spec = pod.ensure("spec");
    for list in ["containers", "initContainers"] {
        spec.items_mut(list).filter_map(|container| container.child("resources")).for_each(request_what_is_limited);
    }
    default_pod_resources(spec);
    fill(spec, "enableServiceLinks", true);
    if spec.flag("hostNetwork") {
        for list in ["containers", "initContainers"] {
            spec.items_mut(list).for_each(open_ports_on_host);
        }
    }
    if spec.number("terminationGracePeriodSeconds").is_some_and(|seconds| seconds < 0) {
        spec.set("terminationGracePeriodSeconds", 1);
    }
    default_spec(spec);
    if let Some(status) = pod.child("status") {
        default_status(status);
    }
}

/// Fills in what the author of a `PodTemplateSpec` left out.
pub fn default_template(template: &mut Value) {
    drop_init_container_annotations(template);
    default_spec(template.ensure("spec"));
}

/// Fills in what the author of a `PodSpec` left out, in a pod and in a template.
pub fn default_spec(spec: &mut Value) {
    spec.default_to("dnsPolicy", "ClusterFirst");
    spec.default_to("restartPolicy", "Always");
    spec.ensure("securityContext");
    fill(spec, "terminationGracePeriodSeconds", 30);
    spec.default_to("schedulerName", "default-scheduler");
    let account =
        [spec.text("serviceAccountName"), spec.text("serviceAccount")].into_iter().find(|name| !name.is_empty());
    if let Some(account) = account.map(str::to_owned) {
        spec.set("serviceAccountName", account.as_str());
        spec.set("serviceAccount", account);
    }
    spec.items_mut("volumes").for_each(default_volume);
    for list in CONTAINER_LISTS {
        spec.items_mut(list).for_each(default_container);
    }
    round_up(spec.child("overhead"));
    spec.child("resources").into_iter().for_each(round_up_resources);
}

fn default_container(container: &mut Value) {
    let policy = pull_policy(container.text("image"));
    container.default_to("imagePullPolicy", policy);
    container.default_to("terminationMessagePath", "/dev/termination-log");
    container.default_to("terminationMessagePolicy", "File");
    container.items_mut("ports").for_each(|port| port.default_to("protocol", "TCP"));
    for source in container.items_mut("env").filter_map(|env| env.child("valueFrom")) {
        source.child("fieldRef").into_iter().for_each(default_field_ref);
        source.child("fileKeyRef").into_iter().for_each(|file| fill(file, "optional", false));
    }
    container.child("resources").into_iter().for_each(round_up_resources);
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        container.child(probe).into_iter().for_each(default_probe);
    }
    for hook in ["postStart", "preStop"] {
        container.find_mut(&["lifecycle", hook, "httpGet"]).into_iter().for_each(default_http_get);
    }
}

fn default_probe(probe: &mut Value) {
    for (name, value) in
        [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
    {
        if probe.number(name).unwrap_or(0) == 0 {
            probe.set(name, value);
        }
    }
    probe.child("httpGet").into_iter().for_each(default_http_get);
    probe.child("grpc").into_iter().for_each(|grpc| fill(grpc, "service", ""));
}

fn default_http_get(action: &mut Value) {
    action.default_to("path", "/");
    action.default_to("scheme", "HTTP");
}

fn default_field_ref(reference: &mut Value) {
    reference.default_to("apiVersion", "v1");
}

fn default_volume(volume: &mut Value) {
    let has_source =
        volume.as_object().is_some_and(|fields| fields.iter().any(|(name, value)| name != "name" && !value.is_null()));
    if !has_source {
        volume.set("emptyDir", json!({}));
    }
    if let Some(image) = volume.child("image") {
        let policy = pull_policy(image.text("reference"));
        image.default_to("pullPolicy", policy);
    }
    volume.child("hostPath").into_iter().for_each(|path| fill(path, "type", ""));
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        volume.child(source).into_iter().for_each(|source| fill(source, "defaultMode", FILE_MODE));
    }
    volume.child("downwardAPI").into_iter().for_each(default_downward_items);
    if let Some(projected) = volume.child("projected") {
        for source in projected.items_mut("sources") {
            source.child("downwardAPI").into_iter().for_each(default_downward_items);
            source.child("serviceAccountToken").into_iter().for_each(|token| fill(token, "expirationSeconds", 3600));
        }
    }
    if let Some(claim) = volume.find_mut(&["ephemeral", "volumeClaimTemplate"]) {
        let spec = claim.ensure("spec");
        fill(spec, "volumeMode", "Filesystem");
        spec.child("resources").into_iter().for_each(round_up_resources);
    }
    default_remote_volume(volume);
}

fn default_remote_volume(volume: &mut Value) {
    volume.child("iscsi").into_iter().for_each(|iscsi| iscsi.default_to("iscsiInterface", "default"));
    if let Some(rbd) = volume.child("rbd") {
        rbd.default_to("pool", "rbd");
        rbd.default_to("user", "admin");
        rbd.default_to("keyring", "/etc/ceph/keyring");
    }
    if let Some(disk) = volume.child("azureDisk") {
        fill(disk, "cachingMode", "ReadWrite");
        fill(disk, "fsType", "ext4");
        fill(disk, "readOnly", false);
        fill(disk, "kind", "Shared");
    }
    if let Some(scale_io) = volume.child("scaleIO") {
        scale_io.default_to("storageMode", "ThinProvisioned");
        scale_io.default_to("fsType", "xfs");
    }
}

fn default_downward_items(source: &mut Value) {
    source.items_mut("items").filter_map(|item| item.child("fieldRef")).for_each(default_field_ref);
}

fn default_status(status: &mut Value) {
    let first = status.find(&["podIPs"]).and_then(|ips| ips.get(0)).map(|ip| ip.text("ip").to_owned());
    let single = status.text("podIP").to_owned();
    match first {
        Some(first) if single.is_empty() => status.set("podIP", first),
        Some(first) if first == single => {}
        _ if single.is_empty() => {}
        _ => status.set("podIPs", json!([{"ip": single}])),
    }
    for list in ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"] {
        for container in status.items_mut(list) {
            round_up(container.child("allocatedResources"));
            container.child("resources").into_iter().for_each(round_up_resources);
        }
    }
    round_up(status.child("allocatedResources"));
    status.child("resources").into_iter().for_each(round_up_resources);
}

/// A container that is limited asks for as much, unless it says what it asks for.
fn request_what_is_limited(resources: &mut Value) {
    let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned() else { return };
    let requests = resources.ensure("requests");
    for (name, amount) in limits {
        fill(requests, &name, amount);
    }
}

/// A pod that is limited as a whole asks for what its containers ask for, else for its limits.
fn default_pod_resources(spec: &mut Value) {
    let count =
        |spec: &Value, side: &str| spec.find(&["resources", side]).and_then(Value::as_object).map_or(0, Map::len);
    if count(spec, "limits") + count(spec, "requests") == 0 {
        return;
    }
    let limits = aggregate(spec, "limits");
    for (name, amount) in limits.iter().filter(|(name, _)| is_huge_page(name)) {
        if !spec["resources"]["requests"].has(name) {
            fill(spec["resources"].ensure("limits"), name, amount.to_string());
        }
    }
    if count(spec, "limits") == 0 {
        return;
    }
    let requests = aggregate(spec, "requests");
    let limits = spec["resources"]["limits"].as_object().cloned().unwrap_or_default();
    let mut wanted: Vec<(String, Value)> = Vec::new();
    wanted.extend(
        requests
            .into_iter()
            .filter(|(n, _)| is_pod_level(n) && allows_overcommit(n))
            .map(|(n, q)| (n, json!(q.to_string()))),
    );
    wanted.extend(limits.into_iter().filter(|(name, _)| is_pod_level(name)));
    for (name, amount) in wanted {
        fill(spec["resources"].ensure("requests"), &name, amount);
    }
}

fn open_ports_on_host(container: &mut Value) {
    for port in container.items_mut("ports") {
        if port.number("hostPort").unwrap_or(0) == 0 {
            let number = port.number("containerPort");
            port.set_or_remove("hostPort", number.filter(|number| *number != 0).map(Value::from));
        }
    }
}

fn drop_init_container_annotations(object: &mut Value) {
    if let Some(annotations) = object.find_mut(&["metadata", "annotations"]) {
        for name in INIT_CONTAINER_ANNOTATIONS {
            annotations.remove(name);
        }
    }
}

fn round_up_resources(resources: &mut Value) {
    round_up(resources.child("limits"));
    round_up(resources.child("requests"));
}

fn pull_policy(image: &str) -> &'static str {
    if is_latest(image) { "Always" } else { "IfNotPresent" }
}

/// Sets a field that is absent. Other than [`Edit::default_to`], an empty text that was given stays.
fn fill(object: &mut Value, name: &str, value: impl Into<Value>) {
    if !object.has(name) {
        object.set(name, value);
    }
}
