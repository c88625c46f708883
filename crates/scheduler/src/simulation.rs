//! Decisions without an API server: what would go where, for planning and for figures.

use serde_json::{Error, Value, from_value};
use tokio::time::Instant;

use crate::cluster::{Cluster, Next};
use crate::profile::Profile;

/// A cluster that is only told about.
pub struct Simulation(Cluster);

/// What was decided about a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The uid of the pod.
    pub pod: String,
    /// Its node, or why it has none.
    pub node: Result<String, String>,
}

impl Simulation {
    /// A cluster without nodes and pods.
    #[must_use]
    pub fn new(profiles: Vec<Profile>) -> Simulation {
        Simulation(Cluster::new(profiles))
    }

    /// A node is there, as the API would show it.
    pub fn see_node(&mut self, node: Value) -> Result<(), Error> {
        self.0.see_node(from_value(node)?);
        Ok(())
    }

    /// A pod is there, as the API would show it.
    pub fn see_pod(&mut self, pod: Value) -> Result<(), Error> {
        self.0.see_pod(&from_value(pod)?);
        Ok(())
    }

    /// A pod is gone.
    pub fn lose_pod(&mut self, uid: &str) {
        self.0.lose_pod(uid);
    }

    /// What happens to the next pod; none if no pod waits that could be tried. A pod that gets a node is on it from now on.
    pub fn decide(&mut self) -> Option<Decision> {
        let (pod, node) = match self.0.next(Instant::now())? {
            Next::Bind(pod, node) => {
                self.0.bound(&pod.uid);
                (pod, Ok(node.into_string()))
            }
            Next::Prepare(pod, _, _) => (pod, Err("waits for its volumes".to_owned())),
            Next::Tell(pod, why, _) | Next::Preempt(pod, why, ..) => (pod, Err(why)),
        };
        Some(Decision { pod: pod.uid.to_string(), node })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::profile::Strategy;

    /// A cluster of nodes that fit everything, each with what makes a difference.
    fn cluster(profile: Profile, nodes: Vec<(&str, Value)>) -> Simulation {
        let mut simulation = Simulation::new(vec![profile]);
        for (name, more) in nodes {
            let room = json!({"cpu": "8", "memory": "16Gi", "pods": "110"});
            let mut labels = json!({"kubernetes.io/hostname": name});
            labels.as_object_mut().unwrap().extend(more["labels"].as_object().cloned().unwrap_or_default());
            let list = |name: &str| more.get(name).cloned().unwrap_or_else(|| json!([]));
            let node = json!({"metadata": {"name": name, "uid": name, "labels": labels}, "spec": {"taints": list("taints")},
                "status": {"allocatable": room, "capacity": room, "images": list("images")}});
            simulation.see_node(node).unwrap();
        }
        simulation
    }

    fn pod(name: &str, spec: Value) -> Value {
        let mut whole = json!({"schedulerName": crate::DEFAULT, "containers": [{"name": "c", "image": "web:1",
            "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]});
        whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        json!({"metadata": {"name": name, "namespace": "shop", "uid": name, "labels": {"app": name}}, "spec": whole})
    }

    /// Where a pod goes that comes after others, which are where they are.
    fn goes(simulation: &mut Simulation, others: &[(&str, &str)], spec: Value) -> String {
        for (name, node) in others {
            simulation.see_pod(pod(name, json!({"nodeName": node}))).unwrap();
        }
        simulation.see_pod(pod("new", spec)).unwrap();
        simulation.decide().unwrap().node.unwrap()
    }

    fn default() -> Profile {
        Profile::named(crate::DEFAULT)
    }

    #[test]
    fn pods_spread_over_nodes_or_fill_them_as_the_profile_says() {
        let nodes = || vec![("one", json!({})), ("two", json!({})), ("three", json!({}))];
        let others = [("a", "one"), ("b", "two"), ("c", "two")];
        assert_eq!(goes(&mut cluster(default(), nodes()), &others, json!({})), "three");
        let packed = Profile { strategy: Strategy::MostAllocated, ..default() };
        assert_eq!(goes(&mut cluster(packed, nodes()), &others, json!({})), "two");
    }

    #[test]
    fn a_full_node_is_never_the_best_one_to_fill() {
        let packed = Profile { strategy: Strategy::MostAllocated, ..default() };
        let mut simulation = cluster(packed, vec![("full", json!({})), ("empty", json!({}))]);
        let huge = json!({"nodeName": "full", "containers": [{"name": "c", "image": "web:1",
            "resources": {"requests": {"cpu": "8"}}}]});
        simulation.see_pod(pod("huge", huge)).unwrap();
        assert_eq!(goes(&mut simulation, &[], json!({})), "empty");
    }

    #[test]
    fn a_node_whose_taint_says_rather_not_is_the_second_choice() {
        let taint = json!({"taints": [{"key": "a", "effect": "PreferNoSchedule"}]});
        let nodes = || vec![("avoided", taint.clone()), ("other", json!({}))];
        let busy = [("a", "other"), ("b", "other")];
        assert_eq!(goes(&mut cluster(default(), nodes()), &busy, json!({})), "other");
        let tolerant = json!({"tolerations": [{"key": "a", "operator": "Exists"}]});
        assert_eq!(goes(&mut cluster(default(), nodes()), &busy, tolerant), "avoided");
    }

    #[test]
    fn preferred_labels_of_nodes_count_by_their_weight() {
        let labelled = |value: &str| json!({"labels": {"disk": value}});
        let nodes = || vec![("fast", labelled("ssd")), ("slow", labelled("hdd")), ("none", json!({}))];
        let prefers = |terms: &[(&str, i64)]| {
            let terms: Vec<Value> = terms
                .iter()
                .map(|(disk, weight)| {
                    json!({"weight": weight, "preference": {"matchExpressions": [
                        {"key": "disk", "operator": "In", "values": [disk]}]}})
                })
                .collect();
            json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}})
        };
        for (terms, node) in [(&[("hdd", 1)][..], "slow"), (&[("hdd", 1), ("ssd", 50)][..], "fast")] {
            assert_eq!(goes(&mut cluster(default(), nodes()), &[], prefers(terms)), node, "{terms:?}");
        }
    }

    #[test]
    fn a_large_image_that_is_there_draws_pods() {
        let image =
            |name: &str, megabytes: i64| json!({"images": [{"names": [name], "sizeBytes": megabytes * 1024 * 1024}]});
        let nodes = |name: &str, megabytes: i64| vec![("bare", json!({})), ("has-it", image(name, megabytes))];
        assert_eq!(goes(&mut cluster(default(), nodes("web:1", 900)), &[], json!({})), "has-it");
        // Too small to make a difference, or another one: the first node is as good.
        assert_eq!(goes(&mut cluster(default(), nodes("web:1", 10)), &[], json!({})), "bare");
        assert_eq!(goes(&mut cluster(default(), nodes("web:2", 900)), &[], json!({})), "bare");
        let indifferent = Profile { weights: crate::Weights { images: 0, ..default().weights }, ..default() };
        assert_eq!(goes(&mut cluster(indifferent, nodes("web:1", 900)), &[], json!({})), "bare");
    }

    #[test]
    fn pods_like_and_dislike_each_other() {
        let nodes = || vec![("one", json!({})), ("two", json!({}))];
        let term = |app: &str| {
            json!({"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": {
                "topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": app}}}}]})
        };
        let others = [("friend", "one"), ("filler", "two")];
        let near = json!({"affinity": {"podAffinity": term("friend")}});
        assert_eq!(goes(&mut cluster(default(), nodes()), &others, near), "one");
        let away = json!({"affinity": {"podAntiAffinity": term("friend")}});
        assert_eq!(goes(&mut cluster(default(), nodes()), &others, away), "two");
    }

    #[test]
    fn pods_are_spread_if_they_can_be() {
        let zone = |name: &str| json!({"labels": {"zone": name}});
        let nodes = vec![("a-1", zone("a")), ("a-2", zone("a")), ("b-1", zone("b"))];
        let spread = json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone",
            "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}}]});
        let others = [("x", "a-1"), ("y", "b-1"), ("z", "a-1")];
        assert_eq!(goes(&mut cluster(default(), nodes), &others, spread), "b-1");
    }
}
