//! Where traffic to endpoints should come from, for Services that ask for `topology-mode: Auto`: it stays in its zone as long as that
//! leaves no endpoint with much more of it than others. A zone with a third of all processors is served by a third of the endpoints.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointHints, ForZone};
use setpoint_api::quantity::Quantity;

/// What may be the annotation of a Service; the older name wins.
const ANNOTATIONS: [&str; 2] = ["service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode"];

/// By so much an endpoint may have more traffic than it would have without zones. Same as Kubernetes.
const OVERLOAD: f64 = 0.2;

/// Nodes with these labels run no pods of users, whose traffic it is about.
pub const NOT_COUNTED: [&str; 2] = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];

/// Whether a Service asks for it.
pub fn is_asked_for(service: &Service) -> bool {
    let annotations = service.metadata.annotations.as_ref();
    let mode = ANNOTATIONS.iter().find_map(|name| annotations?.get(*name));
    mode.is_some_and(|mode| matches!(&**mode, "Auto" | "auto"))
}

/// What a node adds to its zone.
pub struct Site<'a> {
    pub zone: Option<&'a str>,
    pub cpu: Option<&'a str>,
    /// Whether it is ready, and for pods of users.
    pub is_counted: bool,
}

/// The share of all processors that each zone has.
#[derive(Debug, PartialEq)]
pub struct Shares(BTreeMap<String, f64>);

impl Shares {
    /// Those of nodes that count; none if that can't be said of all of them, or if all are in one zone.
    pub fn of<'a>(sites: impl IntoIterator<Item = Site<'a>>) -> Option<Shares> {
        let mut by_zone: BTreeMap<String, i64> = BTreeMap::new();
        for site in sites {
            if !site.is_counted {
                continue;
            }
            let cpu = site.cpu.and_then(|cpu| Quantity::parse(cpu).ok()).map_or(0, |cpu| cpu.milli_value());
            let zone = site.zone.filter(|zone| !zone.is_empty() && cpu > 0)?;
            *by_zone.entry(zone.to_owned()).or_default() += cpu;
        }
        let all: i64 = by_zone.values().sum();
        let share = |cpu: i64| cpu as f64 / all as f64;
        (by_zone.len() > 1).then(|| Shares(by_zone.into_iter().map(|(zone, cpu)| (zone, share(cpu))).collect()))
    }

    /// How many of so many endpoints each zone should have.
    fn goals(&self, endpoints: usize) -> Result<BTreeMap<&str, f64>, String> {
        if self.0.len() > endpoints {
            return Err(format!(
                "Insufficient number of endpoints ({endpoints}), impossible to safely allocate proportionally"
            ));
        }
        let (mut goals, mut needed) = (BTreeMap::new(), 0.0);
        for (zone, share) in &self.0 {
            let fair = share * endpoints as f64;
            let least = (fair / (1.0 + OVERLOAD)).ceil();
            needed += least;
            goals.insert(zone.as_str(), fair.max(least));
        }
        match needed > endpoints as f64 {
            true => Err(format!(
                "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold \
                 ({endpoints} endpoints, {} zones)",
                self.0.len()
            )),
            false => Ok(goals),
        }
    }
}

/// What is against it if there are no shares.
pub const NO_SHARES: &str = "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes";

/// Tells for each endpoint that is ready from which zone its traffic should come, or why that can't be told for all of them. `known` is
/// what is said of an endpoint now: those that serve another zone already go on with it, so that little changes.
pub fn assign(
    shares: &Shares,
    endpoints: Vec<&mut Endpoint>,
    known: impl Fn(&Endpoint) -> Option<String>,
) -> Result<(), String> {
    let is_ready = |endpoint: &Endpoint| endpoint.conditions.as_ref().is_some_and(|it| it.ready != Some(false));
    let mut ready: Vec<&mut Endpoint> = endpoints.into_iter().filter(|endpoint| is_ready(endpoint)).collect();
    let goals = shares.goals(ready.len())?;
    if ready.iter().any(|endpoint| endpoint.zone.as_deref().unwrap_or_default().is_empty()) {
        return Err("No zone specified for one or more endpoints".to_owned());
    }
    let mut in_zone: BTreeMap<String, usize> = BTreeMap::new();
    for endpoint in &mut ready {
        let zone = endpoint.zone.clone().unwrap_or_default();
        *in_zone.entry(zone.clone()).or_default() += 1;
        endpoint.hints = Some(from(zone));
    }
    let (mut giving, mut receiving) = moves(&goals, &in_zone);
    ready.sort_by_cached_key(|endpoint| known(endpoint).is_none_or(|zone| endpoint.zone.as_deref() == Some(&*zone)));
    for endpoint in ready {
        let Some(left) = giving.get_mut(endpoint.zone.as_deref().unwrap_or_default()).filter(|left| **left > 0) else {
            continue;
        };
        let wanted = known(endpoint).filter(|zone| receiving.get(zone).is_some_and(|room| *room > 0));
        let next = || receiving.iter().find(|(_, room)| **room > 0).map(|(zone, _)| zone.clone());
        let Some(zone) = wanted.or_else(next) else { break };
        *left -= 1;
        receiving.entry(zone.clone()).and_modify(|room| *room -= 1);
        endpoint.hints = Some(from(zone));
    }
    Ok(())
}

fn from(zone: String) -> EndpointHints {
    EndpointHints { for_zones: Some(vec![ForZone { name: zone }]), for_nodes: None }
}

type Counts = BTreeMap<String, usize>;

/// How many endpoints zones give to others, and how many they receive. One is moved from where there are most too many to where most
/// are missing, as long as that is more than half an endpoint on both sides, and a whole one on one of them.
fn moves(goals: &BTreeMap<&str, f64>, in_zone: &Counts) -> (Counts, Counts) {
    let (mut too_many, mut too_few) = (BTreeMap::new(), BTreeMap::new());
    for (zone, goal) in goals {
        let surplus = in_zone.get(*zone).copied().unwrap_or_default() as f64 - goal;
        if surplus > 0.0 {
            too_many.insert(*zone, surplus);
        } else if surplus < 0.0 {
            too_few.insert(*zone, -surplus);
        }
    }
    let most = |zones: &BTreeMap<&str, f64>| {
        // Of several, the first by name.
        let most = zones.iter().fold(None, |best: Option<(&str, f64)>, (zone, count)| match best {
            Some(best) if best.1 >= *count => Some(best),
            _ => Some((*zone, *count)),
        });
        most.map(|(zone, count)| (zone.to_owned(), count))
    };
    let (mut giving, mut receiving) = (Counts::new(), Counts::new());
    while let (Some((from, surplus)), Some((to, lack))) = (most(&too_many), most(&too_few)) {
        if surplus < 0.5 || lack < 0.5 || surplus < 1.0 && lack < 1.0 {
            break;
        }
        for (counts, left, zone) in [(&mut giving, &mut too_many, &from), (&mut receiving, &mut too_few, &to)] {
            *counts.entry(zone.clone()).or_default() += 1;
            if let Some(left) = left.get_mut(zone.as_str()) {
                *left -= 1.0;
            }
        }
    }
    (giving, receiving)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shares(nodes: &[(&str, &str)]) -> Option<Shares> {
        let site = |(zone, cpu)| Site { zone: Some(zone), cpu: Some(cpu), is_counted: true };
        Shares::of(nodes.iter().copied().map(site))
    }

    /// Endpoints of zones, as letters.
    fn endpoints(zones: &str) -> Vec<Endpoint> {
        let endpoint = |(at, zone): (usize, char)| {
            let zone = Some(zone.to_string()).filter(|zone| zone != "-");
            serde_json::from_value(json!({"addresses": [format!("10.0.0.{at}")], "zone": zone,
                "conditions": {"ready": true, "serving": true, "terminating": false}}))
            .unwrap()
        };
        zones.chars().enumerate().map(endpoint).collect()
    }

    fn hint(endpoint: &Endpoint) -> Option<String> {
        endpoint.hints.as_ref()?.for_zones.as_ref()?.first().map(|zone| zone.name.clone())
    }

    /// The zones that endpoints serve, in the same way.
    fn told(nodes: &[(&str, &str)], zones: &str, before: &[Endpoint]) -> Result<(String, Vec<Endpoint>), String> {
        let mut all = endpoints(zones);
        let known =
            |endpoint: &Endpoint| before.iter().find(|before| before.addresses == endpoint.addresses).and_then(hint);
        assign(&shares(nodes).ok_or(NO_SHARES)?, all.iter_mut().collect(), known)?;
        Ok((all.iter().map(|endpoint| hint(endpoint).unwrap_or_default()).collect(), all))
    }

    #[test]
    fn zones_are_served_by_their_share_of_endpoints() {
        let even = [("a", "4"), ("b", "4")];
        for (nodes, zones, served) in [
            (&even[..], "aabb", "aabb"),
            (&even[..], "aaab", "aabb"),
            (&even[..], "aaaa", "aabb"),
            // Half an endpoint is not worth a move.
            (&even[..], "aaaabbb", "aaaabbb"),
            (&[("a", "6"), ("b", "2")][..], "aabb", "aaab"),
            (&[("a", "3"), ("b", "3"), ("c", "3")][..], "aaabbb", "aabbcc"),
        ] {
            let (got, _) = told(nodes, zones, &[]).unwrap();
            let count = |text: &str, zone: char| text.chars().filter(|it| *it == zone).count();
            for zone in ['a', 'b', 'c'] {
                assert_eq!(count(&got, zone), count(served, zone), "{zone} in {got} of {zones} on {nodes:?}");
            }
        }
    }

    #[test]
    fn an_endpoint_that_serves_another_zone_goes_on_with_it() {
        let nodes = [("a", "4"), ("b", "4")];
        let mut before = endpoints("aaab");
        before[2].hints = Some(from("b".to_owned()));
        assert_eq!(told(&nodes, "aaab", &before).unwrap().0, "aabb");
        // Once it isn't needed there it comes back.
        assert_eq!(told(&nodes, "aabb", &before).unwrap().0, "aabb");
    }

    #[test]
    fn what_can_not_be_fair_is_not_told_and_says_why() {
        let even = [("a", "4"), ("b", "4")];
        for (nodes, zones, why) in [
            (&even[..1], "aa", NO_SHARES),
            (&[("a", "4"), ("", "4")][..], "aabb", NO_SHARES),
            (&[("a", "4"), ("b", "0")][..], "aabb", NO_SHARES),
            (&even[..], "a", "Insufficient number of endpoints (1), impossible to safely allocate proportionally"),
            (&even[..], "aab-", "No zone specified for one or more endpoints"),
            (
                &[("a", "9"), ("b", "1"), ("c", "1")][..],
                "abc",
                "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold \
                 (3 endpoints, 3 zones)",
            ),
        ] {
            assert_eq!(told(nodes, zones, &[]).map(|(told, _)| told), Err(why.to_owned()), "{zones} on {nodes:?}");
        }
    }

    #[test]
    fn a_node_that_does_not_count_may_be_anywhere() {
        let site = |zone, is_counted| Site { zone, cpu: Some("2"), is_counted };
        let counted = Shares::of([site(Some("a"), true), site(Some("b"), true), site(None, false)]);
        assert_eq!(counted, Some(Shares([("a".to_owned(), 0.5), ("b".to_owned(), 0.5)].into())));
    }

    #[test]
    fn the_older_annotation_wins() {
        let service = |annotations| -> Service {
            serde_json::from_value(json!({"metadata": {"annotations": annotations}})).unwrap()
        };
        for (annotations, asked) in [
            (json!({}), false),
            (json!({"service.kubernetes.io/topology-mode": "Auto"}), true),
            (json!({"service.kubernetes.io/topology-mode": "auto", ANNOTATIONS[0]: "Disabled"}), false),
            (json!({ANNOTATIONS[0]: "Auto"}), true),
        ] {
            assert_eq!(is_asked_for(&service(annotations.clone())), asked, "{annotations}");
        }
    }
}
