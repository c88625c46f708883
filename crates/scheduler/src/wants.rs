//! Reads what a pod asks of other pods from its spec.

use std::fmt::Write;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{PodAffinityTerm, TopologySpreadConstraint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use setpoint_api::field::Path;
use setpoint_api::labels::{self, Operator, Requirement, Selector};

use crate::demand::Demand;
use crate::node::{State, ZONE};
use crate::pod::Pod;
use crate::relation::{HOSTNAME, Relation, Spread};
use crate::relations::Relations;
use crate::tally::{Counted, Rule, Term};

/// How much a pod that must be near others likes it when they come to it.
const REQUIRED_WEIGHT: i64 = 1;

/// How pods of one owner are spread that say nothing about it, as far as possible: the label, and the skew that is nothing.
const DEFAULT_SPREAD: [(&str, i64); 2] = [(HOSTNAME, 3), (ZONE, 5)];

/// The relation of a pod, `alike` selecting those of the same owner and services.
pub fn relation(
    relations: &mut Relations,
    pod: &Pod,
    demand: &Arc<Demand>,
    alike: Option<&Selector>,
    nodes: &[State],
) -> Arc<Relation> {
    let affinity = pod.spec.wishes.affinity.as_deref();
    let near = affinity.and_then(|affinity| affinity.pod_affinity.as_ref());
    let away = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref());
    let constraints = pod.spec.topology_spread_constraints.as_deref().unwrap_or_default();
    let alike = alike.filter(|_| constraints.is_empty());
    let mut text = String::with_capacity(128);
    text.push_str(&pod.metadata.namespace);
    for (name, value) in pod.metadata.labels.iter() {
        text.extend(["\n", name, "=", value]);
    }
    if near.is_some() || away.is_some() {
        let _ = write!(text, "\n\n{near:?}\n{away:?}");
    }
    if !constraints.is_empty() {
        let _ = write!(text, "\n\n{constraints:?}\n{}", demand.class);
    }
    if let Some(alike) = alike {
        let _ = write!(text, "\n\n{alike}\n{}", if is_choosy(demand) { demand.class } else { 0 });
    }
    relations.relation(text, |relations| {
        let group = relations.group_of(&pod.metadata.namespace, &pod.metadata.labels);
        let mut wants = Wants { relations, pod, demand, nodes, relation: Relation { group, ..Relation::default() } };
        if let Some(near) = near {
            wants.be_near(near.required_during_scheduling_ignored_during_execution.as_deref().unwrap_or_default());
            for term in near.preferred_during_scheduling_ignored_during_execution.iter().flatten() {
                wants.like(&term.pod_affinity_term, i64::from(term.weight));
            }
        }
        if let Some(away) = away {
            wants.be_away(away.required_during_scheduling_ignored_during_execution.as_deref().unwrap_or_default());
            for term in away.preferred_during_scheduling_ignored_during_execution.iter().flatten() {
                wants.like(&term.pod_affinity_term, -i64::from(term.weight));
            }
        }
        wants.be_spread(constraints);
        if let Some(alike) = alike {
            wants.be_spread_anyway(alike);
        }
        wants.relation
    })
}

/// A selector as objects write it; one that can't be read selects nothing.
pub fn selector(written: Option<&LabelSelector>) -> Selector {
    let Some(written) = written else { return Selector::nothing() };
    let expressions = written.match_expressions.iter().flatten().map(|expression| labels::LabelSelectorRequirement {
        key: expression.key.clone(),
        operator: expression.operator.clone(),
        values: expression.values.clone().unwrap_or_default(),
    });
    let match_labels = written.match_labels.clone().unwrap_or_default();
    let written = labels::LabelSelector { match_labels, match_expressions: expressions.collect() };
    written.selector().unwrap_or(Selector::nothing())
}

/// Whether pods of a class go to some nodes only because of what these are.
fn is_choosy(demand: &Demand) -> bool {
    !demand.selector.is_empty() || demand.affinity.is_some()
}

struct Wants<'a> {
    relations: &'a mut Relations,
    pod: &'a Pod,
    demand: &'a Arc<Demand>,
    nodes: &'a [State],
    relation: Relation,
}

impl Wants<'_> {
    fn be_near(&mut self, terms: &[PodAffinityTerm]) {
        let all: Vec<Term> = terms.iter().map(|term| self.term(term)).collect();
        for (written, term) in terms.iter().zip(&all) {
            let ground = self.everywhere(&written.topology_key);
            let near = self.relations.tally_of(Counted::Matching(all.clone()), ground);
            self.relation.near.push(near);
            let liking = self.relations.tally_of(Counted::Liking(term.clone()), ground);
            self.relation.holds.push((liking, REQUIRED_WEIGHT));
        }
        self.relation.near_terms = all;
    }

    fn be_away(&mut self, terms: &[PodAffinityTerm]) {
        for written in terms {
            let (term, ground) = (self.term(written), self.everywhere(&written.topology_key));
            let away = self.relations.tally_of(Counted::Matching(vec![term.clone()]), ground);
            self.relation.away.push(away);
            let repelling = self.relations.tally_of(Counted::Repelling(term), ground);
            self.relation.holds.push((repelling, 1));
        }
    }

    fn like(&mut self, written: &PodAffinityTerm, weight: i64) {
        let (term, ground) = (self.term(written), self.everywhere(&written.topology_key));
        let liked = self.relations.tally_of(Counted::Matching(vec![term.clone()]), ground);
        self.relation.liked.push((liked, weight));
        let liking = self.relations.tally_of(Counted::Liking(term), ground);
        self.relation.holds.push((liking, weight));
    }

    fn be_spread(&mut self, constraints: &[TopologySpreadConstraint]) {
        for is_hard in [true, false] {
            let of_kind = |it: &&TopologySpreadConstraint| (it.when_unsatisfiable == "DoNotSchedule") == is_hard;
            let constraints: Vec<&TopologySpreadConstraint> = constraints.iter().filter(of_kind).collect();
            let mut labels: Vec<Box<str>> = constraints.iter().map(|it| it.topology_key.as_str().into()).collect();
            labels.sort();
            for constraint in constraints {
                let spread = self.spread(constraint, &labels);
                let list = if is_hard { &mut self.relation.spread } else { &mut self.relation.soft_spread };
                list.push(spread);
            }
        }
        self.relation.needs_labels = true;
    }

    fn spread(&mut self, constraint: &TopologySpreadConstraint, labels: &[Box<str>]) -> Spread {
        let mut rule = Rule { labels: labels.to_vec(), ..Rule::default() };
        if constraint.node_affinity_policy.as_deref() != Some("Ignore") && is_choosy(self.demand) {
            rule.wanted = Some(self.demand.clone());
        }
        if constraint.node_taints_policy.as_deref() == Some("Honor") {
            rule.tolerations = Some(self.demand.tolerations.clone());
        }
        let mut selector = selector(constraint.label_selector.as_ref());
        let keys = constraint.match_label_keys.iter().flatten();
        let more: Vec<Requirement> = keys.filter_map(|key| self.same_label(key)).collect();
        if !more.is_empty() && !selector.is_nothing() {
            selector = Selector::new(selector.requirements().iter().cloned().chain(more).collect());
        }
        Spread {
            skew_max: i64::from(constraint.max_skew),
            domains_min: constraint.min_domains.and_then(|least| usize::try_from(least).ok()).unwrap_or(1),
            ..self.spread_by(&constraint.topology_key, selector, rule)
        }
    }

    fn be_spread_anyway(&mut self, alike: &Selector) {
        for (label, skew_max) in DEFAULT_SPREAD {
            let wanted = is_choosy(self.demand).then(|| self.demand.clone());
            let spread = self.spread_by(label, alike.clone(), Rule { wanted, ..Rule::default() });
            self.relation.soft_spread.push(Spread { skew_max, ..spread });
        }
        self.relation.needs_labels = false;
    }

    fn spread_by(&mut self, label: &str, selector: Selector, rule: Rule) -> Spread {
        let wanted = rule.wanted.as_ref().map_or(0, |demand| demand.class);
        let text = format!("{:?} {wanted} {:?}", rule.labels, rule.tolerations);
        let ground = self.relations.ground_of(label, rule, &text, self.nodes);
        let counts_itself = selector.matches(&self.pod.metadata.labels);
        // A selector of everything counts nobody, as in Kubernetes.
        let selector = if selector.is_everything() { Selector::nothing() } else { selector };
        let term = Term { namespaces: [self.pod.metadata.namespace.clone()].into(), by_label: None, selector };
        let tally = self.relations.tally_of(Counted::Staying(vec![term]), ground);
        Spread { tally, label: label.into(), skew_max: 1, domains_min: 1, counts_itself }
    }

    /// That a label is the same as the pod's.
    fn same_label(&self, key: &str) -> Option<Requirement> {
        let value = self.pod.metadata.labels.get(key)?;
        Requirement::new(key, Operator::In, vec![value.to_owned()], &Path::root("matchLabelKeys")).ok()
    }

    fn term(&self, written: &PodAffinityTerm) -> Term {
        let mut namespaces: std::collections::BTreeSet<Box<str>> =
            written.namespaces.iter().flatten().map(|name| name.as_str().into()).collect();
        if namespaces.is_empty() && written.namespace_selector.is_none() {
            namespaces.insert(self.pod.metadata.namespace.clone());
        }
        let by_label = written.namespace_selector.as_ref().map(|written| selector(Some(written)));
        Term { namespaces, by_label, selector: selector(written.label_selector.as_ref()) }
    }

    fn everywhere(&mut self, label: &str) -> u32 {
        self.relations.ground_of(label, Rule::default(), "", self.nodes)
    }
}
