//! What the scheduler knows: nodes, what is on them, and pods that wait.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Weak};

use k8s_openapi::jiff::Timestamp;
use setpoint_runtime::Key;
use setpoint_runtime::cache::Cached;
use tokio::time::Instant;

use crate::budgets::Budgets;
use crate::choose::Refusal;
use crate::classes::{Classes, SHELVES};
use crate::demand::{Demand, class};
use crate::devices::{Devices, wanted};
use crate::images::{Images, whole_name};
use crate::message::{NO_NODES, NOT_ELIGIBLE, unresolved, without_preemption};
use crate::node::{Node, NodeNumber, Offer, State, ZONE};
use crate::nominations::{Nominations, Nominee};
use crate::owners::Owners;
use crate::pod::{Pod, Wishes};
use crate::preemption::Preemption;
use crate::profile::Profile;
use crate::queue::{Arrival, Call, Queue, Waiting};
use crate::relation::Relation;
use crate::relations::Relations;
use crate::resized::taken;
use crate::storage::{Step, Storage};
use crate::wants;

/// So many classes may be known before those that nobody needs any more are looked for.
const SWEEP_MIN: usize = 256;

/// Everything, under one lock.
pub struct Cluster {
    profiles: Vec<Arc<Profile>>,
    pub nodes: Vec<State>,
    pub numbers: BTreeMap<Box<str>, NodeNumber>,
    free: Vec<NodeNumber>,
    /// How many nodes there are whose offer is known.
    pub offering: usize,
    zones: HashMap<Box<str>, u8>,
    /// Pods on nodes, by uid.
    pub placed: HashMap<Arc<str>, Placed>,
    /// How many of them have each priority.
    pub priorities: BTreeMap<i32, usize>,
    demands: HashMap<String, Weak<Demand>>,
    sweep_at: usize,
    next_class: u64,
    pub classes: Classes,
    pub relations: Relations,
    pub nominations: Nominations,
    pub storage: Storage,
    pub devices: Devices,
    pub images: Images,
    pub owners: Owners,
    pub budgets: Budgets,
    /// How often room was looked for.
    pub preemptions: usize,
    pub queue: Queue,
    /// The list that is being read, to tell what it didn't have.
    listing: Option<HashSet<Arc<str>>>,
}

/// A pod on a node.
pub struct Placed {
    pub key: Key,
    pub node: NodeNumber,
    pub demand: Arc<Demand>,
    pub relation: Arc<Relation>,
    pub priority: i32,
    pub started: Option<Timestamp>,
    claims: Box<[(Box<str>, bool)]>,
    /// Not yet shown so by the API server.
    is_assumed: bool,
    pub is_leaving: bool,
    /// On its way out to make room for another.
    pub is_preempted: bool,
}

/// What to do with the next pod.
pub enum Next {
    /// Bind it to this node.
    Bind(Waiting, Box<str>),
    /// Get its volumes ready on this node; it is bound when they are.
    Prepare(Waiting, Box<str>, Vec<Step>),
    /// Tell why it fits nowhere, and whether the node that its status nominates is held for it no longer.
    Tell(Waiting, String, bool),
    /// The same, and make room for it. Those of the keys lose their nominations.
    Preempt(Waiting, String, Preemption, Vec<Key>),
}

impl Cluster {
    /// A scheduler with these profiles.
    pub fn new(profiles: Vec<Profile>) -> Cluster {
        Cluster {
            profiles: profiles.into_iter().map(Arc::new).collect(),
            nodes: Vec::new(),
            numbers: BTreeMap::new(),
            free: Vec::new(),
            offering: 0,
            zones: HashMap::new(),
            placed: HashMap::new(),
            priorities: BTreeMap::new(),
            demands: HashMap::new(),
            sweep_at: SWEEP_MIN,
            next_class: 1,
            classes: Classes::default(),
            relations: Relations::default(),
            nominations: Nominations::default(),
            storage: Storage::default(),
            devices: Devices::default(),
            images: Images::default(),
            owners: Owners::default(),
            budgets: Budgets::default(),
            preemptions: 0,
            queue: Queue::default(),
            listing: None,
        }
    }

    /// The next pod and its fate; a pod that is to be bound counts on its node from now on.
    pub fn next(&mut self, now: Instant) -> Option<Next> {
        let pod = self.queue.pop(now)?;
        let class = pod.demand.class;
        let next = match self.choose(&pod) {
            Ok(choice) if choice.steps.is_empty() => self.assume(pod, choice.node),
            Ok(choice) => self.prepare(pod, choice.node, choice.steps, now),
            Err(refusal) => self.refuse(pod, refusal, now),
        };
        self.invite(class);
        Some(next)
    }

    fn assume(&mut self, pod: Waiting, node: NodeNumber) -> Next {
        self.nominations.remove(&pod.uid);
        let placed = Placed {
            key: pod.key.clone(),
            node,
            demand: pod.demand.clone(),
            relation: pod.relation.clone(),
            priority: pod.priority,
            started: None,
            claims: pod.claims.clone(),
            is_assumed: true,
            is_leaving: false,
            is_preempted: false,
        };
        self.place(pod.uid.clone(), placed);
        let name = self.name_of(node);
        Next::Bind(pod, name)
    }

    /// The node is held for the pod until its volumes are there.
    fn prepare(&mut self, pod: Waiting, node: NodeNumber, steps: Vec<Step>, now: Instant) -> Next {
        self.nominate(&pod, node);
        self.storage.give(&steps);
        let calls = steps.iter().map(|step| Call::Claim(step.claim().clone())).collect();
        self.queue.sleep(&pod.uid, calls, now);
        let name = self.name_of(node);
        self.queue.update(&pod.uid, |known| known.nominated = name.clone());
        Next::Prepare(pod, name, steps)
    }

    fn refuse(&mut self, pod: Waiting, refusal: Refusal, now: Instant) -> Next {
        let preemption = match self.offering {
            0 => Err(NO_NODES.to_owned()),
            _ if !refusal.is_by_node => {
                Err(refusal.words.as_deref().map_or_else(|| unresolved(&refusal.told), str::to_owned))
            }
            _ => self.preempt(&pod, &refusal).map_err(|why| without_preemption(&refusal.told, &why)),
        };
        let keeps = !refusal.is_by_node || preemption.as_ref().is_err_and(|told| told.contains(NOT_ELIGIBLE));
        match preemption {
            Ok(preemption) => {
                let outdone = self.outdo(&pod, preemption.node);
                self.nominate(&pod, preemption.node);
                self.queue.update(&pod.uid, |known| {
                    known.told = refusal.told.as_str().into();
                    known.nominated = preemption.name.clone();
                });
                self.queue.sleep(&pod.uid, refusal.calls, now);
                Next::Preempt(pod, refusal.told, preemption, outdone)
            }
            Err(told) => {
                if !keeps && self.nominations.remove(&pod.uid) {
                    self.queue.call(&Call::Nomination, now);
                }
                let is_outdone = !keeps && !pod.nominated.is_empty();
                self.queue.update(&pod.uid, |known| {
                    known.told = told.as_str().into();
                    if is_outdone {
                        known.nominated = "".into();
                    }
                });
                self.queue.sleep(&pod.uid, refusal.calls, now);
                Next::Tell(pod, told, is_outdone)
            }
        }
    }

    /// Less important pods that a node was held for look for another.
    fn outdo(&mut self, pod: &Waiting, node: NodeNumber) -> Vec<Key> {
        let lesser = self.nominations.on(node).iter().filter(|nominee| nominee.priority < pod.priority);
        let lesser: Vec<Arc<str>> = lesser.map(|nominee| nominee.uid.clone()).collect();
        let mut keys = Vec::new();
        for uid in lesser {
            self.nominations.remove(&uid);
            self.queue.update(&uid, |known| known.nominated = "".into());
            keys.extend(self.queue.get(&uid).map(|known| known.key.clone()));
            self.queue.hurry(&uid);
        }
        keys
    }

    /// If a class fits somewhere, the next of those who sleep for it is tried: each that found a place makes way for another.
    fn invite(&mut self, class: u64) {
        if self.queue.awaits(class) && self.classes.is_open(class) {
            self.queue.call_one(&Call::Opened(class), Instant::now());
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

    /// Volumes could not be got ready, or pods could not be sent away.
    pub fn not_prepared(&mut self, uid: &str, steps: &[Step], now: Instant) {
        self.storage.take_back(steps);
        self.nominations.remove(uid);
        self.queue.pause(uid, now);
        self.queue.call(&Call::Nomination, now);
    }

    pub fn see_node(&mut self, node: Node) {
        let offer = Offer::of(node);
        let number = self.number_of(&offer.name);
        let shelf = self.shelf(offer.labels.get(ZONE).unwrap_or_default());
        let state = &mut self.nodes[number as usize];
        if state.offer.as_ref() == Some(&offer) {
            return;
        }
        state.shelf = shelf;
        match &state.offer {
            Some(before) => self.images.count(before, false),
            None => self.offering += 1,
        }
        self.images.count(&offer, true);
        self.relations.see_node(number, Some(&offer));
        state.offer = Some(offer);
        self.changed(number);
    }

    pub fn lose_node(&mut self, name: &str) {
        let Some(&number) = self.numbers.get(name) else { return };
        if let Some(offer) = self.nodes[number as usize].offer.take() {
            self.offering -= 1;
            self.images.count(&offer, false);
        }
        self.relations.see_node(number, None);
        self.changed(number);
        let nominees: Vec<Arc<str>> = self.nominations.on(number).iter().map(|nominee| nominee.uid.clone()).collect();
        for uid in nominees {
            self.nominations.remove(&uid);
            self.queue.hurry(&uid);
        }
        self.forget_node(name, number);
    }

    pub fn see_pod(&mut self, pod: &Pod) {
        let uid = &*pod.metadata.uid;
        if let Some(listing) = &mut self.listing {
            listing.insert(uid.into());
        }
        if pod.has_ended() {
            return self.lose_pod(uid);
        }
        if !pod.spec.node_name.is_empty() {
            self.forget_waiting(uid);
            return self.see_placed(pod);
        }
        let profile = self.profile_of(&pod.spec.scheduler_name);
        let Some(profile) = profile.filter(|_| pod.spec.scheduling_gates.is_empty() && !pod.is_leaving()) else {
            return self.forget_waiting(uid);
        };
        // Assumed on a node: the API server will show it there soon, or the binding will fail.
        if self.placed.contains_key(uid) {
            return;
        }
        if self.queue.get(uid).is_some() {
            return self.see_waiting(pod, &profile);
        }
        self.add_waiting(pod, &profile);
    }

    pub fn lose_pod(&mut self, uid: &str) {
        self.forget_waiting(uid);
        self.lift(uid);
    }

    /// A list of all pods begins.
    pub fn list_pods(&mut self) {
        self.listing = Some(HashSet::new());
    }

    /// The list of all pods is complete.
    pub fn pods_listed(&mut self) {
        let Some(listing) = self.listing.take() else { return };
        let known = self.placed.keys().cloned().chain(self.queue.uids());
        let gone: Vec<Arc<str>> = known.filter(|uid| !listing.contains(uid)).collect();
        for uid in gone {
            // A pod that was bound after the list was made is in none of its pages only if it is gone.
            self.lose_pod(&uid);
        }
    }

    /// Wakes those who sleep for something that has happened.
    pub fn call(&mut self, call: &Call) {
        self.queue.call(call, Instant::now());
    }

    /// Wakes those who sleep for what has happened between pods.
    pub fn pass_on_calls(&mut self) {
        for call in self.relations.take_calls() {
            self.call(&call);
        }
    }

    fn add_waiting(&mut self, pod: &Pod, profile: &Arc<Profile>) {
        let demand = self.demand(&pod.spec.wishes, profile);
        let relation = self.relation(pod, &demand);
        let wishes = &pod.spec.wishes;
        let images =
            wishes.containers.iter().chain(&wishes.init_containers).map(|container| whole_name(&container.image));
        let arrival = Arrival {
            key: pod.key(),
            uid: (&*pod.metadata.uid).into(),
            generation: pod.metadata.generation,
            priority: pod.spec.priority,
            preempts: &*pod.spec.preemption_policy != "Never",
            demand,
            relation,
            claims: pod.claims(),
            devices: wanted(pod),
            images: images.collect(),
            told: pod.told().into(),
            nominated: pod.status.nominated_node_name.clone(),
        };
        self.queue.add(arrival);
        let number = self.numbers.get(&pod.status.nominated_node_name).copied();
        let known = self.queue.get(&pod.metadata.uid).cloned();
        if let Some((number, known)) = number.zip(known) {
            self.nominate(&known, number);
        }
    }

    /// A pod that waits may ask for something else than before.
    fn see_waiting(&mut self, pod: &Pod, profile: &Arc<Profile>) {
        let demand = self.demand(&pod.spec.wishes, profile);
        let relation = self.relation(pod, &demand);
        let uid = &*pod.metadata.uid;
        let Some(known) = self.queue.get(uid) else { return };
        let devices = wanted(pod);
        let is_same =
            known.demand.class == demand.class && Arc::ptr_eq(&known.relation, &relation) && known.devices == devices;
        self.queue.update(uid, |known| {
            known.generation = pod.metadata.generation;
            known.demand = demand;
            known.relation = relation;
            known.devices = devices;
        });
        if !is_same {
            self.queue.hurry(uid);
        }
    }

    fn see_placed(&mut self, pod: &Pod) {
        let uid = &*pod.metadata.uid;
        let number = self.number_of(&pod.spec.node_name);
        if self.placed.get(uid).is_some_and(|placed| placed.node == number) {
            self.see_again(pod, number);
        } else {
            self.lift(uid);
            let profile = self.profile_of(&pod.spec.scheduler_name).unwrap_or_else(|| self.profiles[0].clone());
            let demand = self.demand(&taken(pod), &profile);
            let placed = Placed {
                key: pod.key(),
                node: number,
                relation: self.relation(pod, &demand),
                demand,
                priority: pod.spec.priority,
                started: None,
                claims: pod.claims(),
                is_assumed: false,
                is_leaving: pod.is_leaving(),
                is_preempted: false,
            };
            self.place(uid.into(), placed);
        }
        if let Some(placed) = self.placed.get_mut(uid) {
            placed.started = pod.status.start_time.as_ref().map(|time| time.0);
            placed.is_preempted = pod.is_preempted();
        }
    }

    /// A pod on a node is as told now.
    fn see_again(&mut self, pod: &Pod, number: NodeNumber) {
        let uid = &*pod.metadata.uid;
        let Some(placed) = self.placed.get(uid) else { return };
        let has_labels = self.relations.group(&placed.relation).labels == pod.metadata.labels;
        let demand = self.placed_demand(pod);
        let Some(placed) = self.placed.get_mut(uid) else { return };
        placed.is_assumed = false;
        if !placed.is_leaving && pod.is_leaving() {
            placed.is_leaving = true;
            self.relations.leave(&placed.relation.clone(), number);
        }
        if demand.requests != placed.demand.requests {
            // Resized in place.
            self.nodes[number as usize].load.take(&placed.demand);
            self.nodes[number as usize].load.put(&demand);
            placed.demand = demand.clone();
            self.changed(number);
        }
        if !has_labels {
            let relation = self.relation(pod, &demand);
            let Some(placed) = self.placed.get_mut(uid) else { return };
            let before = std::mem::replace(&mut placed.relation, relation.clone());
            let is_leaving = placed.is_leaving;
            self.relations.place(&before, number, is_leaving, -1);
            self.relations.place(&relation, number, is_leaving, 1);
        }
        self.pass_on_calls();
    }

    fn placed_demand(&mut self, pod: &Pod) -> Arc<Demand> {
        let profile = self.profile_of(&pod.spec.scheduler_name).unwrap_or_else(|| self.profiles[0].clone());
        self.demand(&taken(pod), &profile)
    }

    fn nominate(&mut self, pod: &Waiting, node: NodeNumber) {
        let (uid, demand, relation) = (pod.uid.clone(), pod.demand.clone(), pod.relation.clone());
        self.nominations.add(node, Nominee { uid, priority: pod.priority, demand, relation });
    }

    fn place(&mut self, uid: Arc<str>, placed: Placed) {
        let number = placed.node;
        let state = &mut self.nodes[number as usize];
        state.load.put(&placed.demand);
        state.residents.insert((placed.priority, uid.clone()));
        *self.priorities.entry(placed.priority).or_default() += 1;
        self.relations.place(&placed.relation, number, placed.is_leaving, 1);
        for (name, _) in &placed.claims {
            self.storage.use_claim(Key::namespaced(placed.key.namespace().unwrap_or_default(), name), true);
        }
        self.placed.insert(uid, placed);
        self.changed(number);
    }

    fn lift(&mut self, uid: &str) {
        let Some((uid, placed)) = self.placed.remove_entry(uid) else { return };
        let state = &mut self.nodes[placed.node as usize];
        state.load.take(&placed.demand);
        state.residents.remove(&(placed.priority, uid));
        if let Some(count) = self.priorities.get_mut(&placed.priority) {
            *count -= 1;
            if *count == 0 {
                self.priorities.remove(&placed.priority);
            }
        }
        self.relations.place(&placed.relation, placed.node, placed.is_leaving, -1);
        for (name, _) in &placed.claims {
            let key = Key::namespaced(placed.key.namespace().unwrap_or_default(), name);
            self.storage.use_claim(key.clone(), false);
            self.call(&Call::Claim(key));
        }
        self.changed(placed.node);
    }

    fn forget_waiting(&mut self, uid: &str) {
        let was_active = self.queue.is_active(uid);
        let Some(pod) = self.queue.remove(uid) else { return };
        if self.nominations.remove(uid) {
            self.call(&Call::Nomination);
        }
        if was_active {
            // It may have been woken in place of another.
            self.invite(pod.demand.class);
        }
    }

    fn changed(&mut self, number: NodeNumber) {
        let gains = self.classes.changed(number, &self.nodes, |class| self.queue.awaits(class));
        let now = Instant::now();
        for gain in gains {
            if gain.has_opened {
                self.queue.call_one(&Call::Opened(gain.class), now);
            }
            self.queue.call(&Call::Gained(gain.class), now);
        }
        let named = self.nodes[number as usize].offer.as_ref().map(|offer| Call::Node(offer.name.clone()));
        if let Some(named) = named {
            self.call_named(&named, number, now);
        }
        self.pass_on_calls();
    }

    /// Wakes those who name a node if it fits them.
    fn call_named(&mut self, call: &Call, number: NodeNumber, now: Instant) {
        let Some(state) = self.nodes.get(number as usize) else { return };
        let Some(offer) = &state.offer else { return };
        let fits = |pod: &Waiting| crate::fit::obstacles(&pod.demand, offer, &state.load).is_empty();
        if self.queue.sleepers(call).any(fits) {
            self.queue.call(call, now);
        }
    }

    fn name_of(&self, number: NodeNumber) -> Box<str> {
        let offer = self.nodes.get(number as usize).and_then(|state| state.offer.as_ref());
        offer.map(|offer| offer.name.clone()).unwrap_or_default()
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

    /// The shelf of a zone; beyond a bound several zones share one.
    fn shelf(&mut self, zone: &str) -> u8 {
        if let Some(known) = self.zones.get(zone) {
            return *known;
        }
        let shelf = (self.zones.len() % SHELVES) as u8;
        if self.zones.len() < SHELVES {
            self.zones.insert(zone.into(), shelf);
        }
        shelf
    }

    fn profile_of(&self, name: &str) -> Option<Arc<Profile>> {
        let name = if name.is_empty() { crate::DEFAULT } else { name };
        self.profiles.iter().find(|profile| profile.name == name).cloned()
    }

    fn relation(&mut self, pod: &Pod, demand: &Arc<Demand>) -> Arc<Relation> {
        let alike = self.owners.alike(pod);
        wants::relation(&mut self.relations, pod, demand, alike.as_ref(), &self.nodes)
    }

    /// The demand of wishes; one for all pods of a class.
    fn demand(&mut self, wishes: &Wishes, profile: &Arc<Profile>) -> Arc<Demand> {
        let text = class(wishes, profile);
        if let Some(known) = self.demands.get(&text).and_then(Weak::upgrade) {
            return known;
        }
        if self.demands.len() >= self.sweep_at {
            self.demands.retain(|_, demand| demand.strong_count() > 0);
            self.sweep_at = SWEEP_MIN.max(2 * self.demands.len());
        }
        let demand = Arc::new(Demand::of(wishes, profile, self.next_class));
        self.next_class += 1;
        self.demands.insert(text, Arc::downgrade(&demand));
        demand
    }
}
