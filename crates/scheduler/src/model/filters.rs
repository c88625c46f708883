//! Every filter, looked up in the objects themselves, pod by pod and node by node.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

/// A pod and the node that it is on.
pub type Resident = (Value, String);

/// What the slow model looks at.
pub struct View<'a> {
    pub nodes: &'a [Value],
    pub residents: &'a [Resident],
    /// Labels of namespaces.
    pub namespaces: &'a BTreeMap<String, Value>,
}

/// Reasons, and whether they would stand on an empty node.
pub type Answer = (Vec<String>, bool);

impl View<'_> {
    /// Why a pod can't be on a node.
    pub fn reasons(&self, pod: &Value, node: &Value) -> Answer {
        let checks: [fn(&Self, &Value, &Value) -> Answer; 7] =
            [Self::unschedulable, Self::taints, Self::affinity, Self::ports, Self::resources, Self::spread, Self::pods];
        checks.iter().map(|check| check(self, pod, node)).find(|(found, _)| !found.is_empty()).unwrap_or_default()
    }

    /// What a pod that fits nowhere is told, if no other pod is less important.
    pub fn message(&self, pod: &Value) -> String {
        let count = self.nodes.len();
        if count == 0 {
            return "no nodes available to schedule pods".to_owned();
        }
        let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
        let mut lasting = 0;
        for node in self.nodes {
            let (found, is_final) = self.reasons(pod, node);
            found.into_iter().for_each(|reason| *reasons.entry(reason).or_default() += 1);
            lasting += usize::from(is_final);
        }
        let mut preemption = BTreeMap::new();
        preemption.insert("Preemption is not helpful for scheduling".to_owned(), lasting);
        preemption.insert("No preemption victims found for incoming pod".to_owned(), count - lasting);
        format!(
            "0/{count} nodes are available: {}. no new claims to deallocate, preemption: 0/{count} nodes are available: {}.",
            list(&reasons),
            list(&preemption)
        )
    }

    fn on(&self, node: &Value) -> impl Iterator<Item = &Value> {
        let name = name(node);
        self.residents.iter().filter(move |(_, on)| *on == name).map(|(pod, _)| pod)
    }

    fn unschedulable(&self, pod: &Value, node: &Value) -> Answer {
        let taint = serde_json::json!({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"});
        let is_so = node["spec"]["unschedulable"] == true && !tolerates(pod, &taint);
        lasting(is_so, "node(s) were unschedulable")
    }

    fn taints(&self, pod: &Value, node: &Value) -> Answer {
        lasting(is_tainted(pod, node), "node(s) had untolerated taint(s)")
    }

    fn affinity(&self, pod: &Value, node: &Value) -> Answer {
        lasting(!is_chosen(pod, node), "node(s) didn't match Pod's node affinity/selector")
    }

    fn ports(&self, pod: &Value, node: &Value) -> Answer {
        let clash = self.on(node).any(|other| {
            ports(other).iter().any(|(ip, port, protocol)| {
                ports(pod).iter().any(|(its_ip, its_port, its_protocol)| {
                    port == its_port
                        && protocol == its_protocol
                        && (ip == its_ip || ip == "0.0.0.0" || its_ip == "0.0.0.0")
                })
            })
        });
        passing(clash, "node(s) didn't have free ports for the requested pod ports")
    }

    fn resources(&self, pod: &Value, node: &Value) -> Answer {
        let mut found = Vec::new();
        let mut is_final = false;
        if self.on(node).count() as i64 + 1 > amount(&node["status"]["allocatable"]["pods"], 1) {
            found.push("Too many pods".to_owned());
        }
        for resource in ["cpu", "memory", "example.com/gpu"] {
            let scale = if resource == "cpu" { 1000 } else { 1 };
            let has = amount(&node["status"]["allocatable"][resource], scale);
            let taken: i64 = self.on(node).map(|other| asked(other, resource)).sum();
            let asked = asked(pod, resource);
            if asked > 0 && taken + asked > has {
                found.push(format!("Insufficient {resource}"));
                is_final |= asked > has;
            }
        }
        (found, is_final)
    }

    fn spread(&self, pod: &Value, node: &Value) -> Answer {
        let hard: Vec<&Value> = items(&pod["spec"]["topologySpreadConstraints"])
            .filter(|it| it["whenUnsatisfiable"] == "DoNotSchedule")
            .collect();
        let labels_of =
            |node: &Value, it: &Value| node["metadata"]["labels"][text(&it["topologyKey"])].as_str().map(str::to_owned);
        for constraint in &hard {
            let Some(value) = labels_of(node, constraint) else {
                return lasting(true, "node(s) didn't match pod topology spread constraints (missing required label)");
            };
            let mut domains: BTreeMap<String, i64> = BTreeMap::new();
            for other in self.nodes {
                let has_all = hard.iter().all(|it| labels_of(other, it).is_some());
                let is_left_out = (constraint["nodeAffinityPolicy"] != "Ignore" && !is_chosen(pod, other))
                    || (constraint["nodeTaintsPolicy"] == "Honor" && is_tainted(pod, other));
                if !has_all || is_left_out {
                    continue;
                }
                let selector = &constraint["labelSelector"];
                let counted = self.on(other).filter(|it| {
                    it["metadata"]["namespace"] == pod["metadata"]["namespace"]
                        && it["metadata"]["deletionTimestamp"].is_null()
                        && selector.as_object().is_some_and(|it| !it.is_empty())
                        && selects(selector, &it["metadata"]["labels"])
                });
                *domains.entry(labels_of(other, constraint).unwrap()).or_default() += counted.count() as i64;
            }
            let few = (domains.len() as i64) < constraint["minDomains"].as_i64().unwrap_or(1);
            let least = if few { 0 } else { domains.values().min().copied().unwrap_or(0) };
            let own = i64::from(selects(&constraint["labelSelector"], &pod["metadata"]["labels"]));
            let here = domains.get(&value).copied().unwrap_or(0);
            if here + own - least > constraint["maxSkew"].as_i64().unwrap() {
                return passing(true, "node(s) didn't match pod topology spread constraints");
            }
        }
        Answer::default()
    }

    fn pods(&self, pod: &Value, node: &Value) -> Answer {
        let near: Vec<&Value> = terms(pod, "podAffinity").collect();
        if near.iter().any(|term| label(node, term).is_none()) {
            return lasting(true, "node(s) didn't match pod affinity rules");
        }
        let all = |other: &Value| near.iter().all(|term| self.speaks_of(pod, term, other));
        let anywhere = self.residents.iter().any(|(other, on)| {
            let on = self.nodes.iter().find(|node| name(node) == *on);
            all(other) && on.is_some_and(|on| near.iter().any(|term| label(on, term).is_some()))
        });
        let is_near = near.iter().all(|term| self.near(node, term).any(all));
        if !near.is_empty() && !is_near && (anywhere || !all(pod)) {
            return lasting(true, "node(s) didn't match pod affinity rules");
        }
        let away = terms(pod, "podAntiAffinity")
            .any(|term| self.near(node, term).any(|other| self.speaks_of(pod, term, other)));
        if away {
            return passing(true, "node(s) didn't match pod anti-affinity rules");
        }
        let repelled = self.residents.iter().any(|(other, on)| {
            let on = self.nodes.iter().find(|node| name(node) == *on);
            terms(other, "podAntiAffinity").any(|term| {
                let value = on.and_then(|on| label(on, term));
                value.is_some() && value == label(node, term) && self.speaks_of(other, term, pod)
            })
        });
        passing(repelled, "node(s) didn't satisfy existing pods anti-affinity rules")
    }

    /// Pods on nodes with the same value of a term's label.
    fn near<'a>(&'a self, node: &'a Value, term: &'a Value) -> impl Iterator<Item = &'a Value> {
        self.nodes
            .iter()
            .filter(move |other| label(node, term).is_some() && label(other, term) == label(node, term))
            .flat_map(|other| self.on(other))
    }

    /// Whether the term of a pod speaks of another.
    fn speaks_of(&self, holder: &Value, term: &Value, other: &Value) -> bool {
        let namespace = text(&other["metadata"]["namespace"]);
        let named: BTreeSet<&str> = items(&term["namespaces"]).map(text).collect();
        let by_label = !term["namespaceSelector"].is_null()
            && selects(&term["namespaceSelector"], self.namespaces.get(namespace).unwrap_or(&Value::Null));
        let own = named.is_empty()
            && term["namespaceSelector"].is_null()
            && holder["metadata"]["namespace"] == other["metadata"]["namespace"];
        (named.contains(namespace) || by_label || own) && selects(&term["labelSelector"], &other["metadata"]["labels"])
    }
}

pub fn name(object: &Value) -> String {
    text(&object["metadata"]["name"]).to_owned()
}

/// What a pod asks for at its worst moment.
pub fn asked(pod: &Value, resource: &str) -> i64 {
    let scale = if resource == "cpu" { 1000 } else { 1 };
    let of = |container: &Value| amount(&container["resources"]["requests"][resource], scale);
    let main: i64 = items(&pod["spec"]["containers"]).map(of).sum();
    let sidecars: i64 =
        items(&pod["spec"]["initContainers"]).filter(|it| it["restartPolicy"] == "Always").map(of).sum();
    let (mut before, mut peak) = (0, 0);
    for container in items(&pod["spec"]["initContainers"]) {
        peak = peak.max(before + of(container));
        if container["restartPolicy"] == "Always" {
            before += of(container);
        }
    }
    peak.max(main + sidecars)
}

/// How much a node has.
pub fn has(node: &Value, resource: &str) -> i64 {
    amount(&node["status"]["allocatable"][resource], if resource == "cpu" { 1000 } else { 1 })
}

fn amount(value: &Value, scale: i64) -> i64 {
    let text = value.as_str().unwrap_or("0");
    match text.strip_suffix('m') {
        Some(thousandths) => thousandths.parse::<i64>().unwrap() * scale / 1000,
        None => text.parse::<i64>().unwrap() * scale,
    }
}

fn lasting(is_so: bool, reason: &str) -> Answer {
    if is_so { (vec![reason.to_owned()], true) } else { Answer::default() }
}

fn passing(is_so: bool, reason: &str) -> Answer {
    if is_so { (vec![reason.to_owned()], false) } else { Answer::default() }
}

fn list(reasons: &BTreeMap<String, usize>) -> String {
    let told = reasons.iter().filter(|(_, count)| **count > 0).map(|(reason, count)| format!("{count} {reason}"));
    let mut told: Vec<String> = told.collect();
    told.sort();
    told.join(", ")
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn label(node: &Value, term: &Value) -> Option<String> {
    node["metadata"]["labels"][text(&term["topologyKey"])].as_str().map(str::to_owned)
}

fn terms<'a>(pod: &'a Value, kind: &str) -> impl Iterator<Item = &'a Value> {
    items(&pod["spec"]["affinity"][kind]["requiredDuringSchedulingIgnoredDuringExecution"])
}

fn is_tainted(pod: &Value, node: &Value) -> bool {
    items(&node["spec"]["taints"]).any(|taint| taint["effect"] != "PreferNoSchedule" && !tolerates(pod, taint))
}

fn tolerates(pod: &Value, taint: &Value) -> bool {
    items(&pod["spec"]["tolerations"]).any(|it| {
        let any = |field: &str| it[field].is_null();
        (any("key") || it["key"] == taint["key"])
            && (any("effect") || it["effect"] == taint["effect"])
            && (it["operator"] == "Exists" || (!any("key") && text(&it["value"]) == text(&taint["value"])))
    })
}

fn is_chosen(pod: &Value, node: &Value) -> bool {
    let none = Map::new();
    let wanted = pod["spec"]["nodeSelector"].as_object().unwrap_or(&none);
    let by_label = wanted.iter().all(|(name, value)| node["metadata"]["labels"][name] == *value);
    let terms =
        &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
    let by_term = terms.is_null()
        || items(terms).any(|term| {
            items(&term["matchExpressions"]).all(|wanted| meets(wanted, &node["metadata"]["labels"]))
                && term["matchExpressions"].is_array()
        });
    by_label && by_term
}

fn selects(selector: &Value, labels: &Value) -> bool {
    let Some(selector) = selector.as_object() else { return false };
    let none = Map::new();
    let same = selector.get("matchLabels").and_then(Value::as_object).unwrap_or(&none);
    same.iter().all(|(name, value)| labels[name] == *value)
        && selector.get("matchExpressions").into_iter().flat_map(items).all(|wanted| meets(wanted, labels))
}

fn meets(wanted: &Value, labels: &Value) -> bool {
    let found = &labels[text(&wanted["key"])];
    let is_listed = items(&wanted["values"]).any(|value| value == found);
    match text(&wanted["operator"]) {
        "In" => is_listed,
        "NotIn" => !is_listed,
        "Exists" => !found.is_null(),
        "DoesNotExist" => found.is_null(),
        other => panic!("no such operator: {other}"),
    }
}

fn ports(pod: &Value) -> Vec<(String, i64, String)> {
    let ports = items(&pod["spec"]["containers"]).flat_map(|container| items(&container["ports"]));
    let whole = ports.map(|port| {
        let ip = port["hostIP"].as_str().unwrap_or("0.0.0.0").to_owned();
        (ip, port["hostPort"].as_i64().unwrap_or(0), port["protocol"].as_str().unwrap_or("TCP").to_owned())
    });
    whole.filter(|(_, port, _)| *port > 0).collect()
}
