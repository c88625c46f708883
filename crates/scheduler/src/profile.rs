//! How nodes are compared, by the name of the scheduler that a pod asks for.

/// What one scheduler's name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// What pods write as `schedulerName`.
    pub name: String,
    /// Which nodes are better.
    pub strategy: Strategy,
    /// How much each aspect counts.
    pub weights: Weights,
}

/// Which nodes are better: those with more room, or those with less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// Pods spread over nodes.
    #[default]
    LeastAllocated,
    /// Nodes fill up one after the other.
    MostAllocated,
}

/// How much each aspect counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weights {
    /// Room on the node.
    pub room: i64,
    /// Processors and memory used alike.
    pub balance: i64,
    /// Taints that say: rather not.
    pub taints: i64,
    /// Preferred labels of nodes.
    pub node_affinity: i64,
    /// Pods that should be near or far.
    pub pod_affinity: i64,
    /// Pods that should be spread.
    pub spread: i64,
    /// Images that are there already.
    pub images: i64,
}

impl Default for Weights {
    fn default() -> Weights {
        Weights { room: 1, balance: 1, taints: 3, node_affinity: 2, pod_affinity: 2, spread: 2, images: 1 }
    }
}

impl Profile {
    /// As a scheduler of this name does it that was told nothing else.
    pub fn named(name: &str) -> Profile {
        Profile { name: name.to_owned(), strategy: Strategy::default(), weights: Weights::default() }
    }
}
