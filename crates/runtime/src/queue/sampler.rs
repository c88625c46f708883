//! Which runs are timed: all, unless they follow each other so quickly that telling the time would be most of their cost.
//!
//! A look at the clock takes some 25 ns, as long as all else that is done under the lock of a queue. So runs are timed one
//! by one up to a million per second, which costs them a tenth of their time at most; beyond that one in about seventeen is
//! timed and stands for those since the last one.
//!
//! What follows for figures: a span that was measured is exact to the clock's resolution, ever. The count lacks at most the
//! last [`GAP_MAX`] `- 1` runs. Sums and buckets are exact below the rate, and an even sample beyond it.

use std::time::Duration;

use tokio::time::Instant;

/// Runs that follow each other in less than this on average are sampled.
const QUICK: Duration = Duration::from_micros(1);

/// So many runs in a row must be quick before any is left out: a short burst is timed as a whole.
const ROW: u32 = 64;

/// Most runs that one timed run stands for; also how many may pass untimed after a burst has ended.
pub const GAP_MAX: u32 = 32;

pub struct Sampler {
    /// Runs until the next one to be timed.
    left: u32,
    /// How many runs that one will stand for.
    gap: u32,
    /// Where the row that is judged began, once it has.
    row: Option<(Instant, u32)>,
    draws: u32,
}

impl Default for Sampler {
    fn default() -> Self {
        Self { left: 1, gap: 1, row: None, draws: 0x9e37_79b9 }
    }
}

impl Sampler {
    /// Counts a run; whether it is to be timed. If so, [`timed`](Self::timed) must follow.
    pub fn counts(&mut self) -> bool {
        self.left -= 1;
        self.left == 0
    }

    /// Learns when the run was that is to be timed; how many runs it stands for.
    pub fn timed(&mut self, now: Instant) -> u32 {
        let stands_for = self.gap;
        let (began, runs) = self.row.map_or((now, 0), |(began, runs)| (began, runs + stands_for));
        self.row = Some((began, runs));
        if runs >= ROW || stands_for > 1 {
            let took = now.saturating_duration_since(began);
            // Time that stands still is virtual: it says nothing about cost, and simulations want every span.
            let quick = !took.is_zero() && took < QUICK * runs;
            self.gap = if quick { self.draw() } else { 1 };
            self.row = Some((now, 0));
        }
        self.left = self.gap;
        stands_for
    }

    /// A gap of seventeen on average, and never of one, which is how a row begins that is timed as a whole. It varies because keys come in rounds: with a fixed gap the same ones would be timed each
    /// time. The sequence is always the same, so that runs repeat.
    fn draw(&mut self) -> u32 {
        // Xorshift (Marsaglia 2003).
        self.draws ^= self.draws << 13;
        self.draws ^= self.draws >> 17;
        self.draws ^= self.draws << 5;
        2 + self.draws % (GAP_MAX - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs at `pace`: which of them are timed, and for how many each stands.
    fn run(sampler: &mut Sampler, now: &mut Instant, pace: Duration, runs: usize) -> Vec<u32> {
        let mut stand_for = Vec::new();
        for _ in 0..runs {
            *now += pace;
            if sampler.counts() {
                stand_for.push(sampler.timed(*now));
            }
        }
        stand_for
    }

    #[test]
    fn slow_runs_and_those_in_time_that_stands_still_are_all_timed() {
        for pace in [QUICK, Duration::from_secs(1), Duration::ZERO] {
            let stand_for = run(&mut Sampler::default(), &mut Instant::now(), pace, 1000);
            assert_eq!(stand_for, vec![1; 1000], "{pace:?}");
        }
    }

    #[test]
    fn a_short_burst_is_timed_as_a_whole_and_a_long_one_is_sampled_without_losing_count() {
        let (mut sampler, mut now) = (Sampler::default(), Instant::now());
        let pace = Duration::from_nanos(100);
        assert_eq!(run(&mut sampler, &mut now, pace, ROW as usize), vec![1; ROW as usize]);
        let stand_for = run(&mut sampler, &mut now, pace, 100_000);
        let counted: u32 = stand_for.iter().sum();
        assert!(counted <= 100_000 && counted > 100_000 - GAP_MAX, "{counted} of 100000 were counted");
        assert!((5000..8000).contains(&stand_for.len()), "{} of 100000 were timed", stand_for.len());
        assert!(stand_for.iter().all(|runs| (1..=GAP_MAX).contains(runs)), "{stand_for:?}");
    }

    #[test]
    fn after_a_burst_every_run_is_timed_again() {
        let (mut sampler, mut now) = (Sampler::default(), Instant::now());
        run(&mut sampler, &mut now, Duration::from_nanos(100), 1000);
        let slow = Duration::from_millis(1);
        let stand_for = run(&mut sampler, &mut now, slow, 2 * GAP_MAX as usize);
        assert!(stand_for.len() > GAP_MAX as usize, "at most {GAP_MAX} pass: {stand_for:?}");
        assert_eq!(run(&mut sampler, &mut now, slow, 100), vec![1; 100]);
    }
}
