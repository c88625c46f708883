//! What an object that was accepted long ago may keep, although the rules became stricter since.

use setpoint_api::labels::ValueRules;
use setpoint_api::name;

use super::resources::is_indivisible;
use super::{annotations, containers, scheduling, security, volumes};
use crate::builtin::core::resource_list::is_huge_page;
use crate::builtin::label_selector;
use crate::errors::Errors;
use crate::node::Node;

/// Which rules are loosened, and whether it is a pod (or a template of one).
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// A pod, not a template.
    pub is_pod: bool,
    /// A deletion cost that is no number.
    pub invalid_deletion_cost: bool,
    /// Label values in selectors of pod affinity.
    pub invalid_affinity_values: bool,
    /// Label values in the required node affinity.
    pub invalid_node_affinity_values: bool,
    /// Huge pages that don't come out even.
    pub indivisible_huge_pages: bool,
    /// Selectors of spread constraints.
    pub invalid_spread_selector: bool,
    /// `matchLabelKeys` of spread constraints that are in the selector too.
    pub spread_keys_in_selector: bool,
    /// Paths of tokens outside of their volume.
    pub non_local_token_path: bool,
    /// Sysctls of a namespace that the pod shares with its host.
    pub host_sysctls: bool,
    /// More than one way to change SELinux labels.
    pub any_selinux_change_policy: bool,
    /// Restarts on resize of init containers that are no sidecars.
    pub restart_on_init_resize: bool,
    /// Block devices in pods with users of their own.
    pub devices_with_own_users: bool,
    /// Host network in pods with users of their own.
    pub host_network_with_own_users: bool,
    /// Tolerations that compare numbers.
    pub comparing_tolerations: bool,
}

impl Options {
    /// For a pod or a template whose predecessor, if any, has this metadata and this spec.
    pub fn new(is_pod: bool, old: Option<(&Node<'_>, &Node<'_>)>) -> Self {
        let Some((metadata, spec)) = old else { return Self { is_pod, ..Self::default() } };
        let security = spec.get("securityContext");
        let own_users = spec.maybe_bool("hostUsers") == Some(false);
        let comparing = |toleration: Node<'_>| matches!(toleration.str("operator"), "Lt" | "Gt");
        Self {
            is_pod,
            invalid_deletion_cost: !annotations::has_valid_deletion_cost(&metadata.get("annotations")),
            invalid_affinity_values: found(|errs| affinity_selectors(spec, errs)),
            invalid_node_affinity_values: has_invalid_node_affinity_value(spec),
            indivisible_huge_pages: has_indivisible_huge_pages(spec),
            invalid_spread_selector: found(|errs| spread_selectors(spec, errs)),
            spread_keys_in_selector: found(|errs| spread_keys(spec, errs)),
            non_local_token_path: found(|errs| token_paths(spec, errs)),
            host_sysctls: found(|errs| {
                security.items("sysctls").for_each(|s| security::validate_host_sysctl(&s, spec, errs))
            }),
            any_selinux_change_policy: security.has("seLinuxChangePolicy"),
            restart_on_init_resize: spec.items("initContainers").any(|c| containers::restarts_on_init_resize(&c)),
            devices_with_own_users: own_users && containers::all(spec).any(|c| c.count("volumeDevices") > 0),
            host_network_with_own_users: own_users && spec.bool("hostNetwork"),
            comparing_tolerations: spec.items("tolerations").any(comparing),
        }
    }
}

fn found(check: impl FnOnce(&mut Errors)) -> bool {
    let mut errs = Errors::new();
    check(&mut errs);
    !errs.is_empty()
}

fn affinity_selectors(spec: &Node<'_>, errs: &mut Errors) {
    for term in scheduling::pod_affinity_terms(spec) {
        for selector in ["labelSelector", "namespaceSelector"] {
            label_selector::validate(&term.get(selector), ValueRules::Strict, errs);
        }
    }
}

fn spread_selectors(spec: &Node<'_>, errs: &mut Errors) {
    for constraint in spec.items("topologySpreadConstraints") {
        label_selector::validate(&constraint.get("labelSelector"), ValueRules::Strict, errs);
    }
}

fn spread_keys(spec: &Node<'_>, errs: &mut Errors) {
    for constraint in spec.items("topologySpreadConstraints") {
        scheduling::validate_label_keys(&constraint, false, errs);
    }
}

fn token_paths(spec: &Node<'_>, errs: &mut Errors) {
    for source in spec.items("volumes").flat_map(|volume| volume.get("projected").items("sources")) {
        let token = source.get("serviceAccountToken");
        if token.is_set() {
            volumes::validate_local_path(&token.get("path"), token.str("path"), errs);
        }
    }
}

fn has_invalid_node_affinity_value(spec: &Node<'_>) -> bool {
    let required = spec.get("affinity").get("nodeAffinity").get("requiredDuringSchedulingIgnoredDuringExecution");
    let mut expressions = required.items("nodeSelectorTerms").flat_map(|term| term.items("matchExpressions"));
    expressions.any(|expression| expression.strings("values").any(|value| !name::label_value(value).is_empty()))
}

fn has_indivisible_huge_pages(spec: &Node<'_>) -> bool {
    let lists =
        containers::all(spec).flat_map(|c| [c.get("resources").get("limits"), c.get("resources").get("requests")]);
    let overhead = std::iter::once(spec.get("overhead"));
    lists.chain(overhead).flat_map(Node::into_entries).any(|(resource, amount)| {
        is_huge_page(resource) && amount.as_quantity().is_some_and(|amount| is_indivisible(resource, &amount))
    })
}
