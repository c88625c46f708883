//! Which node a pod gets.

use std::collections::HashMap;

use crate::classes::Class;
use crate::cluster::Cluster;
use crate::devices::Lack;
use crate::fit::{Obstacles, Reason};
use crate::judge::Judge;
use crate::message::{CONFLICTING_NAMES, Counts, NO_NODES, unallocated, unavailable, unavailable_because};
use crate::node::NodeNumber;
use crate::queue::{Call, Waiting};
use crate::score::{FULL, score};
use crate::storage::{Claims, Step};

/// So many nodes are compared for pods that other pods make a difference for: more would cost time and win little.
const COMPARED_MAX: usize = 128;

/// So many nodes of each zone are looked at before those that others forbid are looked through.
const LOOKED_AT_FIRST: usize = 16;

/// Images below and above this (bytes, for each container) make no difference, or all the difference.
const IMAGE_BYTES: (i64, i64) = (23 * 1024 * 1024, 1024 * 1024 * 1024);

/// The node that a pod gets.
pub struct Choice {
    pub node: NodeNumber,
    /// What has to be done before it can be bound.
    pub steps: Vec<Step>,
}

/// Why it gets none.
pub struct Refusal {
    pub told: String,
    /// What may help.
    pub calls: Vec<Call>,
    /// Whether nodes were looked at, so that it can help if other pods leave them.
    pub is_by_node: bool,
    /// What is told in the end, if it is something of its own.
    pub words: Option<Box<str>>,
    /// What is against those nodes that its class alone doesn't rule out.
    pub failing: HashMap<NodeNumber, Obstacles>,
}

impl Cluster {
    /// The node for a pod.
    pub fn choose(&mut self, pod: &Waiting) -> Result<Choice, Refusal> {
        let claims = self.storage.claims(&pod.key, &pod.uid, &pod.claims);
        let claims = match claims {
            _ if self.offering == 0 => Claims::default(),
            Ok(claims) => claims,
            Err((why, calls)) => {
                let told = unavailable_because(self.offering, &why);
                return Err(Refusal { told, calls, is_by_node: false, words: None, failing: HashMap::new() });
            }
        };
        let claims = self.with_devices(pod, claims)?;
        if let Some(node) = self.nominations.node_of(&pod.uid)
            && let Ok(steps) = self.judge().judge(pod, &claims, node)
        {
            return Ok(Choice { node, steps });
        }
        match &pod.demand.named {
            Some(names) => self.choose_named(pod, &claims, names),
            None => self.choose_any(pod, &claims),
        }
    }

    /// The same with the places of the devices of a pod, if it has got them all.
    fn with_devices(&self, pod: &Waiting, mut claims: Claims) -> Result<Claims, Refusal> {
        if self.offering == 0 || pod.devices.is_empty() {
            return Ok(claims);
        }
        match self.devices.places(&pod.key, &pod.uid, &pod.devices) {
            Ok(places) => {
                claims.places.extend(places.into_iter().cloned());
                Ok(claims)
            }
            Err(Lack { why, is_unallocated, calls }) => {
                let count = self.offering;
                let why = if is_unallocated { format!("{count} {why}") } else { why };
                let told = unavailable_because(count, &why);
                let words = is_unallocated.then(|| unallocated(count, &told).into());
                Err(Refusal { told, calls, is_by_node: false, words, failing: HashMap::new() })
            }
        }
    }

    /// The parts that a judge needs.
    pub fn judge(&mut self) -> Judge<'_> {
        Judge {
            nodes: &self.nodes,
            relations: &mut self.relations,
            nominations: &self.nominations,
            storage: &self.storage,
        }
    }

    fn choose_named(&mut self, pod: &Waiting, claims: &Claims, names: &[Box<str>]) -> Result<Choice, Refusal> {
        if names.is_empty() && self.offering > 0 {
            // Only another pod could ask for less at once: what a pod asks of its node never changes.
            let told = unavailable_because(self.offering, CONFLICTING_NAMES);
            let (calls, failing) = (Vec::new(), HashMap::new());
            return Err(Refusal { told, calls, is_by_node: false, words: None, failing });
        }
        let mut found = Vec::new();
        let mut failing = HashMap::new();
        for name in names {
            let Some(&number) = self.numbers.get(name) else { continue };
            let Some(offer) = &self.nodes[number as usize].offer else { continue };
            let score = score(&pod.demand, offer, &self.nodes[number as usize].load);
            match self.judge().judge(pod, claims, number) {
                Ok(steps) => found.push((number, score, steps)),
                Err(obstacles) => drop(failing.insert(number, obstacles)),
            }
        }
        if let Some((node, _, steps)) = found.into_iter().max_by_key(|(number, score, _)| (*score, u32::MAX - number)) {
            return Ok(Choice { node, steps });
        }
        let mut counts = Counts::default();
        failing.values().flat_map(|found| &found.reasons).for_each(|reason| counts.add(reason, 1));
        counts.add(Reason::Unnamed, self.offering - failing.len());
        let mut calls: Vec<Call> = names.iter().map(|name| Call::Node(name.clone())).collect();
        calls.extend(self.calls_beyond_class(pod, claims));
        Err(Refusal { told: self.told(&counts), calls, is_by_node: true, words: None, failing })
    }

    fn choose_any(&mut self, pod: &Waiting, claims: &Claims) -> Result<Choice, Refusal> {
        let is_free = claims.is_empty() && self.nominations.is_empty() && self.relations.is_free(&pod.relation);
        let is_indifferent = self.relations.is_indifferent(&pod.relation) && !self.images.knows(&pod.images);
        let class = self.classes.look(&pod.demand, &self.nodes, |class| self.queue.awaits(class));
        if is_free
            && is_indifferent
            && let Some(node) = class.best()
        {
            return Ok(Choice { node, steps: Vec::new() });
        }
        let mut judge = Judge {
            nodes: &self.nodes,
            relations: &mut self.relations,
            nominations: &self.nominations,
            storage: &self.storage,
        };
        let compared = if is_indifferent { 1 } else { COMPARED_MAX };
        let (found, failing) = walk(class, &mut judge, pod, claims, compared);
        if !found.is_empty() {
            return Ok(self.best_of(pod, found));
        }
        let is_closed = class.best().is_none();
        let mut counts = Counts::of(class.reasons());
        failing.values().flat_map(|found| &found.reasons).for_each(|reason| counts.add(reason, 1));
        let calls = match is_closed {
            true => vec![Call::Opened(pod.demand.class)],
            false => {
                let mut calls = vec![Call::Gained(pod.demand.class)];
                calls.extend(self.calls_beyond_class(pod, claims));
                calls
            }
        };
        Err(Refusal { told: self.told(&counts), calls, is_by_node: true, words: None, failing })
    }

    fn told(&self, counts: &Counts) -> String {
        if self.offering == 0 { NO_NODES.to_owned() } else { unavailable(self.offering, counts) }
    }

    /// What may help a pod besides a node that fits its class.
    fn calls_beyond_class(&self, pod: &Waiting, claims: &Claims) -> Vec<Call> {
        let mut calls = self.relations.calls(&pod.relation);
        calls.extend(self.storage.calls(claims));
        if !self.nominations.is_empty() {
            calls.push(Call::Nomination);
        }
        calls
    }

    /// The best of some nodes that fit.
    fn best_of(&self, pod: &Waiting, found: Vec<Found>) -> Choice {
        let numbers: Vec<NodeNumber> = found.iter().map(|found| found.node).collect();
        let others = self.relations.scores(&pod.relation, &pod.demand, &numbers, &self.nodes);
        let images = numbers.iter().map(|number| self.image_score(pod, *number));
        let best = found.into_iter().zip(others.into_iter().zip(images)).max_by_key(|(found, (others, images))| {
            (found.score + others + images * pod.demand.profile.weights.images, u32::MAX - found.node)
        });
        // There is at least one: only then this is asked.
        best.map_or(Choice { node: 0, steps: Vec::new() }, |(found, _)| Choice { node: found.node, steps: found.steps })
    }

    /// How much of the pod's images is on a node; those that are on many nodes count more.
    fn image_score(&self, pod: &Waiting, number: NodeNumber) -> i64 {
        let Some(offer) = &self.nodes[number as usize].offer else { return 0 };
        let bytes = pod.images.iter().map(|image| self.images.bytes_on(image, offer, self.offering)).sum::<i64>();
        let (least, most) = (IMAGE_BYTES.0, IMAGE_BYTES.1 * i64::try_from(pod.images.len().max(1)).unwrap_or(1));
        FULL * (bytes.clamp(least, most) - least) / (most - least)
    }
}

/// A node that a pod can be on.
struct Found {
    node: NodeNumber,
    score: i64,
    steps: Vec<Step>,
}

/// Looks at nodes that fit the class, best first in each zone, until enough are found that fit the pod too.
fn walk(
    class: &Class,
    judge: &mut Judge<'_>,
    pod: &Waiting,
    claims: &Claims,
    compared: usize,
) -> (Vec<Found>, HashMap<NodeNumber, Obstacles>) {
    let enough = compared.div_ceil(class.shelf_count().max(1));
    let (mut all, mut failing) = (Vec::new(), HashMap::new());
    // Whole zones may be forbidden: they are looked through only if no other has a node.
    let first = LOOKED_AT_FIRST.max(2 * enough);
    for (skipped, looked_at) in [(0, first), (first, usize::MAX)] {
        for shelf in class.shelves() {
            let mut found = 0;
            for (node, score) in shelf.skip(skipped).take(looked_at) {
                match judge.judge(pod, claims, node) {
                    Ok(steps) => {
                        all.push(Found { node, score, steps });
                        found += 1;
                    }
                    Err(obstacles) => drop(failing.insert(node, obstacles)),
                }
                if found >= enough {
                    break;
                }
            }
        }
        if !all.is_empty() {
            break;
        }
    }
    (all, failing)
}
