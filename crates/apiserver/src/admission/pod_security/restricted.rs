//! What the restricted level does not allow beyond the baseline.

use serde_json::Value;
use setpoint_schema::Edit;

use super::{Minor, Violation, baseline, containers, distinct, has_own_users, listed, named, quoted, setters};

const VOLUMES: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

/// All that the level does not allow.
pub(super) fn check(pod: &Value, minor: Minor) -> Vec<Violation> {
    let on_windows = minor.has(25) && pod["spec"]["os"].text("name") == "windows";
    let own_users = minor.has(35) && has_own_users(pod);
    let since = |first: u32, violation: Option<Violation>| violation.filter(|_| minor.has(first));
    let linux = |violation: Option<Violation>| violation.filter(|_| !on_windows);
    let of_root = |violation: Option<Violation>| violation.filter(|_| !own_users);
    let own = [
        since(8, linux(escalation(pod))),
        since(22, linux(capabilities(pod))),
        since(35, baseline::proc_mount(pod)),
        volumes(pod),
        of_root(non_root(pod)),
        since(23, of_root(user(pod))),
        since(19, linux(seccomp(pod))),
    ];
    baseline::check_kept(pod, minor).into_iter().chain(own.into_iter().flatten()).collect()
}

fn escalation(pod: &Value) -> Option<Violation> {
    let open = |container: &Value| container["securityContext"]["allowPrivilegeEscalation"] != false;
    let names = named(pod, open);
    let detail = format!("{} must set securityContext.allowPrivilegeEscalation=false", listed("container", &names));
    (!names.is_empty()).then(|| Violation::new("allowPrivilegeEscalation != false", detail))
}

fn capabilities(pod: &Value) -> Option<Violation> {
    let list = |container: &'_ Value, field: &str| -> Vec<String> {
        let all = container["securityContext"]["capabilities"][field].as_array().into_iter().flatten();
        all.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let bad = |name: &String| name != "NET_BIND_SERVICE";
    let keeps = named(pod, |container| !list(container, "drop").iter().any(|name| name == "ALL"));
    let adds = named(pod, |container| list(container, "add").iter().any(bad));
    let added: Vec<String> = containers(pod).flat_map(|container| list(container, "add")).filter(bad).collect();
    let mut details = Vec::new();
    if !keeps.is_empty() {
        details.push(format!("{} must set securityContext.capabilities.drop=[\"ALL\"]", listed("container", &keeps)));
    }
    if !adds.is_empty() {
        let added = quoted(&distinct(added.iter().map(String::as_str).collect()));
        let who = listed("container", &adds);
        details.push(format!("{who} must not include {added} in securityContext.capabilities.add"));
    }
    (!details.is_empty()).then(|| Violation::new("unrestricted capabilities", details.join("; ")))
}

fn volumes(pod: &Value) -> Option<Violation> {
    let kind = |volume: &Value| -> Option<String> {
        let fields = volume.as_object()?.keys().filter(|name| *name != "name");
        let kind = fields.into_iter().next().cloned().unwrap_or_else(|| "unknown".to_owned());
        (!VOLUMES.contains(&&*kind)).then_some(kind)
    };
    let all = || pod["spec"]["volumes"].as_array().into_iter().flatten();
    let names: Vec<&str> = all().filter(|v| kind(v).is_some()).map(|volume| volume.text("name")).collect();
    let kinds: Vec<String> = all().filter_map(kind).collect();
    let kinds = distinct(kinds.iter().map(String::as_str).collect());
    let verb = if names.len() == 1 { "uses" } else { "use" };
    let noun = if kinds.len() == 1 { "restricted volume type" } else { "restricted volume types" };
    let detail = format!("{} {verb} {noun} {}", listed("volume", &names), quoted(&kinds));
    (!names.is_empty()).then(|| Violation::new("restricted volume types", detail))
}

fn non_root(pod: &Value) -> Option<Violation> {
    let said = |holder: &Value| holder["securityContext"]["runAsNonRoot"].as_bool();
    let whole = said(&pod["spec"]);
    let explicit = named(pod, |container| said(container) == Some(false));
    let silent = named(pod, |container| said(container).is_none());
    if let Some(who) = setters(whole == Some(false), &explicit) {
        return Some(Violation::new(
            "runAsNonRoot != true",
            format!("{who} must not set securityContext.runAsNonRoot=false"),
        ));
    }
    let detail = format!("pod or {} must set securityContext.runAsNonRoot=true", listed("container", &silent));
    (whole.is_none() && !silent.is_empty()).then(|| Violation::new("runAsNonRoot != true", detail))
}

fn user(pod: &Value) -> Option<Violation> {
    let root = |holder: &Value| holder["securityContext"].number("runAsUser") == Some(0);
    let who = setters(root(&pod["spec"]), &named(pod, root))?;
    Some(Violation::new("runAsUser=0", format!("{who} must not set runAsUser=0")))
}

fn seccomp(pod: &Value) -> Option<Violation> {
    let kind = |holder: &Value| holder["securityContext"]["seccompProfile"].text("type").to_owned();
    let bad = |holder: &Value| !matches!(&*kind(holder), "" | "RuntimeDefault" | "Localhost");
    let names = named(pod, bad);
    if let Some(who) = setters(bad(&pod["spec"]), &names) {
        let all = std::iter::once(&pod["spec"]).chain(containers(pod));
        let kinds: Vec<String> = all.filter(|holder| bad(holder)).map(kind).collect();
        let kinds = quoted(&distinct(kinds.iter().map(String::as_str).collect()));
        let detail = format!("{who} must not set securityContext.seccompProfile.type to {kinds}");
        return Some(Violation::new("seccompProfile", detail));
    }
    let silent = named(pod, |container| kind(container).is_empty());
    let detail = format!(
        "pod or {} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"",
        listed("container", &silent)
    );
    (kind(&pod["spec"]).is_empty() && !silent.is_empty()).then(|| Violation::new("seccompProfile", detail))
}
