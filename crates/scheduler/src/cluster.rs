//! What the scheduler knows: nodes, what is on them, and pods that wait.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};

use setpoint_runtime::cache::Cached;
use tokio::time::Instant;

use crate::classes::{Classes, NodeNumber};
use crate::demand::{Demand, class};
use crate::message::unschedulable;
use crate::node::{Node, Offer, State};
use crate::pod::{Pod, Wishes};
use crate::queue::{Queue, Waiting};

/// Everything, under one lock.
pub struct Cluster {
    scheduler: Box<str>,
    nodes: Vec<State>,
    numbers: BTreeMap<Box<str>, NodeNumber>,
    free: Vec<NodeNumber>,
    /// How many nodes there are whose offer is known.
    offering: usize,
    /// Pods on nodes, by uid.
    placed: HashMap<Arc<str>, Placed>,
    demands: HashMap<Arc<str>, Weak<Demand>>,
    classes: Classes,
    pub queue: Queue,
    /// The list that is being read, to tell what it didn't have.
    listing: Option<Listing>,
}

struct Placed {
    node: NodeNumber,
    demand: Arc<Demand>,
    /// Not yet shown so by the API server.
    is_assumed: bool,
}

#[derive(Default)]
struct Listing {
    pods: std::collections::HashSet<Arc<str>>,
}

/// What to do with the next pod.
pub enum Next {
    /// Bind it to this node.
    Bind(Waiting, Box<str>),
    /// Tell why it fits nowhere.
    Tell(Waiting, String),
}

impl Cluster {
    pub fn new(scheduler: &str) -> Cluster {
        Cluster {
            scheduler: scheduler.into(),
            nodes: Vec::new(),
            numbers: BTreeMap::new(),
            free: Vec::new(),
            offering: 0,
            placed: HashMap::new(),
            demands: HashMap::new(),
            classes: Classes::default(),
            queue: Queue::default(),
            listing: None,
        }
    }

    /// The next pod and its fate; a pod that is to be bound counts on its node from now on.
    pub fn next(&mut self, now: Instant) -> Option<Next> {
        let pod = self.queue.pop(now)?;
        let nodes = self.nodes.iter().enumerate();
        let nodes = nodes.map(|(number, state)| (number as NodeNumber, state));
        match self.classes.best(&pod.demand, nodes) {
            Some(number) => {
                let placed = Placed { node: number, demand: pod.demand.clone(), is_assumed: true };
                self.place(pod.uid.clone(), placed);
                let offer = self.nodes[number as usize].offer.as_ref();
                let name = offer.map(|offer| offer.name.clone()).unwrap_or_default();
                Some(Next::Bind(pod, name))
            }
            None => {
                let told = unschedulable(self.offering, &self.classes.reasons(&pod.demand.class));
                self.queue.sleep(&pod.uid, &told);
                self.classes.wait(&pod.demand.class, true);
                Some(Next::Tell(pod, told))
            }
        }
    }

    /// The API server took the binding, or the pod is gone: it waits no more.
    pub fn bound(&mut self, uid: &str) {
        self.forget_waiting(uid);
    }

    /// The API server didn't take the binding.
    pub fn not_bound(&mut self, uid: &str, now: Instant) {
        if self.placed.get(uid).is_some_and(|placed| placed.is_assumed) {
            self.lift(uid);
        }
        self.queue.pause(uid, now);
    }

    pub fn see_node(&mut self, node: Node) {
        let offer = Offer::of(node);
        let number = self.number_of(&offer.name);
        let state = &mut self.nodes[number as usize];
        if state.offer.as_ref() == Some(&offer) {
            return;
        }
        if state.offer.replace(offer).is_none() {
            self.offering += 1;
        }
        self.changed(number);
    }

    pub fn lose_node(&mut self, name: &str) {
        let Some(&number) = self.numbers.get(name) else { return };
        if self.nodes[number as usize].offer.take().is_some() {
            self.offering -= 1;
        }
        self.changed(number);
        self.forget_node(name, number);
    }

    /// The names of all nodes that offer something.
    pub fn node_names(&self) -> Vec<Box<str>> {
        let known = self.numbers.iter().filter(|(_, number)| self.nodes[**number as usize].offer.is_some());
        known.map(|(name, _)| name.clone()).collect()
    }

    pub fn see_pod(&mut self, pod: &Pod) {
        let uid = &*pod.metadata.uid;
        if let Some(listing) = &mut self.listing {
            listing.pods.insert(uid.into());
        }
        if pod.has_ended() {
            return self.lose_pod(uid);
        }
        if !pod.spec.node_name.is_empty() {
            self.forget_waiting(uid);
            return self.see_placed(pod);
        }
        let is_ours = *pod.spec.scheduler_name == *self.scheduler
            || (pod.spec.scheduler_name.is_empty() && &*self.scheduler == crate::DEFAULT);
        let may_go = is_ours && pod.spec.scheduling_gates.is_empty() && pod.metadata.deletion_timestamp.is_none();
        if !may_go {
            return self.forget_waiting(uid);
        }
        // Assumed on a node: the API server will show it there soon, or the binding will fail.
        if self.placed.contains_key(uid) || self.queue.get(uid).is_some() {
            return;
        }
        let demand = self.demand(&pod.spec.wishes);
        self.queue.add(pod.key(), uid, pod.spec.priority, demand, pod.told());
    }

    pub fn lose_pod(&mut self, uid: &str) {
        self.forget_waiting(uid);
        self.lift(uid);
    }

    /// A list of all pods begins.
    pub fn list_pods(&mut self) {
        self.listing = Some(Listing::default());
    }

    /// The list of all pods is complete.
    pub fn pods_listed(&mut self) {
        let Some(listing) = self.listing.take() else { return };
        let known = self.placed.keys().cloned().chain(self.queue.uids());
        let gone: Vec<Arc<str>> = known.filter(|uid| !listing.pods.contains(uid)).collect();
        for uid in gone {
            // A pod that was bound after the list was made is in none of its pages only if it is gone.
            self.lose_pod(&uid);
        }
    }

    fn see_placed(&mut self, pod: &Pod) {
        let number = self.number_of(&pod.spec.node_name);
        match self.placed.get_mut(&*pod.metadata.uid) {
            Some(placed) if placed.node == number => placed.is_assumed = false,
            _ => {
                self.lift(&pod.metadata.uid);
                let demand = self.demand(&pod.spec.wishes);
                self.place((&*pod.metadata.uid).into(), Placed { node: number, demand, is_assumed: false });
            }
        }
    }

    fn place(&mut self, uid: Arc<str>, placed: Placed) {
        let number = placed.node;
        self.nodes[number as usize].put(&placed.demand);
        self.placed.insert(uid, placed);
        self.changed(number);
    }

    fn lift(&mut self, uid: &str) {
        let Some(placed) = self.placed.remove(uid) else { return };
        self.nodes[placed.node as usize].take(&placed.demand);
        self.changed(placed.node);
    }

    fn forget_waiting(&mut self, uid: &str) {
        let is_asleep = self.queue.is_asleep(uid);
        if let Some(pod) = self.queue.remove(uid)
            && is_asleep
        {
            self.classes.wait(&pod.demand.class, false);
        }
    }

    fn changed(&mut self, number: NodeNumber) {
        let state = &self.nodes[number as usize];
        for class in self.classes.changed(number, Some(state)) {
            for _ in 0..self.queue.wake(&class) {
                self.classes.wait(&class, false);
            }
        }
    }

    fn number_of(&mut self, name: &str) -> NodeNumber {
        if let Some(&number) = self.numbers.get(name) {
            return number;
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.nodes.push(State::default());
            (self.nodes.len() - 1) as NodeNumber
        });
        self.numbers.insert(name.into(), number);
        number
    }

    fn forget_node(&mut self, name: &str, number: NodeNumber) {
        if self.nodes[number as usize].is_forgotten() {
            self.nodes[number as usize] = State::default();
            self.numbers.remove(name);
            self.free.push(number);
        }
    }

    /// The demand of wishes; one for all pods of a class.
    fn demand(&mut self, wishes: &Wishes) -> Arc<Demand> {
        let class = class(wishes);
        if let Some(known) = self.demands.get(&class).and_then(Weak::upgrade) {
            return known;
        }
        self.demands.retain(|_, demand| demand.strong_count() > 0);
        let demand = Arc::new(Demand::of(wishes));
        self.demands.insert(class, Arc::downgrade(&demand));
        demand
    }
}
