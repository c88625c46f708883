//! Probes and lifecycle hooks: what is done to a container from outside.

use setpoint_api::name;

use super::containers::validate_port;
use crate::errors::Errors;
use crate::node::Node;

const SIGNALS_WINDOWS: [&str; 2] = ["SIGKILL", "SIGTERM"];

/// What handlers need to know of their pod.
#[derive(Debug, Clone)]
pub struct Handlers<'a> {
    grace_seconds: Option<i64>,
    os: Node<'a>,
}

impl<'a> Handlers<'a> {
    /// The handlers of a pod.
    pub fn of(spec: &Node<'a>) -> Self {
        Self { grace_seconds: spec.int("terminationGracePeriodSeconds"), os: spec.get("os") }
    }
}

/// The rules for the hooks of a container.
pub fn validate_lifecycle(container: &Node<'_>, handlers: &Handlers<'_>, errs: &mut Errors) {
    let lifecycle = container.get("lifecycle");
    for hook in ["postStart", "preStop"] {
        if lifecycle.has(hook) {
            let kinds = ["exec", "httpGet", "tcpSocket", "sleep"];
            validate_handler(&lifecycle.get(hook), &kinds, handlers, errs);
        }
    }
    if lifecycle.has("stopSignal") {
        validate_stop_signal(&lifecycle.get("stopSignal"), &handlers.os, errs);
    }
}

/// The rules for the probes of a container.
pub fn validate_probes(container: &Node<'_>, handlers: &Handlers<'_>, errs: &mut Errors) {
    for field in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let probe = container.get(field);
        if !probe.is_set() {
            continue;
        }
        validate_probe(&probe, handlers, errs);
        let grace = probe.get("terminationGracePeriodSeconds");
        if field != "readinessProbe" {
            let successes = probe.int("successThreshold").unwrap_or(0);
            if successes != 1 {
                errs.invalid(&probe.get("successThreshold"), successes, "must be 1");
            }
        } else if grace.is_set() {
            errs.invalid_here(&grace, "must not be set for readinessProbes");
        }
    }
}

fn validate_probe(probe: &Node<'_>, handlers: &Handlers<'_>, errs: &mut Errors) {
    validate_handler(probe, &["exec", "httpGet", "tcpSocket", "grpc"], handlers, errs);
    for field in ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"] {
        if probe.int(field).unwrap_or(0) < 0 {
            errs.invalid_here(&probe.get(field), "must be greater than or equal to 0");
        }
    }
    let grace = probe.get("terminationGracePeriodSeconds");
    if grace.as_int().is_some_and(|seconds| seconds <= 0) {
        errs.invalid_here(&grace, "must be greater than 0");
    }
}

fn validate_handler(at: &Node<'_>, kinds: &[&'static str], handlers: &Handlers<'_>, errs: &mut Errors) {
    let given = kinds.iter().map(|kind| (*kind, at.get(kind))).filter(|(_, action)| action.is_set());
    let mut count = 0;
    for (kind, action) in given {
        count += 1;
        match kind {
            _ if count > 1 => errs.forbidden(&action, "may not specify more than 1 handler type"),
            "exec" if action.count("command") == 0 => errs.required(&action.get("command"), ""),
            "httpGet" => validate_http_get(&action, errs),
            "tcpSocket" => validate_port_or_name(&action.get("port"), errs),
            "grpc" => validate_port(&action.get("port"), action.int("port").unwrap_or(0), errs),
            "sleep" => validate_sleep(&action, handlers, errs),
            _ => {}
        }
    }
    if count == 0 {
        errs.required(at, "must specify a handler type");
    }
}

fn validate_http_get(action: &Node<'_>, errs: &mut Errors) {
    if action.str("path").is_empty() {
        errs.required(&action.get("path"), "");
    }
    validate_port_or_name(&action.get("port"), errs);
    let scheme = action.get("scheme");
    if !["HTTP", "HTTPS"].contains(&scheme.as_str()) {
        errs.not_supported(&scheme, scheme.as_str(), &["HTTP", "HTTPS"]);
    }
    for header in action.items("httpHeaders") {
        let name = header.str("name");
        errs.invalid_each(&action.get("httpHeaders"), name, name::http_header_name(name));
    }
}

/// A port by number or by name.
pub fn validate_port_or_name(at: &Node<'_>, errs: &mut Errors) {
    match at.as_int() {
        Some(number) => validate_port(at, number, errs),
        None if at.json().is_string() => errs.invalid_each(at, at.as_str(), name::port_name(at.as_str())),
        None => validate_port(at, 0, errs),
    }
}

fn validate_sleep(action: &Node<'_>, handlers: &Handlers<'_>, errs: &mut Errors) {
    let seconds = action.int("seconds").unwrap_or(0);
    if let Some(grace) = handlers.grace_seconds.filter(|grace| seconds < 0 || seconds > *grace) {
        let detail = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
        errs.invalid(action, seconds, detail);
    }
}

fn validate_stop_signal(at: &Node<'_>, os: &Node<'_>, errs: &mut Errors) {
    if !os.is_set() {
        errs.forbidden(at, "may not be set for containers with empty `spec.os.name`");
        return;
    }
    match os.str("name") {
        "windows" if !SIGNALS_WINDOWS.contains(&at.as_str()) => errs.not_supported(at, at.as_str(), &SIGNALS_WINDOWS),
        "linux" => {
            let signals = linux_signals();
            if !signals.iter().any(|signal| signal == at.as_str()) {
                errs.not_supported(at, at.as_str(), &signals);
            }
        }
        _ => {}
    }
}

/// The signals of Linux, sorted.
fn linux_signals() -> Vec<String> {
    let named = "ABRT ALRM BUS CHLD CLD CONT FPE HUP ILL INT IO IOT KILL PIPE POLL PROF PWR QUIT RTMAX RTMIN SEGV STKFLT \
                 STOP SYS TERM TRAP TSTP TTIN TTOU URG USR1 USR2 VTALRM WINCH XCPU XFSZ";
    let named = named.split_whitespace().map(|name| format!("SIG{name}"));
    let above = (1..=15).map(|offset| format!("SIGRTMIN+{offset}"));
    let below = (1..=14).map(|offset| format!("SIGRTMAX-{offset}"));
    let mut signals: Vec<String> = named.chain(above).chain(below).collect();
    signals.sort_unstable();
    signals
}
