//! What the baseline level does not allow: the ways that are known to reach the node.

use serde_json::Value;
use setpoint_api::quote::quote;
use setpoint_schema::Edit;

use super::{Minor, Violation, containers, distinct, has_own_users, listed, named, quoted, setters};

const CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

const SYSCTLS: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
];

const SELINUX_TYPES: [&str; 5] = ["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"];

/// All that the level does not allow.
pub(super) fn check(pod: &Value, minor: Minor) -> Vec<Violation> {
    let own = [apparmor(pod), capabilities(pod)];
    let volumes = [host_namespaces(pod), host_paths(pod)];
    let unmasked = proc_mount(pod).filter(|_| !minor.has(35) || !has_own_users(pod));
    let rest = [host_ports(pod), host_probes(pod, minor), privileged(pod), unmasked, selinux(pod, minor)];
    let last = [seccomp(pod, minor), sysctls(pod, minor), windows(pod)];
    own.into_iter().chain(volumes).chain(rest).chain(last).flatten().collect()
}

/// Those rules of the level that the next one takes over as they are.
pub(super) fn check_kept(pod: &Value, minor: Minor) -> Vec<Violation> {
    let until = |minor_after: u32, violation: Option<Violation>| violation.filter(|_| !minor.has(minor_after));
    let own = [apparmor(pod), until(22, capabilities(pod)), host_namespaces(pod), host_ports(pod)];
    let rest = [host_probes(pod, minor), privileged(pod), until(35, proc_mount(pod)), selinux(pod, minor)];
    let last = [until(19, seccomp(pod, minor)), sysctls(pod, minor), windows(pod)];
    own.into_iter().chain(rest).chain(last).flatten().collect()
}

fn apparmor(pod: &Value) -> Option<Violation> {
    let bad = |holder: &Value| {
        let kind = holder["securityContext"]["appArmorProfile"].text("type");
        !kind.is_empty() && !matches!(kind, "RuntimeDefault" | "Localhost")
    };
    let names = named(pod, bad);
    let mut who: Vec<String> = setters(bad(&pod["spec"]), &names).into_iter().collect();
    let mut values: Vec<&str> = Vec::new();
    if !who.is_empty() {
        values.push("Unconfined");
    }
    let prefix = "container.apparmor.security.beta.kubernetes.io/";
    for (key, value) in pod["metadata"]["annotations"].as_object().into_iter().flatten() {
        let value = value.as_str().unwrap_or_default();
        let allowed = value.is_empty() || value == "runtime/default" || value.starts_with("localhost/");
        if key.starts_with(prefix) && !allowed {
            who.push(format!("annotation \"{key}\""));
            values.push(value);
        }
    }
    let values = distinct(values);
    let what = if values.len() > 1 { "forbidden AppArmor profiles" } else { "forbidden AppArmor profile" };
    let detail = format!("{} must not set AppArmor profile type to {}", who.join(" and "), quoted(&values));
    (!who.is_empty()).then(|| Violation::new(what, detail))
}

fn added(container: &Value) -> Vec<&str> {
    let added = container["securityContext"]["capabilities"]["add"].as_array().into_iter().flatten();
    added.filter_map(Value::as_str).collect()
}

fn capabilities(pod: &Value) -> Option<Violation> {
    let bad = |container: &Value| added(container).iter().any(|name| !CAPABILITIES.contains(name));
    let names = named(pod, bad);
    let all = containers(pod).flat_map(added).filter(|name| !CAPABILITIES.contains(name)).collect();
    let detail = format!(
        "{} must not include {} in securityContext.capabilities.add",
        listed("container", &names),
        quoted(&distinct(all))
    );
    (!names.is_empty()).then(|| Violation::new("non-default capabilities", detail))
}

fn host_namespaces(pod: &Value) -> Option<Violation> {
    let used = ["hostNetwork", "hostPID", "hostIPC"].into_iter().filter(|field| pod["spec"].flag(field));
    let used: Vec<String> = used.map(|field| format!("{field}=true")).collect();
    (!used.is_empty()).then(|| Violation::new("host namespaces", used.join(", ")))
}

fn host_paths(pod: &Value) -> Option<Violation> {
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten().filter(|volume| volume.has("hostPath"));
    let names: Vec<&str> = volumes.map(|volume| volume.text("name")).collect();
    (!names.is_empty()).then(|| Violation::new("hostPath volumes", listed("volume", &names)))
}

fn host_ports(pod: &Value) -> Option<Violation> {
    let ports = |container: &Value| -> Vec<i64> {
        let ports = container["ports"].as_array().into_iter().flatten();
        ports.filter_map(|port| port.number("hostPort")).filter(|port| *port != 0).collect()
    };
    let names = named(pod, |container| !ports(container).is_empty());
    let all: Vec<String> = containers(pod).flat_map(ports).map(|port| port.to_string()).collect();
    let all = distinct(all.iter().map(String::as_str).collect());
    let verb = if names.len() == 1 { "uses" } else { "use" };
    let noun = if all.len() == 1 { "hostPort" } else { "hostPorts" };
    let detail = format!("{} {verb} {noun} {}", listed("container", &names), all.join(", "));
    (!names.is_empty()).then(|| Violation::new("hostPort", detail))
}

/// Probes and hooks that talk to another host than the pod.
fn host_probes(pod: &Value, minor: Minor) -> Option<Violation> {
    if !minor.has(34) {
        return None;
    }
    let hosts = |container: &Value| -> Vec<String> {
        let handlers = [
            &container["livenessProbe"],
            &container["readinessProbe"],
            &container["startupProbe"],
            &container["lifecycle"]["postStart"],
            &container["lifecycle"]["preStop"],
        ];
        let hosts = handlers
            .into_iter()
            .flat_map(|handler| [handler["httpGet"].text("host"), handler["tcpSocket"].text("host")]);
        hosts.filter(|host| !matches!(*host, "" | "127.0.0.1" | "::1")).map(str::to_owned).collect()
    };
    let names = named(pod, |container| !hosts(container).is_empty());
    let all: Vec<String> = containers(pod).flat_map(hosts).collect();
    let all = distinct(all.iter().map(String::as_str).collect());
    let verb = if names.len() == 1 { "uses" } else { "use" };
    let noun = if all.len() == 1 { "probe or lifecycle host" } else { "probe or lifecycle hosts" };
    let detail = format!("{} {verb} {noun} {}", listed("container", &names), quoted(&all));
    (!names.is_empty()).then(|| Violation::new("probe or lifecycle host", detail))
}

fn privileged(pod: &Value) -> Option<Violation> {
    let names = named(pod, |container| container["securityContext"].flag("privileged"));
    let detail = format!("{} must not set securityContext.privileged=true", listed("container", &names));
    (!names.is_empty()).then(|| Violation::new("privileged", detail))
}

pub(super) fn proc_mount(pod: &Value) -> Option<Violation> {
    let kind = |container: &Value| container["securityContext"].text("procMount").to_owned();
    let names = named(pod, |container| !matches!(&*kind(container), "" | "Default"));
    let kinds: Vec<String> = containers(pod).map(kind).filter(|kind| !matches!(&**kind, "" | "Default")).collect();
    let kinds = distinct(kinds.iter().map(String::as_str).collect());
    let detail =
        format!("{} must not set securityContext.procMount to {}", listed("container", &names), quoted(&kinds));
    (!names.is_empty()).then(|| Violation::new("procMount", detail))
}

fn selinux(pod: &Value, minor: Minor) -> Option<Violation> {
    let allowed = if minor.has(31) { &SELINUX_TYPES[..] } else { &SELINUX_TYPES[..4] };
    let options = |holder: &Value| holder["securityContext"]["seLinuxOptions"].clone();
    let bad = |options: &Value| {
        !allowed.contains(&options.text("type")) || !options.text("user").is_empty() || !options.text("role").is_empty()
    };
    let names = named(pod, |container| bad(&options(container)));
    let who = setters(bad(&options(&pod["spec"])), &names)?;
    let all: Vec<Value> = std::iter::once(&pod["spec"]).chain(containers(pod)).map(options).collect();
    let types = distinct(all.iter().map(|o| o.text("type")).filter(|t| !allowed.contains(t)).collect());
    let mut parts = Vec::new();
    if !types.is_empty() {
        let noun = if types.len() == 1 { "type" } else { "types" };
        parts.push(format!("{noun} {}", quoted(&types)));
    }
    for field in ["user", "role"] {
        if all.iter().any(|options| !options.text(field).is_empty()) {
            parts.push(format!("{field} may not be set"));
        }
    }
    let detail = format!("{who} set forbidden securityContext.seLinuxOptions: {}", parts.join("; "));
    Some(Violation::new("seLinuxOptions", detail))
}

fn seccomp(pod: &Value, minor: Minor) -> Option<Violation> {
    if !minor.has(19) {
        return seccomp_annotations(pod);
    }
    let kind = |holder: &Value| holder["securityContext"]["seccompProfile"].text("type").to_owned();
    let bad = |holder: &Value| !matches!(&*kind(holder), "" | "RuntimeDefault" | "Localhost");
    let names = named(pod, bad);
    let who = setters(bad(&pod["spec"]), &names)?;
    let kinds: Vec<String> =
        std::iter::once(&pod["spec"]).chain(containers(pod)).filter(|holder| bad(holder)).map(kind).collect();
    let kinds = distinct(kinds.iter().map(String::as_str).collect());
    let detail = format!("{who} must not set securityContext.seccompProfile.type to {}", quoted(&kinds));
    Some(Violation::new("seccompProfile", detail))
}

/// Where it stood before there was a field for it.
fn seccomp_annotations(pod: &Value) -> Option<Violation> {
    let own = "seccomp.security.alpha.kubernetes.io/pod".to_owned();
    let of_containers = containers(pod)
        .map(|container| format!("container.seccomp.security.alpha.kubernetes.io/{}", container.text("name")));
    let annotations = &pod["metadata"]["annotations"];
    let bad = |key: String| {
        let value = annotations.get(&key)?.as_str()?;
        let allowed = matches!(value, "runtime/default" | "docker/default") || value.starts_with("localhost/");
        (!allowed).then(|| format!("{key}={}", quote(value)))
    };
    let found: Vec<String> = std::iter::once(own).chain(of_containers).filter_map(bad).collect();
    let found = distinct(found.iter().map(String::as_str).collect());
    let noun = if found.len() == 1 { "annotation" } else { "annotations" };
    let detail = format!("forbidden {noun} {}", found.join(", "));
    (!found.is_empty()).then(|| Violation::new("seccompProfile", detail))
}

fn sysctls(pod: &Value, minor: Minor) -> Option<Violation> {
    // They came in this order.
    let allowed = match minor {
        minor if minor.has(32) => &SYSCTLS[..],
        minor if minor.has(29) => &SYSCTLS[..10],
        minor if minor.has(27) => &SYSCTLS[..6],
        _ => &SYSCTLS[..5],
    };
    let all = pod["spec"]["securityContext"]["sysctls"].as_array().into_iter().flatten();
    let bad: Vec<&str> = all.map(|sysctl| sysctl.text("name")).filter(|name| !allowed.contains(name)).collect();
    (!bad.is_empty()).then(|| Violation::new("forbidden sysctls", bad.join(", ")))
}

fn windows(pod: &Value) -> Option<Violation> {
    let bad = |holder: &Value| holder["securityContext"]["windowsOptions"].flag("hostProcess");
    let names = named(pod, bad);
    let who = setters(bad(&pod["spec"]), &names)?;
    Some(Violation::new("hostProcess", format!("{who} must not set securityContext.windowsOptions.hostProcess=true")))
}
