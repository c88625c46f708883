//! Whether a pod of a class can be on a node as far as the two of them decide it, and if not, why.

use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Taint, Toleration};

use crate::demand::Demand;
use crate::node::{Load, Offer};

/// Why a pod can't be on a node, in the words that users know.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    Unschedulable,
    Taints,
    Affinity,
    /// The pod names its nodes, and this is none of them.
    Unnamed,
    Ports,
    TooManyPods,
    Insufficient(Box<str>),
    /// Another pod has a claim that only one may have.
    ClaimInUse,
    VolumeElsewhere,
    NoVolume,
    LostVolume,
    VolumeZone,
    DevicesElsewhere,
    Skew,
    /// A node without the label by which pods are spread.
    Unlabelled,
    Near,
    Away,
    Repelled,
}

impl std::fmt::Display for Reason {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Reason::Unschedulable => "node(s) were unschedulable",
            Reason::Taints => "node(s) had untolerated taint(s)",
            Reason::Affinity => "node(s) didn't match Pod's node affinity/selector",
            Reason::Unnamed => "node(s) didn't satisfy plugin(s) [NodeAffinity]",
            Reason::Ports => "node(s) didn't have free ports for the requested pod ports",
            Reason::TooManyPods => "Too many pods",
            Reason::Insufficient(resource) => return write!(out, "Insufficient {resource}"),
            Reason::ClaimInUse => {
                "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
            }
            Reason::VolumeElsewhere => "node(s) didn't match PersistentVolume's node affinity",
            Reason::NoVolume => "node(s) didn't find available persistent volumes to bind",
            Reason::LostVolume => "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
            Reason::VolumeZone => "node(s) had no available volume zone",
            Reason::DevicesElsewhere => "resourceclaim not available on the node",
            Reason::Skew => "node(s) didn't match pod topology spread constraints",
            Reason::Unlabelled => "node(s) didn't match pod topology spread constraints (missing required label)",
            Reason::Near => "node(s) didn't match pod affinity rules",
            Reason::Away => "node(s) didn't match pod anti-affinity rules",
            Reason::Repelled => "node(s) didn't satisfy existing pods anti-affinity rules",
        })
    }
}

/// What stands against a pod on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Obstacles {
    pub reasons: Vec<Reason>,
    /// Whether it would stand even if other pods left the node.
    pub is_final: bool,
}

impl Obstacles {
    pub fn is_empty(&self) -> bool {
        self.reasons.is_empty()
    }

    /// Other pods are in the way.
    pub fn passing(reason: Reason) -> Obstacles {
        Obstacles { reasons: vec![reason], is_final: false }
    }

    /// It will not go away with other pods.
    pub fn lasting(reason: Reason) -> Obstacles {
        Obstacles { reasons: vec![reason], is_final: true }
    }
}

/// What stands against a pod of this class on this node. The first filter that fails is told, with all its reasons.
pub fn obstacles(demand: &Demand, offer: &Offer, load: &Load) -> Obstacles {
    if offer.is_unschedulable && !tolerates(&demand.tolerations, &unschedulable()) {
        return Obstacles::lasting(Reason::Unschedulable);
    }
    if is_repelled(&demand.tolerations, offer) {
        return Obstacles::lasting(Reason::Taints);
    }
    if !is_wanted(demand, offer) {
        return Obstacles::lasting(Reason::Affinity);
    }
    if demand.ports.iter().any(|port| load.ports.keys().any(|taken| taken.clashes(port))) {
        return Obstacles::passing(Reason::Ports);
    }
    lacking(demand, offer, load)
}

fn lacking(demand: &Demand, offer: &Offer, load: &Load) -> Obstacles {
    let mut found = Obstacles::default();
    if load.pods + 1 > offer.pods {
        found.reasons.push(Reason::TooManyPods);
    }
    let (asked, has, taken) = (&demand.requests, &offer.allocatable, &load.requested);
    let fixed = [
        ("cpu", asked.cpu, has.cpu, taken.cpu),
        ("memory", asked.memory, has.memory, taken.memory),
        ("ephemeral-storage", asked.storage, has.storage, taken.storage),
    ];
    let others = asked.others.iter().map(|(name, asked)| (&**name, *asked, has.other(name), taken.other(name)));
    for (name, asked, has, taken) in fixed.into_iter().chain(others) {
        if asked > 0 && asked > has.saturating_sub(taken) {
            found.reasons.push(Reason::Insufficient(name.into()));
            found.is_final |= asked > has;
        }
    }
    found
}

fn unschedulable() -> Taint {
    let key = "node.kubernetes.io/unschedulable".to_owned();
    Taint { key, effect: "NoSchedule".to_owned(), ..Taint::default() }
}

/// Whether a taint of the node keeps away who tolerates this.
pub fn is_repelled(tolerations: &[Toleration], offer: &Offer) -> bool {
    let repels = |taint: &&Taint| matches!(&*taint.effect, "NoSchedule" | "NoExecute");
    offer.taints.iter().filter(repels).any(|taint| !tolerates(tolerations, taint))
}

/// Whether one of the tolerations is for this taint.
pub fn tolerates(tolerations: &[Toleration], taint: &Taint) -> bool {
    tolerations.iter().any(|toleration| {
        let any = |text: &Option<String>| text.as_deref().is_none_or(str::is_empty);
        let same_effect = any(&toleration.effect) || toleration.effect.as_deref() == Some(&*taint.effect);
        let same_key = any(&toleration.key) || toleration.key.as_deref() == Some(&*taint.key);
        let value = taint.value.as_deref().unwrap_or_default();
        same_effect
            && same_key
            && match toleration.operator.as_deref() {
                Some("Exists") => true,
                None | Some("" | "Equal") => {
                    !any(&toleration.key) && toleration.value.as_deref().unwrap_or_default() == value
                }
                Some(_) => false,
            }
    })
}

/// Whether a node has the labels that a class of pods wants.
pub fn is_wanted(demand: &Demand, offer: &Offer) -> bool {
    let has = |(name, value): &(Box<str>, Box<str>)| offer.labels.get(name) == Some(&**value);
    demand.selector.iter().all(has) && demand.affinity.as_ref().is_none_or(|affinity| selects(affinity, offer))
}

/// Whether one of the terms describes a node.
pub fn selects(selector: &NodeSelector, offer: &Offer) -> bool {
    selector.node_selector_terms.iter().any(|term| matches(term, offer))
}

/// Whether a node is what a term describes; a term that says nothing describes none.
pub fn matches(term: &NodeSelectorTerm, offer: &Offer) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    (!expressions.is_empty() || !fields.is_empty())
        && expressions.iter().all(|wanted| holds(wanted, offer.labels.get(&wanted.key)))
        && fields.iter().all(|wanted| wanted.key == "metadata.name" && holds(wanted, Some(&offer.name)))
}

fn holds(wanted: &NodeSelectorRequirement, found: Option<&str>) -> bool {
    let values = wanted.values.as_deref().unwrap_or_default();
    let listed = || found.is_some_and(|found| values.iter().any(|value| value == found));
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<i64>().ok());
    let compared = |by: fn(&i64, &i64) -> bool| {
        let wanted = number(values.first().map(String::as_str));
        number(found).zip(wanted).is_some_and(|(found, wanted)| by(&found, &wanted))
    };
    match &*wanted.operator {
        "In" => listed(),
        "NotIn" => !listed(),
        "Exists" => found.is_some(),
        "DoesNotExist" => found.is_none(),
        "Gt" => compared(i64::gt),
        "Lt" => compared(i64::lt),
        _ => false,
    }
}
