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
