//! Whether a pod can be on a node when everything is considered: those that the node is held for, volumes and other pods.

use crate::fit::{Obstacles, obstacles};
use crate::node::{Load, NodeNumber, State};
use crate::nominations::{Nominations, Nominee};
use crate::queue::Waiting;
use crate::relations::Relations;
use crate::storage::{Claims, Step, Storage};

/// Everything that a verdict depends on.
pub struct Judge<'a> {
    pub nodes: &'a [State],
    pub relations: &'a mut Relations,
    pub nominations: &'a Nominations,
    pub storage: &'a Storage,
}

impl Judge<'_> {
    /// What has to be done before the pod can be on a node, or why it can't.
    pub fn judge(&mut self, pod: &Waiting, claims: &Claims, number: NodeNumber) -> Result<Vec<Step>, Obstacles> {
        let Some(state) = self.nodes.get(number as usize) else { return Ok(Vec::new()) };
        self.judge_with(pod, claims, number, &state.load)
    }

    /// The same as if something else were taken of the node.
    pub fn judge_with(
        &mut self,
        pod: &Waiting,
        claims: &Claims,
        number: NodeNumber,
        load: &Load,
    ) -> Result<Vec<Step>, Obstacles> {
        let nominees: Vec<Nominee> = self.nominations.against(number, &pod.uid, pod.priority).cloned().collect();
        if !nominees.is_empty() {
            let mut with = load.clone();
            self.relations.imagine(true);
            for nominee in &nominees {
                with.put(&nominee.demand);
                self.relations.place(&nominee.relation, number, false, 1);
            }
            let found = self.stand(pod, claims, number, &with);
            for nominee in &nominees {
                self.relations.place(&nominee.relation, number, false, -1);
            }
            self.relations.imagine(false);
            found?;
        }
        // Those for whom it is held may never come: the pod mustn't need them.
        self.stand(pod, claims, number, load)
    }

    fn stand(&self, pod: &Waiting, claims: &Claims, number: NodeNumber, load: &Load) -> Result<Vec<Step>, Obstacles> {
        let state = &self.nodes[number as usize];
        let Some(offer) = &state.offer else { return Err(Obstacles::default()) };
        let found = obstacles(&pod.demand, offer, load);
        if !found.is_empty() {
            return Err(found);
        }
        let steps = if claims.is_empty() { Vec::new() } else { self.storage.judge(claims, offer)? };
        match self.relations.obstacle(&pod.relation, number, state) {
            Some(found) => Err(found),
            None => Ok(steps),
        }
    }
}
