//! What the baseline level does not allow: the ways that are known to reach the node.

use serde_json::Value;
use setpoint_schema::Edit;

use super::{Violation, containers, distinct, listed, named, quoted, setters};

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
pub(super) fn check(pod: &Value) -> Vec<Violation> {
    let own = [apparmor(pod), capabilities(pod)];
    let volumes = [host_namespaces(pod), host_paths(pod)];
    let rest = [host_ports(pod), host_probes(pod), privileged(pod), proc_mount(pod), selinux(pod)];
    let last = [seccomp(pod), sysctls(pod), windows(pod)];
    own.into_iter().chain(volumes).chain(rest).chain(last).flatten().collect()
}

/// Those rules of the level that the next one takes over as they are.
pub(super) fn check_kept(pod: &Value) -> Vec<Violation> {
    let first = [apparmor(pod), host_namespaces(pod), host_ports(pod), host_probes(pod), privileged(pod)];
    let last = [proc_mount(pod), selinux(pod), sysctls(pod), windows(pod)];
    first.into_iter().chain(last).flatten().collect()
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
fn host_probes(pod: &Value) -> Option<Violation> {
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

fn proc_mount(pod: &Value) -> Option<Violation> {
    // A pod with a user namespace of its own sees nothing of the node's.
    if pod["spec"].get("hostUsers") == Some(&Value::Bool(false)) {
        return None;
    }
    let kind = |container: &Value| container["securityContext"].text("procMount").to_owned();
    let names = named(pod, |container| !matches!(&*kind(container), "" | "Default"));
    let kinds: Vec<String> = containers(pod).map(kind).filter(|kind| !matches!(&**kind, "" | "Default")).collect();
    let kinds = distinct(kinds.iter().map(String::as_str).collect());
    let detail =
        format!("{} must not set securityContext.procMount to {}", listed("container", &names), quoted(&kinds));
    (!names.is_empty()).then(|| Violation::new("procMount", detail))
}

fn selinux(pod: &Value) -> Option<Violation> {
    let options = |holder: &Value| holder["securityContext"]["seLinuxOptions"].clone();
    let bad = |options: &Value| {
        !SELINUX_TYPES.contains(&options.text("type"))
            || !options.text("user").is_empty()
            || !options.text("role").is_empty()
    };
    let names = named(pod, |container| bad(&options(container)));
    let who = setters(bad(&options(&pod["spec"])), &names)?;
    let all: Vec<Value> = std::iter::once(&pod["spec"]).chain(containers(pod)).map(options).collect();
    let types = distinct(all.iter().map(|o| o.text("type")).filter(|t| !SELINUX_TYPES.contains(t)).collect());
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

fn seccomp(pod: &Value) -> Option<Violation> {
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

fn sysctls(pod: &Value) -> Option<Violation> {
    let all = pod["spec"]["securityContext"]["sysctls"].as_array().into_iter().flatten();
    let bad: Vec<&str> = all.map(|sysctl| sysctl.text("name")).filter(|name| !SYSCTLS.contains(name)).collect();
    (!bad.is_empty()).then(|| Violation::new("forbidden sysctls", bad.join(", ")))
}

fn windows(pod: &Value) -> Option<Violation> {
    let bad = |holder: &Value| holder["securityContext"]["windowsOptions"].flag("hostProcess");
    let names = named(pod, bad);
    let who = setters(bad(&pod["spec"]), &names)?;
    Some(Violation::new("hostProcess", format!("{who} must not set securityContext.windowsOptions.hostProcess=true")))
}
