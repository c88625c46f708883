//! What is different on Windows.

use setpoint_api::name;

use super::containers;
use crate::errors::Errors;
use crate::node::Node;

const CREDENTIAL_KIB_MAX: usize = 64;
const DOMAIN_BYTES_MAX: usize = 256;
const USER_BYTES_MAX: usize = 104;
const NOT_ON_WINDOWS: &str = "cannot be set for a windows pod";
/// Fields of a pod's security context that Linux alone has, and those of the spec that upstream counts among them.
const POD_FIELDS: [(&str, bool); 15] = [
    ("appArmorProfile", true),
    ("seLinuxOptions", true),
    ("hostUsers", false),
    ("hostPID", false),
    ("hostIPC", false),
    ("seccompProfile", true),
    ("fsGroup", true),
    ("fsGroupChangePolicy", true),
    ("sysctls", true),
    ("shareProcessNamespace", false),
    ("runAsUser", true),
    ("runAsGroup", true),
    ("supplementalGroups", true),
    ("supplementalGroupsPolicy", true),
    ("seLinuxChangePolicy", true),
];
const CONTAINER_FIELDS: [&str; 10] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
];

/// The rules for the operating system that a pod names.
pub fn validate_os(spec: &Node<'_>, errs: &mut Errors) {
    let os = spec.get("os");
    if !os.is_set() {
        return;
    }
    match os.str("name") {
        "" => errs.required(&os.get("name"), ""),
        "linux" => validate_linux(spec, errs),
        "windows" => validate_windows(spec, errs),
        other => errs.not_supported(&os.get("name").at(os.path()), other, &["linux", "windows"]),
    }
}

/// The rules for options that only Windows has.
pub fn validate_windows_options(options: &Node<'_>, errs: &mut Errors) {
    if !options.is_set() {
        return;
    }
    let (spec_name, spec, user) =
        (options.get("gmsaCredentialSpecName"), options.get("gmsaCredentialSpec"), options.get("runAsUserName"));
    if spec_name.is_set() {
        errs.invalid_each(&spec_name, spec_name.as_str(), name::dns1123_subdomain(spec_name.as_str()));
    }
    if spec.is_set() && spec.as_str().is_empty() {
        errs.invalid(&spec, "", "gmsaCredentialSpec cannot be an empty string");
    } else if spec.as_str().len() > CREDENTIAL_KIB_MAX * 1024 {
        errs.invalid_here(&spec, format!("gmsaCredentialSpec size must be under {CREDENTIAL_KIB_MAX} KiB"));
    }
    if user.is_set() {
        validate_user_name(&user, errs);
    }
}

/// That all containers run on the host or none, and then with its network.
pub fn validate_host_processes(spec: &Node<'_>, errs: &mut Errors) {
    let of_pod = spec.get("securityContext").get("windowsOptions").maybe_bool("hostProcess");
    let (mut all, mut on_host) = (0, 0);
    for container in containers::all(spec) {
        all += 1;
        let at = container.get("securityContext").get("windowsOptions").get("hostProcess");
        let own = at.as_bool();
        if let (Some(pod), Some(own)) = (of_pod, own)
            && pod != own
        {
            errs.invalid(&at, own, format!("pod hostProcess value must be identical if both are specified, was {pod}"));
        }
        on_host += usize::from(own.or(of_pod) == Some(true));
    }
    if on_host == 0 {
        return;
    }
    if on_host != all {
        let detail = "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        errs.invalid(spec, "", detail);
    }
    if !spec.bool("hostNetwork") {
        let detail = "hostNetwork must be true if pod contains any hostProcess containers";
        errs.invalid(&spec.get("hostNetwork"), false, detail);
    }
}

fn validate_linux(spec: &Node<'_>, errs: &mut Errors) {
    let contexts = containers::all(spec).map(|container| container.get("securityContext"));
    for context in std::iter::once(spec.get("securityContext")).chain(contexts) {
        let options = context.get("windowsOptions");
        if options.is_set() {
            errs.forbidden(&options, "windows options cannot be set for a linux pod");
        }
    }
}

fn validate_windows(spec: &Node<'_>, errs: &mut Errors) {
    let context = spec.get("securityContext");
    for (field, in_context) in POD_FIELDS {
        let at = if in_context { context.get(field) } else { spec.get(field) };
        if at.is_set() && (at.as_bool() != Some(false) || matches!(field, "hostUsers" | "shareProcessNamespace")) {
            errs.forbidden(&at, NOT_ON_WINDOWS);
        }
    }
    for context in containers::all(spec).map(|container| container.get("securityContext")) {
        for field in CONTAINER_FIELDS {
            if context.has(field) {
                errs.forbidden(&context.get(field), NOT_ON_WINDOWS);
            }
        }
    }
}

fn validate_user_name(at: &Node<'_>, errs: &mut Errors) {
    let text = at.as_str();
    if text.is_empty() {
        errs.invalid(at, text, "runAsUserName cannot be an empty string");
        return;
    }
    if text.bytes().any(|byte| byte.is_ascii_control()) {
        errs.invalid(at, text, "runAsUserName cannot contain control characters");
        return;
    }
    if text.matches('\\').count() > 1 {
        errs.invalid(at, text, "runAsUserName cannot contain more than one backslash");
        return;
    }
    let (domain, user) = text.split_once('\\').map_or((None, text), |(domain, user)| (Some(domain), user));
    if domain.is_some_and(|domain| domain.len() >= DOMAIN_BYTES_MAX) {
        errs.invalid(at, text, format!("runAsUserName's Domain length must be under {DOMAIN_BYTES_MAX} characters"));
    }
    if domain.is_some_and(|domain| !is_net_bios(domain) && !is_dns(domain)) {
        errs.invalid(at, text, "runAsUserName's Domain doesn't match the NetBios nor the DNS format");
    }
    if user.is_empty() {
        errs.invalid(at, text, "runAsUserName's User cannot be empty");
    } else if user.len() > USER_BYTES_MAX {
        let detail = format!("runAsUserName's User length must not be longer than {USER_BYTES_MAX} characters");
        errs.invalid(at, text, detail);
    }
    if !user.is_empty() && user.chars().all(|letter| letter == '.' || letter == ' ') {
        errs.invalid(at, text, "runAsUserName's User cannot contain only periods or spaces");
    }
    if user.contains(['"', '/', '\\', ':', ';', '|', '=', ',', '+', '*', '?', '<', '>', '@', '[', ']']) {
        let detail = r#"runAsUserName's User cannot contain the following characters: "/\:;|=,+*?<>@[]"#;
        errs.invalid(at, text, detail);
    }
}

fn is_net_bios(domain: &str) -> bool {
    let letters = domain.chars().count();
    (1..=15).contains(&letters)
        && !domain.starts_with('.')
        && !domain.contains(['\\', '/', ':', '*', '?', '"', '<', '>', '|'])
}

fn is_dns(domain: &str) -> bool {
    domain.split('.').all(|label| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    })
}
