//! All controllers by name, and which of them run.

use std::collections::BTreeSet;
use std::fmt;

use setpoint_runtime::manager::ManagerError;

use crate::Wiring;
use crate::{
    certificates, cluster_role_aggregation, cron_job, daemon_set, deployment, disruption, endpoint_slice,
    endpoint_slice_mirroring, endpoints, ephemeral_volume, garbage_collector, horizontal_pod_autoscaler, job,
    namespace, node_lifecycle, persistent_volume, pod_gc, replica_set, replication_controller, resource_claim,
    resource_quota, root_ca, service_account, service_account_token, stateful_set, taint_eviction, token_cleaner,
    ttl_after_finished, volume_protection,
};

/// One controller.
pub struct Entry {
    /// What it is called: in `--controllers` and in its metrics; in events [`author`] tells. Its service account is [`account`]'s.
    pub name: &'static str,
    /// What it was called once; `--controllers` still knows it.
    pub alias: &'static str,
    add: fn(&Wiring<'_>) -> Result<(), ManagerError>,
}

/// All controllers, in the order of their names.
pub const ALL: &[Entry] = &[
    Entry {
        name: "certificatesigningrequest-approving-controller",
        alias: "csrapproving",
        add: certificates::add_approving,
    },
    Entry { name: "certificatesigningrequest-cleaner-controller", alias: "csrcleaner", add: certificates::add_cleaner },
    Entry { name: "certificatesigningrequest-signing-controller", alias: "csrsigning", add: certificates::add_signing },
    Entry {
        name: "clusterrole-aggregation-controller",
        alias: "clusterrole-aggregation",
        add: cluster_role_aggregation::add,
    },
    Entry { name: "cronjob-controller", alias: "cronjob", add: cron_job::add },
    Entry { name: "daemonset-controller", alias: "daemonset", add: daemon_set::add },
    Entry { name: "deployment-controller", alias: "deployment", add: deployment::add },
    Entry { name: "disruption-controller", alias: "disruption", add: disruption::add },
    Entry { name: "endpoints-controller", alias: "endpoint", add: endpoints::add },
    Entry { name: "endpointslice-controller", alias: "endpointslice", add: endpoint_slice::add },
    Entry {
        name: "endpointslice-mirroring-controller",
        alias: "endpointslicemirroring",
        add: endpoint_slice_mirroring::add,
    },
    Entry { name: "ephemeral-volume-controller", alias: "ephemeral-volume", add: ephemeral_volume::add },
    Entry { name: "garbage-collector-controller", alias: "garbagecollector", add: garbage_collector::add },
    Entry {
        name: "horizontal-pod-autoscaler-controller",
        alias: "horizontalpodautoscaling",
        add: horizontal_pod_autoscaler::add,
    },
    Entry { name: "job-controller", alias: "job", add: job::add },
    Entry { name: "namespace-controller", alias: "namespace", add: namespace::add },
    Entry { name: "node-lifecycle-controller", alias: "nodelifecycle", add: node_lifecycle::add },
    Entry { name: "persistentvolume-binder-controller", alias: "persistentvolume-binder", add: persistent_volume::add },
    Entry {
        name: "persistentvolume-protection-controller",
        alias: "pv-protection",
        add: volume_protection::add_volumes,
    },
    Entry {
        name: "persistentvolumeclaim-protection-controller",
        alias: "pvc-protection",
        add: volume_protection::add_claims,
    },
    Entry { name: "pod-garbage-collector-controller", alias: "podgc", add: pod_gc::add },
    Entry { name: "replicaset-controller", alias: "replicaset", add: replica_set::add },
    Entry {
        name: "replicationcontroller-controller",
        alias: "replicationcontroller",
        add: replication_controller::add,
    },
    Entry { name: "resourceclaim-controller", alias: "resource-claim-controller", add: resource_claim::add },
    Entry { name: "resourcequota-controller", alias: "resourcequota", add: resource_quota::add },
    Entry { name: "root-ca-certificate-publisher-controller", alias: "root-ca-cert-publisher", add: root_ca::add },
    Entry { name: "serviceaccount-controller", alias: "serviceaccount", add: service_account::add },
    Entry { name: "serviceaccount-token-controller", alias: "serviceaccount-token", add: service_account_token::add },
    Entry { name: "statefulset-controller", alias: "statefulset", add: stateful_set::add },
    Entry { name: "taint-eviction-controller", alias: "taint-eviction", add: taint_eviction::add },
    Entry { name: "token-cleaner-controller", alias: "tokencleaner", add: token_cleaner::add },
    Entry { name: "ttl-after-finished-controller", alias: "ttl-after-finished", add: ttl_after_finished::add },
    Entry {
        name: "volumeattributesclass-protection-controller",
        alias: "volumeattributesclass-protection-controller",
        add: volume_protection::add_classes,
    },
];

/// The service account as which the controller with this name acts, in `kube-system`: the one to which Kubernetes gives a role for this
/// work. Without one it is the account of the controller manager itself.
#[must_use]
pub fn account(name: &str) -> Option<&str> {
    Some(match name {
        "certificatesigningrequest-approving-controller"
        | "certificatesigningrequest-cleaner-controller"
        | "certificatesigningrequest-signing-controller" => "certificate-controller",
        "daemonset-controller" => "daemon-set-controller",
        "endpoints-controller" => "endpoint-controller",
        "endpointslice-mirroring-controller" => "endpointslicemirroring-controller",
        "garbage-collector-controller" => "generic-garbage-collector",
        "horizontal-pod-autoscaler-controller" => "horizontal-pod-autoscaler",
        "node-lifecycle-controller" | "taint-eviction-controller" => "node-controller",
        "persistentvolume-binder-controller" => "persistent-volume-binder",
        "persistentvolume-protection-controller" => "pv-protection-controller",
        "persistentvolumeclaim-protection-controller" => "pvc-protection-controller",
        "pod-garbage-collector-controller" => "pod-garbage-collector",
        "replicationcontroller-controller" => "replication-controller",
        "resourceclaim-controller" => "resource-claim-controller",
        "root-ca-certificate-publisher-controller" => "root-ca-cert-publisher",
        "serviceaccount-controller" => "service-account-controller",
        "serviceaccount-token-controller" => return None,
        "token-cleaner-controller" => "token-cleaner",
        other => other,
    })
}

/// What the controller with this name calls itself in events: scripts look for the words of Kubernetes.
#[must_use]
pub fn author(name: &str) -> &str {
    match name {
        "disruption-controller" => "controllermanager",
        "endpoints-controller" => "endpoint-controller",
        "endpointslice-controller" => "endpoint-slice-controller",
        "endpointslice-mirroring-controller" => "endpoint-slice-mirroring-controller",
        "ephemeral-volume-controller" => "ephemeral_volume",
        "horizontal-pod-autoscaler-controller" => "horizontal-pod-autoscaler",
        "node-lifecycle-controller" => "node-controller",
        "persistentvolume-binder-controller" => "persistentvolume-controller",
        "replicationcontroller-controller" => "replication-controller",
        "resourceclaim-controller" => "resource_claim",
        other => other,
    }
}

/// Adds the chosen controllers to the manager of a wiring.
pub fn add_to(wiring: &Wiring<'_>, choice: &Choice) -> Result<(), ManagerError> {
    ALL.iter().filter(|entry| choice.has(entry.name)).try_for_each(|entry| wiring.seen_by(entry.name, entry.add))
}

/// Which controllers run.
///
/// ```
/// use setpoint_controllers::Choice;
///
/// let choice = Choice::parse("*,-serviceaccount-controller").unwrap();
/// assert!(!choice.has("serviceaccount-controller"));
/// assert!(Choice::parse("no-such-controller").is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice(BTreeSet<&'static str>);

impl Choice {
    /// All of them.
    #[must_use]
    pub fn all() -> Choice {
        Choice(ALL.iter().map(|entry| entry.name).collect())
    }

    /// Those that a list names: `*` for all, `name` for one, `-name` for all but one. What is named counts more than `*`.
    pub fn parse(text: &str) -> Result<Choice, ChoiceError> {
        Choice::parse_among(text, &[])
    }

    /// [`parse`](Choice::parse), where there are also others than the built-in ones: by their names, and what they are called for short.
    pub fn parse_among(text: &str, others: &[(&'static str, &'static str)]) -> Result<Choice, ChoiceError> {
        let all = || ALL.iter().map(|entry| (entry.name, entry.alias)).chain(others.iter().copied());
        let items: Vec<&str> = text.split(',').map(str::trim).filter(|item| !item.is_empty()).collect();
        let mut chosen: BTreeSet<&'static str> = BTreeSet::new();
        if items.contains(&"*") {
            chosen.extend(all().map(|(name, _)| name));
        }
        for item in items.into_iter().filter(|item| *item != "*") {
            let (asked, is_on) = item.strip_prefix('-').map_or((item, true), |name| (name, false));
            let found = all().find(|(name, alias)| *name == asked || *alias == asked);
            let (name, _) = found
                .ok_or_else(|| ChoiceError { name: asked.to_owned(), known: all().map(|(name, _)| name).collect() })?;
            match is_on {
                true => chosen.insert(name),
                false => chosen.remove(name),
            };
        }
        Ok(Choice(chosen))
    }

    /// Whether the controller with this name runs.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.0.contains(name)
    }

    /// The names of those that run.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().copied()
    }
}

/// There is no controller of this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChoiceError {
    name: String,
    known: Vec<&'static str>,
}

impl fmt::Display for ChoiceError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "there is no controller {:?}; there are {}", self.name, self.known.join(", "))
    }
}

impl std::error::Error for ChoiceError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_counts_more_than_the_star() {
        for (text, is_on) in [
            ("*", true),
            ("", false),
            ("serviceaccount", true),
            ("-serviceaccount-controller,*", false),
            ("*, -serviceaccount", false),
        ] {
            assert_eq!(Choice::parse(text).unwrap().has("serviceaccount-controller"), is_on, "{text}");
        }
    }

    #[test]
    fn controllers_from_elsewhere_are_chosen_like_the_built_in_ones() {
        let others = [("vehicle-controller", "vehicle")];
        let choice = |text| Choice::parse_among(text, &others).unwrap();
        assert!(choice("*").has("vehicle-controller") && choice("*").has("job-controller"));
        assert!(!choice("*,-vehicle").has("vehicle-controller"));
        let said = Choice::parse_among("car", &others).unwrap_err().to_string();
        assert!(said.ends_with("volumeattributesclass-protection-controller, vehicle-controller"), "{said}");
    }

    #[test]
    fn an_unknown_name_is_told_with_those_that_are_known() {
        let said = Choice::parse("*,-deploy").unwrap_err().to_string();
        assert!(said.starts_with("there is no controller \"deploy\"; there are "), "{said}");
        assert!(said.contains("serviceaccount-controller"), "{said}");
    }

    #[test]
    fn events_name_controllers_as_in_kubernetes() {
        assert_eq!(author("disruption-controller"), "controllermanager");
        assert_eq!(author("job-controller"), "job-controller");
        let others = ALL.iter().filter(|entry| author(entry.name) != entry.name).count();
        assert_eq!(others, 10, "each that is renamed is there");
    }

    #[test]
    fn names_are_in_order_and_each_is_there_once() {
        assert!(ALL.is_sorted_by(|one, other| one.name < other.name));
    }
}
