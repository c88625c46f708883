//! Security contexts: of a pod and of its containers.

use std::collections::BTreeSet;

use setpoint_api::name;

use super::options::Options;
use super::volumes::validate_descending_path;
use super::windows::validate_windows_options;
use crate::errors::Errors;
use crate::node::Node;

/// Longest name of a sysctl.
const SYSCTL_BYTES_MAX: usize = 253;
/// Longest path to a profile of AppArmor: the longest path of Linux without its end.
const PROFILE_BYTES_MAX: usize = 4095;
const SYSCTL_FORM: &str = "must have at most 253 characters and match regex \
                           ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
const PROFILE_TYPES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];

/// The rules for the security context of a pod.
pub fn validate_pod_security(spec: &Node<'_>, options: &Options, errs: &mut Errors) {
    let context = spec.get("securityContext");
    validate_group(&context.get("fsGroup"), errs);
    validate_user(&context.get("runAsUser"), errs);
    validate_group(&context.get("runAsGroup"), errs);
    context.items("supplementalGroups").for_each(|group| validate_group(&group, errs));
    if spec.bool("shareProcessNamespace") && spec.bool("hostPID") {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        errs.invalid(&context.at_child("shareProcessNamespace"), true, detail);
    }
    validate_sysctls(spec, options, errs);
    validate_word(&context.get("fsGroupChangePolicy"), &["Always", "OnRootMismatch"], errs);
    validate_seccomp(&context.get("seccompProfile"), errs);
    validate_windows_options(&context.get("windowsOptions"), errs);
    validate_app_armor(&context.get("appArmorProfile"), errs);
    validate_word(&context.get("supplementalGroupsPolicy"), &["Merge", "Strict"], errs);
    let policies: &[&str] =
        if options.any_selinux_change_policy { &["MountOption", "Recursive"] } else { &["Recursive"] };
    validate_word(&context.get("seLinuxChangePolicy"), policies, errs);
}

/// The rules for the security context of a container.
pub fn validate_container_security(context: &Node<'_>, host_users: bool, errs: &mut Errors) {
    if !context.is_set() {
        return;
    }
    validate_user(&context.get("runAsUser"), errs);
    validate_group(&context.get("runAsGroup"), errs);
    let proc_mount = context.get("procMount");
    validate_word(&proc_mount, &["Default", "Unmasked"], errs);
    if host_users && proc_mount.as_str() == "Unmasked" {
        errs.invalid(&proc_mount, "Unmasked", "`hostUsers` must be false to use `Unmasked`");
    }
    validate_seccomp(&context.get("seccompProfile"), errs);
    if context.maybe_bool("allowPrivilegeEscalation") == Some(false) {
        if context.bool("privileged") {
            errs.invalid_here(context, "cannot set `allowPrivilegeEscalation` to false and `privileged` to true");
        }
        for _ in context.get("capabilities").strings("add").filter(|added| *added == "CAP_SYS_ADMIN") {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            errs.invalid_here(context, detail);
        }
    }
    validate_windows_options(&context.get("windowsOptions"), errs);
    validate_app_armor(&context.get("appArmorProfile"), errs);
}

/// The rules for a profile of AppArmor.
pub fn validate_app_armor(profile: &Node<'_>, errs: &mut Errors) {
    if !profile.is_set() {
        return;
    }
    let (kind, local) = (profile.get("type"), profile.get("localhostProfile"));
    match kind.as_str() {
        "Localhost" => validate_local_profile(&local, errs),
        "RuntimeDefault" | "Unconfined" => {
            if local.is_set() {
                errs.invalid_here(&local, "can only be set when AppArmor type is Localhost");
            }
        }
        "" => errs.required(&kind, "type is required when appArmorProfile is set"),
        other => errs.not_supported(&kind, other, &PROFILE_TYPES),
    }
}

/// That a sysctl is not one of a namespace that the pod shares with its host.
pub fn validate_host_sysctl(sysctl: &Node<'_>, spec: &Node<'_>, errs: &mut Errors) {
    let name = sysctl.str("name");
    let detail = match namespace(name) {
        Some("net") if spec.bool("hostNetwork") => "may not be specified when 'hostNetwork' is true",
        Some("ipc") if spec.bool("hostIPC") => "may not be specified when 'hostIPC' is true",
        _ => return,
    };
    errs.invalid(&sysctl.get("name"), name, detail);
}

fn validate_local_profile(at: &Node<'_>, errs: &mut Errors) {
    let path = at.as_str();
    if path.trim() != path {
        errs.invalid(at, path, "must not be padded with whitespace");
    } else if path.is_empty() {
        errs.required(at, "must be set when AppArmor type is Localhost");
    }
    if path.len() > PROFILE_BYTES_MAX {
        errs.too_long(at, PROFILE_BYTES_MAX);
    }
}

fn validate_seccomp(profile: &Node<'_>, errs: &mut Errors) {
    if !profile.is_set() {
        return;
    }
    let (kind, local) = (profile.get("type"), profile.get("localhostProfile"));
    match kind.as_str() {
        "" => errs.required(&kind, "type is required when seccompProfile is set"),
        other if !PROFILE_TYPES.contains(&other) => errs.not_supported(&kind, other, &PROFILE_TYPES),
        _ => {}
    }
    match (kind.as_str() == "Localhost", local.is_set()) {
        (true, false) => errs.required(&local, "must be set when seccomp type is Localhost"),
        (true, true) => validate_descending_path(&local, local.as_str(), errs),
        (false, true) => {
            errs.invalid_here(&profile.at(local.path()), "can only be set when seccomp type is Localhost");
        }
        (false, false) => {}
    }
}

fn validate_sysctls(spec: &Node<'_>, options: &Options, errs: &mut Errors) {
    let mut names = BTreeSet::new();
    for sysctl in spec.get("securityContext").items("sysctls") {
        let (name, at) = (sysctl.str("name"), sysctl.get("name"));
        if name.is_empty() {
            errs.required(&at, "");
        } else if !is_sysctl(name) {
            errs.invalid(&at, name, SYSCTL_FORM);
        } else if names.contains(name) {
            errs.duplicate(&at, name);
        }
        if !options.host_sysctls {
            validate_host_sysctl(&sysctl, spec, errs);
        }
        names.insert(name);
    }
}

fn is_sysctl(name: &str) -> bool {
    let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_segment = |segment: &str| {
        segment.bytes().next().is_some_and(alphanumeric)
            && segment.bytes().next_back().is_some_and(alphanumeric)
            && segment.bytes().all(|byte| alphanumeric(byte) || byte == b'-' || byte == b'_')
    };
    name.len() <= SYSCTL_BYTES_MAX && name.split(['.', '/']).all(is_segment)
}

/// The namespace of Linux that a sysctl belongs to, if it has one. Slashes and dots may be swapped.
fn namespace(sysctl: &str) -> Option<&'static str> {
    let swapped = sysctl.find(['.', '/']).is_some_and(|at| sysctl[at..].starts_with('/'));
    let swap = |letter| match letter {
        '/' => '.',
        '.' => '/',
        other => other,
    };
    let sysctl = if swapped { sysctl.chars().map(swap).collect() } else { sysctl.to_owned() };
    if sysctl.starts_with("net.") {
        return Some("net");
    }
    let ipc =
        sysctl == "kernel.sem" || ["kernel.shm", "kernel.msg", "fs.mqueue."].iter().any(|p| sysctl.starts_with(p));
    ipc.then_some("ipc")
}

/// One of these words, if there is one.
fn validate_word(at: &Node<'_>, allowed: &[&str], errs: &mut Errors) {
    if at.is_set() && !allowed.contains(&at.as_str()) {
        errs.not_supported(at, at.as_str(), allowed);
    }
}

fn validate_user(at: &Node<'_>, errs: &mut Errors) {
    if let Some(user) = at.as_int() {
        name::user_id(user).into_iter().for_each(|complaint| errs.invalid(at, user, complaint));
    }
}

/// A group's number, if there is one.
pub fn validate_group(at: &Node<'_>, errs: &mut Errors) {
    if let Some(group) = at.as_int() {
        name::group_id(group).into_iter().for_each(|complaint| errs.invalid(at, group, complaint));
    }
}
