//! Containers of a pod: those that run, those before them, and those added later.

use std::collections::BTreeSet;

use setpoint_api::name;

use super::env::{validate_env, validate_env_from};
use super::mounts::{validate_devices, validate_mounts};
use super::options::Options;
use super::probes::{Handlers, validate_lifecycle, validate_probes};
use super::resources::{Level, validate_resources};
use super::security::validate_container_security;
use super::volumes::Volumes;
use crate::errors::Errors;
use crate::node::Node;

/// Most rules for the restart of one container.
const RESTART_RULES_MAX: usize = 20;
/// Most exit codes in one rule.
const EXIT_CODES_MAX: usize = 255;
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const PULL_POLICIES: [&str; 3] = ["Always", "IfNotPresent", "Never"];
const NOT_FOR_INIT: &str = "may not be set for init containers without restartPolicy=Always";
const POLICY_FOR_RULES: &str = "must specify restartPolicy when restart rules are used";
const NOT_FOR_EPHEMERAL: &str = "cannot be set for an Ephemeral Container";
/// Fields that a container which is added later can't have, in the order of their declaration.
const EPHEMERAL_FORBIDDEN: [&str; 9] = [
    "ports",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
];

/// What containers need to know of their pod.
#[derive(Debug)]
pub struct Surroundings<'a> {
    /// The spec of the pod.
    pub spec: Node<'a>,
    /// The volumes that are valid.
    pub volumes: Volumes<'a>,
    /// Names of resource claims.
    pub claims: BTreeSet<&'a str>,
    /// What old objects may keep.
    pub options: Options,
}

/// All containers: those before, those that run, those added later.
pub fn all<'a>(spec: &Node<'a>) -> impl Iterator<Item = Node<'a>> + use<'a> {
    spec.items("initContainers").chain(spec.items("containers")).chain(spec.items("ephemeralContainers"))
}

/// Whether an init container runs on beside the others.
pub fn is_sidecar(container: &Node<'_>) -> bool {
    container.str("restartPolicy") == "Always"
}

/// Whether an init container that is no sidecar would restart when it is resized.
pub fn restarts_on_init_resize(container: &Node<'_>) -> bool {
    !is_sidecar(container)
        && container.items("resizePolicy").any(|policy| policy.str("restartPolicy") == "RestartContainer")
}

/// The rules for all containers of a pod.
pub fn validate_containers(pod: &Surroundings<'_>, errs: &mut Errors) {
    validate_regular(pod, errs);
    validate_init(pod, errs);
    validate_ephemeral(pod, errs);
}

/// That the name of an image has no blanks around it, which templates may have.
pub fn validate_image_blanks(container: &Node<'_>, errs: &mut Errors) {
    let image = container.str("image");
    if image.trim().len() != image.len() {
        errs.invalid(&container.get("image"), image, "must not have leading or trailing whitespace");
    }
}

/// `Always`, `IfNotPresent` or `Never`.
pub fn validate_pull_policy(at: &Node<'_>, errs: &mut Errors) {
    match at.as_str() {
        "" => errs.required(at, ""),
        policy if !PULL_POLICIES.contains(&policy) => errs.not_supported(at, policy, &PULL_POLICIES),
        _ => {}
    }
}

fn validate_regular(pod: &Surroundings<'_>, errs: &mut Errors) {
    let list = pod.spec.get("containers");
    if list.is_empty() {
        errs.required(&list, "");
        return;
    }
    let handlers = Handlers::of(&pod.spec);
    let mut names = BTreeSet::new();
    for container in list.clone().into_items() {
        validate_common(&container, pod, errs);
        if !names.insert(container.str("name")) {
            errs.duplicate(&container.get("name"), container.str("name"));
        }
        validate_lifecycle(&container, &handlers, errs);
        validate_probes(&container, &handlers, errs);
        validate_restart(&container, errs);
    }
    validate_host_ports(list.into_items(), errs);
}

fn validate_init(pod: &Surroundings<'_>, errs: &mut Errors) {
    let handlers = Handlers::of(&pod.spec);
    let mut names: BTreeSet<&str> = pod.spec.items("containers").map(|container| container.str("name")).collect();
    let list = pod.spec.get("initContainers");
    for container in list.clone().into_items() {
        validate_common(&container, pod, errs);
        if container.has("restartPolicy") {
            validate_restart(&container, errs);
        } else if container.count("restartPolicyRules") > 0 {
            errs.required(&container.get("restartPolicy"), POLICY_FOR_RULES);
        }
        let name = container.str("name");
        if names.contains(name) {
            errs.duplicate(&container.get("name"), name);
        } else if !name.is_empty() {
            names.insert(name);
        }
        // Each is alone when it runs; upstream then calls it the first of its list.
        validate_host_ports(std::iter::once(container.at(format!("{}[0]", list.path()))), errs);
        if is_sidecar(&container) {
            validate_lifecycle(&container, &handlers, errs);
            validate_probes(&container, &handlers, errs);
        } else {
            for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
                if container.has(field) {
                    errs.forbidden(&container.get(field), NOT_FOR_INIT);
                }
            }
            if !pod.options.restart_on_init_resize {
                validate_init_resize(&container, errs);
            }
        }
    }
}

fn validate_init_resize(container: &Node<'_>, errs: &mut Errors) {
    for policy in container.items("resizePolicy").filter(|policy| policy.str("restartPolicy") == "RestartContainer") {
        let detail = "must not be set to 'RestartContainer' for non-sidecar initContainers";
        errs.invalid(&policy.get("restartPolicy"), "RestartContainer", detail);
    }
}

fn validate_ephemeral(pod: &Surroundings<'_>, errs: &mut Errors) {
    let others: BTreeSet<&str> = pod
        .spec
        .items("containers")
        .chain(pod.spec.items("initContainers"))
        .map(|container| container.str("name"))
        .collect();
    let mut names = others.clone();
    for container in pod.spec.items("ephemeralContainers") {
        validate_common(&container, pod, errs);
        validate_image_blanks(&container, errs);
        let (name, target) = (container.str("name"), container.str("targetContainerName"));
        if !names.insert(name) {
            errs.duplicate(&container.get("name"), name);
        }
        if !target.is_empty() && !others.contains(target) {
            errs.not_found(&container.get("targetContainerName"), target);
        }
        for field in EPHEMERAL_FORBIDDEN {
            let at = container.get(field);
            if at.is_set() && (field != "resources" || !at.is_empty()) {
                errs.forbidden(&at, NOT_FOR_EPHEMERAL);
            }
        }
        for mount in container.items("volumeMounts") {
            for field in ["subPath", "subPathExpr"] {
                if !mount.str(field).is_empty() {
                    errs.forbidden(&mount.get(field), NOT_FOR_EPHEMERAL);
                }
            }
        }
    }
}

fn validate_common(container: &Node<'_>, pod: &Surroundings<'_>, errs: &mut Errors) {
    let name = container.str("name");
    if name.is_empty() {
        errs.required(&container.get("name"), "");
    } else {
        errs.invalid_each(&container.get("name"), name, name::dns1123_label(name));
    }
    if container.str("image").is_empty() {
        errs.required(&container.get("image"), "");
    }
    let message_policy = container.get("terminationMessagePolicy");
    match message_policy.as_str() {
        "File" | "FallbackToLogsOnError" => {}
        "" => errs.required(&message_policy, ""),
        other => errs.not_supported(&message_policy, other, &["File", "FallbackToLogsOnError"]),
    }
    validate_ports(&container.get("ports"), errs);
    validate_env(&container.get("env"), errs);
    validate_env_from(&container.get("envFrom"), errs);
    validate_mounts(container, &pod.volumes, errs);
    validate_devices(container, &pod.volumes, errs);
    validate_pull_policy(&container.get("imagePullPolicy"), errs);
    validate_resources(&container.get("resources"), Level::Container, &pod.claims, &pod.options, errs);
    validate_resize_policy(&container.get("resizePolicy"), pod.spec.str("restartPolicy"), errs);
    let host_users = pod.spec.maybe_bool("hostUsers").unwrap_or(true);
    validate_container_security(&container.get("securityContext"), host_users, errs);
}

fn validate_ports(ports: &Node<'_>, errs: &mut Errors) {
    let mut names = BTreeSet::new();
    for port in ports.clone().into_items() {
        let name = port.str("name");
        if !name.is_empty() {
            let complaints = name::port_name(name);
            if !complaints.is_empty() {
                errs.invalid_each(&port.get("name"), name, complaints);
            } else if !names.insert(name) {
                errs.duplicate(&port.get("name"), name);
            }
        }
        let number = port.int("containerPort").unwrap_or(0);
        if number == 0 {
            errs.required(&port.get("containerPort"), "");
        } else {
            validate_port(&port.get("containerPort"), number, errs);
        }
        if let Some(number) = port.int("hostPort").filter(|number| *number != 0) {
            validate_port(&port.get("hostPort"), number, errs);
        }
        let protocol = port.get("protocol");
        if protocol.as_str().is_empty() {
            errs.required(&protocol, "");
        } else if !PROTOCOLS.contains(&protocol.as_str()) {
            errs.not_supported(&protocol, protocol.as_str(), &PROTOCOLS);
        }
    }
}

/// A port from 1 to 65535.
pub fn validate_port(at: &Node<'_>, number: i64, errs: &mut Errors) {
    for complaint in name::is_valid_port_num(number) {
        errs.invalid(at, number, complaint);
    }
}

/// That no two containers want the same port of the host.
fn validate_host_ports<'a>(containers: impl Iterator<Item = Node<'a>>, errs: &mut Errors) {
    let mut taken = BTreeSet::new();
    for port in containers.flat_map(|container| container.items("ports")) {
        let Some(number) = port.int("hostPort").filter(|number| *number != 0) else { continue };
        let address = format!("{}/{}/{number}", port.str("protocol"), port.str("hostIP"));
        if taken.contains(&address) {
            errs.duplicate(&port.get("hostPort"), address);
        } else {
            taken.insert(address);
        }
    }
}

fn validate_resize_policy(policies: &Node<'_>, pod_restart_policy: &str, errs: &mut Errors) {
    let mut seen = BTreeSet::new();
    for policy in policies.clone().into_items() {
        let here = |field| policy.get(field).at(policies.path());
        let (resource, restart) = (here("resourceName"), here("restartPolicy"));
        if !seen.insert(resource.as_str()) {
            errs.duplicate(&policy, setpoint_api::BadValue::json(&resource.as_str().into()));
        }
        match resource.as_str() {
            "cpu" | "memory" => {}
            "" => errs.required(policies, ""),
            other => errs.not_supported(&resource, other, &["cpu", "memory"]),
        }
        match restart.as_str() {
            "NotRequired" | "RestartContainer" => {}
            "" => errs.required(policies, ""),
            other => errs.not_supported(&restart, other, &["NotRequired", "RestartContainer"]),
        }
        if pod_restart_policy == "Never" && restart.as_str() != "NotRequired" {
            let detail = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
            errs.invalid(&restart, restart.as_str(), detail);
        }
    }
}

/// The rules for when a container is started again.
fn validate_restart(container: &Node<'_>, errs: &mut Errors) {
    const POLICIES: [&str; 3] = ["Always", "Never", "OnFailure"];
    let (policy, rules) = (container.get("restartPolicy"), container.get("restartPolicyRules"));
    if !policy.is_set() {
        if rules.is_empty() {
            return;
        }
        errs.required(&policy, POLICY_FOR_RULES);
    } else if !POLICIES.contains(&policy.as_str()) {
        errs.not_supported(&policy, policy.as_str(), &POLICIES);
    }
    let count = rules.clone().into_items().len();
    if count > RESTART_RULES_MAX {
        errs.too_many(&rules, count, RESTART_RULES_MAX);
    }
    rules.into_items().for_each(|rule| validate_restart_rule(&rule, errs));
}

fn validate_restart_rule(rule: &Node<'_>, errs: &mut Errors) {
    const ACTIONS: [&str; 2] = ["Restart", "RestartAllContainers"];
    let (action, codes) = (rule.get("action"), rule.get("exitCodes"));
    if !ACTIONS.contains(&action.as_str()) {
        errs.not_supported(&action, action.as_str(), &ACTIONS);
    }
    if !codes.is_set() {
        errs.required(&codes, "must be specified");
        return;
    }
    let operator = codes.get("operator");
    if !["In", "NotIn"].contains(&operator.as_str()) {
        errs.not_supported(&operator, operator.as_str(), &["In", "NotIn"]);
    }
    if codes.count("values") > EXIT_CODES_MAX {
        errs.too_many(&codes.get("values"), codes.count("values"), EXIT_CODES_MAX);
    }
}
