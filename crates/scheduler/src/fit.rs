//! Whether a pod of a class can be on a node, and if not, why.

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, Taint, Toleration};

use crate::demand::Demand;
use crate::node::{Offer, State};

/// Why a pod can't be on a node, in the words that users know.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    Unschedulable,
    Taints,
    Affinity,
    Ports,
    TooManyPods,
    Insufficient(Box<str>),
}

impl std::fmt::Display for Reason {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Reason::Unschedulable => out.write_str("node(s) were unschedulable"),
            Reason::Taints => out.write_str("node(s) had untolerated taint(s)"),
            Reason::Affinity => out.write_str("node(s) didn't match Pod's node affinity/selector"),
            Reason::Ports => out.write_str("node(s) didn't have free ports for the requested pod ports"),
            Reason::TooManyPods => out.write_str("Too many pods"),
            Reason::Insufficient(resource) => write!(out, "Insufficient {resource}"),
        }
    }
}

/// Why a pod of this class can't be on this node; nothing if it can. The first filter that fails is told, with all its reasons.
pub fn obstacles(demand: &Demand, offer: &Offer, state: &State) -> Vec<Reason> {
    if offer.is_unschedulable && !tolerates(&demand.tolerations, &unschedulable()) {
        return vec![Reason::Unschedulable];
    }
    let repels = |taint: &&Taint| matches!(&*taint.effect, "NoSchedule" | "NoExecute");
    if offer.taints.iter().filter(repels).any(|taint| !tolerates(&demand.tolerations, taint)) {
        return vec![Reason::Taints];
    }
    if !is_wanted(demand, offer) {
        return vec![Reason::Affinity];
    }
    if demand.ports.iter().any(|port| state.ports.keys().any(|taken| taken.clashes(port))) {
        return vec![Reason::Ports];
    }
    lacking(demand, offer, state)
}

fn lacking(demand: &Demand, offer: &Offer, state: &State) -> Vec<Reason> {
    let mut reasons = Vec::new();
    if state.pods + 1 > offer.pods {
        reasons.push(Reason::TooManyPods);
    }
    let (asked, has, taken) = (&demand.requests, &offer.allocatable, &state.requested);
    let fixed = [
        ("cpu", asked.cpu, has.cpu, taken.cpu),
        ("memory", asked.memory, has.memory, taken.memory),
        ("ephemeral-storage", asked.storage, has.storage, taken.storage),
    ];
    let others = asked.others.iter().map(|(name, asked)| (&**name, *asked, has.other(name), taken.other(name)));
    for (name, asked, has, taken) in fixed.into_iter().chain(others) {
        if asked > 0 && asked > has.saturating_sub(taken) {
            reasons.push(Reason::Insufficient(name.into()));
        }
    }
    reasons
}

fn unschedulable() -> Taint {
    let key = "node.kubernetes.io/unschedulable".to_owned();
    Taint { key, effect: "NoSchedule".to_owned(), ..Taint::default() }
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

fn is_wanted(demand: &Demand, offer: &Offer) -> bool {
    let has = |(name, value): &(Box<str>, Box<str>)| offer.labels.get(name) == Some(&**value);
    demand.selector.iter().all(has)
        && demand
            .affinity
            .as_ref()
            .is_none_or(|affinity| affinity.node_selector_terms.iter().any(|term| matches(term, offer)))
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
