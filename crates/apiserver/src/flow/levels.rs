//! Priority levels: how many seats each has, whom it lends them to, and in which order those who wait get one.
//!
//! A level that needs more than its own takes what others lend and don't use; who lent gets it back as soon as requests end.
//! Within a level, flows take turns: a flow is dealt a few of the level's queues, waits in the shortest of them, and the queue
//! that was served least goes next. So a flow with many requests fills its own queues and leaves the others alone.

use std::collections::{BTreeMap, VecDeque};

use serde_json::Value;
use setpoint_schema::Edit;

/// What a level is, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) uid: String,
    /// `None` for a level whose requests always pass.
    pub(super) limited: Option<Limited>,
}

/// The limits of a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limited {
    shares: u64,
    lendable_percent: u64,
    borrowing_percent: Option<u64>,
    /// How requests wait; without it they are told to come back.
    queuing: Option<Queuing>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Queuing {
    queues: usize,
    hand: usize,
    length: usize,
}

/// Most queues of a level, whatever it asks for.
const QUEUES_MAX: i64 = 10_000;

/// Requests of a level that may wait for the disk or for a webhook at once, for each of its seats: enough for the log to write many at once.
const ASIDE_PER_SEAT: u64 = 25;

impl Settings {
    pub(super) fn read(object: &Value) -> Settings {
        let spec = &object["spec"];
        let uid = object["metadata"].text("uid").to_owned();
        if spec.text("type") == "Exempt" {
            return Settings { uid, limited: None };
        }
        let limited = &spec["limited"];
        let queuing = &limited["limitResponse"]["queuing"];
        let count = |field: &str, otherwise: i64| {
            let number = queuing.number(field).unwrap_or(otherwise).clamp(1, QUEUES_MAX);
            usize::try_from(number).unwrap_or(1)
        };
        let percent = |field: &str| limited.number(field).and_then(|number| u64::try_from(number).ok());
        let queuing = (limited["limitResponse"].text("type") == "Queue").then(|| Queuing {
            queues: count("queues", 64),
            hand: count("handSize", 8),
            length: count("queueLengthLimit", 50),
        });
        let limited = Limited {
            shares: percent("nominalConcurrencyShares").unwrap_or(30),
            lendable_percent: percent("lendablePercent").unwrap_or(0).min(100),
            borrowing_percent: percent("borrowingLimitPercent"),
            queuing,
        };
        Settings { uid, limited: Some(limited) }
    }
}

/// All levels, and who has or waits for a seat. `W` is how one who waits is told.
pub(super) struct Levels<W> {
    seats: u64,
    levels: BTreeMap<String, Level<W>>,
}

struct Level<W> {
    limited: Limited,
    /// Whether it is still stored; one that isn't lets those who are in it finish.
    is_kept: bool,
    nominal: u64,
    lendable: u64,
    borrowing_max: u64,
    used: u64,
    /// Requests that had a seat and wait for something else.
    aside: u64,
    waiting: usize,
    queues: Vec<Queue<W>>,
    /// How far the level has served its queues.
    served: u64,
    pub(super) figures: Figures,
}

struct Queue<W> {
    waiting: VecDeque<Waiter<W>>,
    /// How much this queue was served, as if it had always been busy.
    served: u64,
}

struct Waiter<W> {
    seats: u64,
    tell: W,
}

/// What happened in a level since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Figures {
    pub(super) dispatched: u64,
    pub(super) rejected: u64,
}

/// What a level is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) nominal: u64,
    pub(super) used: u64,
    pub(super) aside: u64,
    pub(super) waiting: usize,
    pub(super) figures: Figures,
}

/// What becomes of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// It has its seats.
    Seated,
    /// It waits.
    Waits,
    /// There is no room to wait either.
    Refused,
}

impl<W> Levels<W> {
    /// Levels that share so many seats.
    pub(super) fn new(seats: u64) -> Levels<W> {
        Levels { seats, levels: BTreeMap::new() }
    }

    /// Takes over what is stored now.
    pub(super) fn set(&mut self, stored: &BTreeMap<String, Settings>) {
        for level in self.levels.values_mut() {
            level.is_kept = false;
        }
        for (name, settings) in stored {
            let Some(limited) = settings.limited else { continue };
            let level = self.levels.entry(name.clone()).or_insert_with(|| Level::new(limited));
            level.is_kept = true;
            level.take_over(limited);
        }
        self.levels.retain(|_, level| level.is_kept || level.used + level.aside > 0 || level.waiting > 0);
        let all: u64 = self.levels.values().filter(|level| level.is_kept).map(|level| level.limited.shares).sum();
        for level in self.levels.values_mut() {
            let shares = if level.is_kept { level.limited.shares } else { 0 };
            level.nominal = (self.seats * shares).div_ceil(all.max(1)).max(1);
            level.lendable = level.nominal * level.limited.lendable_percent / 100;
            let percent = level.limited.borrowing_percent;
            level.borrowing_max = percent.map_or(self.seats, |percent| level.nominal * percent / 100);
        }
    }

    /// A request comes. `tell` is kept if it has to wait. What is wider than its level is as wide as the level.
    pub(super) fn enter(&mut self, level: &str, flow: u64, seats: u64, tell: impl FnOnce() -> W) -> Entry {
        let spare = self.spare();
        let Some(level) = self.levels.get_mut(level) else { return Entry::Seated };
        let seats = seats.clamp(1, level.nominal);
        if level.waiting == 0 && level.has_room(seats, spare) {
            level.used += seats;
            level.figures.dispatched += 1;
            return Entry::Seated;
        }
        match level.shortest(flow) {
            Some(queue) => {
                level.queue(queue, Waiter { seats, tell: tell() });
                Entry::Waits
            }
            None => {
                level.figures.rejected += 1;
                Entry::Refused
            }
        }
    }

    /// A request has ended: its seats are free, or its place aside if it has none. Returns who gets a seat now, with the number of them and
    /// the level of each.
    pub(super) fn leave(&mut self, level: &str, seats: u64) -> Vec<(W, String, u64)> {
        match self.levels.get_mut(level) {
            Some(level) if seats == 0 => level.aside = level.aside.saturating_sub(1),
            Some(level) => level.used = level.used.saturating_sub(seats.clamp(1, level.nominal)),
            None => {}
        }
        self.seat_next()
    }

    /// A request has to wait for something else than a seat: others may have its seats until it ends. Returns who, as above.
    pub(super) fn step_aside(&mut self, level: &str, seats: u64) -> Vec<(W, String, u64)> {
        if let Some(level) = self.levels.get_mut(level) {
            level.aside += 1;
        }
        self.leave(level, seats)
    }

    /// One who waited has gone away.
    pub(super) fn give_up(&mut self, level: &str) {
        if let Some(level) = self.levels.get_mut(level) {
            level.figures.rejected += 1;
        }
    }

    /// Seats those who wait as far as there is room, the level that has least of its own first.
    fn seat_next(&mut self) -> Vec<(W, String, u64)> {
        let mut seated = Vec::new();
        loop {
            let spare = self.spare();
            let waiting = self.levels.iter_mut().filter(|(_, level)| level.waiting > 0);
            let ready =
                waiting.filter(|(_, level)| level.next_seats().is_some_and(|seats| level.has_room(seats, spare)));
            let Some((name, level)) = ready.min_by_key(|(_, level)| level.used * self.seats / level.nominal) else {
                return seated;
            };
            let Some(waiter) = level.take_next() else { return seated };
            level.used += waiter.seats;
            level.figures.dispatched += 1;
            seated.push((waiter.tell, name.clone(), waiter.seats));
        }
    }

    /// Seats that others lend and nobody has.
    fn spare(&self) -> u64 {
        let lent: u64 =
            self.levels.values().map(|level| level.lendable.min(level.nominal.saturating_sub(level.used))).sum();
        let borrowed: u64 = self.levels.values().map(|level| level.used.saturating_sub(level.nominal)).sum();
        lent.saturating_sub(borrowed)
    }

    /// What each level is doing.
    pub(super) fn states(&self) -> impl Iterator<Item = (&str, State)> {
        self.levels.iter().map(|(name, level)| {
            let Level { nominal, used, aside, waiting, figures, .. } = *level;
            (name.as_str(), State { nominal, used, aside, waiting, figures })
        })
    }
}

impl<W> Level<W> {
    fn new(limited: Limited) -> Level<W> {
        Level {
            limited,
            is_kept: true,
            nominal: 1,
            lendable: 0,
            borrowing_max: 0,
            used: 0,
            aside: 0,
            waiting: 0,
            queues: Vec::new(),
            served: 0,
            figures: Figures::default(),
        }
    }

    /// Takes over new limits. Who waits in a queue that is gone waits in another.
    fn take_over(&mut self, limited: Limited) {
        self.limited = limited;
        let wanted = limited.queuing.map_or(0, |queuing| queuing.queues).max(usize::from(self.waiting > 0));
        let left = self.queues.split_off(wanted.min(self.queues.len()));
        self.queues.resize_with(wanted, || Queue { waiting: VecDeque::new(), served: self.served });
        for (index, queue) in left.into_iter().enumerate() {
            self.queues[index % wanted.max(1)].waiting.extend(queue.waiting);
        }
    }

    fn has_room(&self, seats: u64, spare: u64) -> bool {
        if self.aside >= self.nominal * ASIDE_PER_SEAT {
            return false;
        }
        let borrows = (self.used + seats).saturating_sub(self.nominal);
        let borrows_already = self.used.saturating_sub(self.nominal);
        borrows == 0 || borrows <= self.borrowing_max && borrows - borrows_already <= spare
    }

    /// The shortest of the queues that a flow is dealt, unless it is full.
    fn shortest(&self, flow: u64) -> Option<usize> {
        let queuing = self.limited.queuing?;
        let dealt = deal(flow, self.queues.len(), queuing.hand);
        let queue = dealt.into_iter().min_by_key(|&queue| self.queues[queue].waiting.len())?;
        (self.queues[queue].waiting.len() < queuing.length).then_some(queue)
    }

    fn queue(&mut self, queue: usize, waiter: Waiter<W>) {
        let queue = &mut self.queues[queue];
        if queue.waiting.is_empty() {
            // What a queue didn't use while nobody waited in it is gone.
            queue.served = queue.served.max(self.served);
        }
        queue.waiting.push_back(waiter);
        self.waiting += 1;
    }

    fn next_queue(&self) -> Option<usize> {
        let busy = self.queues.iter().enumerate().filter(|(_, queue)| !queue.waiting.is_empty());
        busy.min_by_key(|(_, queue)| queue.served).map(|(index, _)| index)
    }

    fn next_seats(&self) -> Option<u64> {
        self.queues[self.next_queue()?].waiting.front().map(|waiter| waiter.seats)
    }

    fn take_next(&mut self) -> Option<Waiter<W>> {
        let index = self.next_queue()?;
        let queue = &mut self.queues[index];
        let waiter = queue.waiting.pop_front()?;
        self.served = queue.served;
        queue.served += waiter.seats;
        self.waiting -= 1;
        Some(waiter)
    }
}

/// Deals a hand of different queues to a flow, always the same ones to the same flow.
fn deal(flow: u64, queues: usize, hand: usize) -> Vec<usize> {
    let mut dealt: Vec<usize> = Vec::with_capacity(hand.min(queues));
    let mut rest = flow;
    for left in (1..=queues).rev().take(hand) {
        let mut card = usize::try_from(rest % left as u64).unwrap_or(0);
        rest /= left as u64;
        // The card's place among those that weren't dealt yet.
        let mut taken = dealt.clone();
        taken.sort_unstable();
        for one in taken {
            card += usize::from(one <= card);
        }
        dealt.push(card);
    }
    dealt
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn stored(levels: &[(&str, Value)]) -> BTreeMap<String, Settings> {
        levels.iter().map(|(name, spec)| ((*name).to_owned(), Settings::read(&json!({"spec": spec})))).collect()
    }

    fn queued(shares: u64, lendable: u64, queues: u64, length: u64) -> Value {
        json!({"type": "Limited", "limited": {"nominalConcurrencyShares": shares, "lendablePercent": lendable,
            "limitResponse": {"type": "Queue", "queuing": {"queues": queues, "handSize": 1, "queueLengthLimit": length}}}})
    }

    fn levels(seats: u64, of: &[(&str, Value)]) -> Levels<u32> {
        let mut levels = Levels::new(seats);
        levels.set(&stored(of));
        levels
    }

    fn enter(levels: &mut Levels<u32>, level: &str, flow: u64, who: u32) -> Entry {
        levels.enter(level, flow, 1, || who)
    }

    #[test]
    fn a_level_has_its_share_then_requests_wait_then_they_are_refused() {
        let mut levels = levels(4, &[("a", queued(1, 0, 1, 2)), ("b", queued(1, 0, 1, 2))]);
        let entries: Vec<Entry> = (0..5).map(|who| enter(&mut levels, "a", 0, who)).collect();
        use Entry::{Refused, Seated, Waits};
        assert_eq!(entries, [Seated, Seated, Waits, Waits, Refused]);
        assert_eq!(enter(&mut levels, "b", 0, 9), Seated, "others have theirs");
        let told: Vec<u32> = levels.leave("a", 1).into_iter().map(|(who, ..)| who).collect();
        assert_eq!(told, [2], "in the order of coming");
    }

    #[test]
    fn those_who_stepped_aside_have_bounds_too() {
        let mut levels = levels(1, &[("a", queued(1, 0, 1, 9))]);
        for who in 0..25 {
            assert_eq!(enter(&mut levels, "a", 0, who), Entry::Seated);
            assert!(levels.step_aside("a", 1).is_empty());
        }
        assert_eq!(enter(&mut levels, "a", 0, 25), Entry::Waits);
        assert_eq!(levels.leave("a", 0), [(25, "a".to_owned(), 1)]);
    }

    #[test]
    fn what_others_lend_is_used_and_given_back() {
        let mut levels = levels(4, &[("a", queued(1, 0, 1, 9)), ("b", queued(1, 50, 1, 9))]);
        for who in 0..3 {
            assert_eq!(enter(&mut levels, "a", 0, who), Entry::Seated);
        }
        assert_eq!(enter(&mut levels, "a", 0, 3), Entry::Waits, "one of b's two is lent, not the other");
        assert_eq!(enter(&mut levels, "b", 0, 4), Entry::Seated);
        assert_eq!(enter(&mut levels, "b", 0, 5), Entry::Seated, "the owner doesn't wait for what it lent");
        assert!(levels.leave("a", 1).is_empty(), "a has two of its own and nothing is to be lent");
        let told: Vec<u32> = levels.leave("a", 1).into_iter().map(|(who, ..)| who).collect();
        assert_eq!(told, [3]);
    }

    #[test]
    fn flows_take_turns() {
        let mut levels = levels(1, &[("a", queued(1, 0, 2, 50))]);
        assert_eq!(enter(&mut levels, "a", 0, 0), Entry::Seated);
        for who in 1..=10 {
            assert_eq!(enter(&mut levels, "a", 0, who), Entry::Waits);
        }
        assert_eq!(enter(&mut levels, "a", 1, 100), Entry::Waits);
        let order: Vec<u32> = (0..4).flat_map(|_| levels.leave("a", 1)).map(|(who, ..)| who).collect();
        assert!(
            order[..2].contains(&100),
            "who came last with one request is served before the tenth of another: {order:?}"
        );
    }

    #[test]
    fn a_level_that_is_gone_lets_its_requests_finish() {
        let mut levels = levels(2, &[("a", queued(1, 0, 4, 9)), ("b", queued(1, 0, 1, 9))]);
        assert_eq!(enter(&mut levels, "a", 0, 0), Entry::Seated);
        assert_eq!(enter(&mut levels, "a", 3, 1), Entry::Waits);
        levels.set(&stored(&[("b", queued(1, 0, 1, 9))]));
        assert_eq!(levels.leave("a", 1), [(1, "a".to_owned(), 1)]);
        levels.leave("a", 1);
        levels.set(&stored(&[("b", queued(1, 0, 1, 9))]));
        assert_eq!(levels.states().map(|(name, _)| name.to_owned()).collect::<Vec<_>>(), ["b"]);
        assert_eq!(enter(&mut levels, "a", 0, 2), Entry::Seated, "what no level limits passes");
    }

    #[test]
    fn fewer_queues_lose_nobody() {
        let mut levels = levels(1, &[("a", queued(1, 0, 8, 9))]);
        enter(&mut levels, "a", 0, 0);
        for who in 1..=8 {
            assert_eq!(enter(&mut levels, "a", u64::from(who), who), Entry::Waits);
        }
        levels.set(&stored(&[("a", queued(1, 0, 3, 9))]));
        let mut told: Vec<u32> = (0..9).flat_map(|_| levels.leave("a", 1)).map(|(who, ..)| who).collect();
        told.sort_unstable();
        assert_eq!(told, (1..=8).collect::<Vec<_>>());
    }

    #[test]
    fn a_hand_has_different_queues_and_spreads() {
        let mut seen = vec![0; 16];
        for flow in 0..1_000_u64 {
            let hand = deal(flow.wrapping_mul(0x9e37_79b9_7f4a_7c15), 16, 4);
            let mut sorted = hand.clone();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(sorted.len(), 4, "{hand:?}");
            hand.into_iter().for_each(|queue| seen[queue] += 1);
        }
        assert!(seen.iter().all(|count| (150..350).contains(count)), "{seen:?}");
        assert_eq!(deal(7, 2, 8).len(), 2);
        assert!(deal(7, 0, 8).is_empty());
    }
}
