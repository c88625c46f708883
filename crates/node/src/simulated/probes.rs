//! What probes find, as a pure function of what their container does: when it counts as started, when it is ready, and when it is killed.
//!
//! A command of a probe is gone through like that of a container, and sees the files that the container's script has by then. What would be
//! asked over the network is taken to answer well: nothing listens here.

use std::time::Duration;

use super::command;
use super::pod::{Exec, Probe};
use super::shell::{Environment, Files};

/// Which of the probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Startup,
    Liveness,
    Readiness,
}

/// What a container's probes make of one run of it, in times after its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// When it has started; never without.
    pub started: Option<Duration>,
    /// When it is ready for the first time; never without.
    pub ready: Option<Duration>,
    /// When it stops to be ready after that, is ready again, and so on.
    pub turns: Vec<Duration>,
    /// When a probe gives it up, and which.
    pub killed: Option<(Duration, Kind)>,
}

impl Health {
    /// How a container is that nobody asks.
    pub fn unasked() -> Health {
        Health { started: Some(Duration::ZERO), ready: Some(Duration::ZERO), ..Health::default() }
    }

    pub fn has_started(&self, age: Duration) -> bool {
        self.started.is_some_and(|at| at <= age)
    }

    pub fn is_ready(&self, age: Duration) -> bool {
        self.ready.is_some_and(|at| at <= age) && self.turns.iter().filter(|at| **at <= age).count() % 2 == 0
    }

    /// When something of it changes next.
    pub fn next(&self, age: Duration) -> Option<Duration> {
        let all = self.started.into_iter().chain(self.ready).chain(self.turns.iter().copied());
        all.chain(self.killed.map(|(at, _)| at)).filter(|at| *at > age).min()
    }

    /// Whether nothing of it ever changes once it is ready.
    pub fn is_steady(&self) -> bool {
        self.ready.is_some() && self.turns.is_empty() && self.killed.is_none()
    }
}

/// One probe of a container: when it asks, and what it hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Course {
    pub kind: Kind,
    first: Duration,
    period: Duration,
    success: u64,
    failure: u64,
    /// What it hears from when on.
    answers: Vec<Answer>,
    /// When it asks no more.
    end: Option<Duration>,
}

/// What a probe hears from a moment on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    from: Duration,
    /// What it says if it fails.
    failure: Option<String>,
}

/// Sees what is to be seen of a container at an age of it; none if that isn't known.
pub type Sight<'a> = &'a dyn Fn(Duration) -> Option<(Environment, Files)>;

/// All probes of a container for one run, and what they make of it. `pauses` are the ages at which something of it may change.
pub fn health(probes: [(Kind, Option<&Probe>); 3], pauses: &[Duration], sight: Sight<'_>) -> (Health, Vec<Course>) {
    let [startup, liveness, readiness] =
        probes.map(|(kind, probe)| probe.map(|probe| Course::of(kind, probe, pauses, sight)));
    let mut health = Health::unasked();
    let mut courses = Vec::new();
    if let Some(mut startup) = startup {
        let verdict = startup.verdicts(None).into_iter().next();
        health.started = verdict.and_then(|(at, holds)| holds.then_some(at));
        health.killed = verdict.and_then(|(at, holds)| (!holds).then_some((at, Kind::Startup)));
        startup.end = verdict.map(|(at, _)| at);
        courses.push(startup);
    }
    health.ready = health.started;
    let Some(started) = health.started else { return (health, courses) };
    if let Some(mut liveness) = liveness {
        // Never at the start itself: what happens in the second of a start could not be told from what came before it.
        liveness.first = liveness.first.max(started).max(Duration::from_secs(1));
        let killed = liveness.verdicts(Some(true)).into_iter().find(|(_, holds)| !holds);
        health.killed = killed.map(|(at, _)| (at, Kind::Liveness));
        liveness.end = health.killed.map(|(at, _)| at);
        courses.push(liveness);
    }
    if let Some(mut readiness) = readiness {
        readiness.first = readiness.first.max(started);
        let mut turns = readiness.verdicts(Some(false)).into_iter().map(|(at, _)| at);
        (health.ready, health.turns) = (turns.next(), turns.collect());
        courses.push(readiness);
    }
    (health, courses)
}

impl Course {
    fn of(kind: Kind, probe: &Probe, pauses: &[Duration], sight: Sight<'_>) -> Course {
        let count = |number: i64, otherwise: u64| u64::try_from(number).ok().filter(|it| *it > 0).unwrap_or(otherwise);
        let timeout = Duration::from_secs(count(probe.timeout_seconds, 1));
        Course {
            kind,
            first: Duration::from_secs(u64::try_from(probe.initial_delay_seconds).unwrap_or_default()),
            period: Duration::from_secs(count(probe.period_seconds, 10)),
            success: count(probe.success_threshold, 1),
            failure: count(probe.failure_threshold, 3),
            answers: answers(probe.exec.as_ref(), timeout, pauses, sight),
            end: None,
        }
    }

    /// When it comes to another verdict than it had.
    fn verdicts(&self, initial: Option<bool>) -> Vec<(Duration, bool)> {
        let (mut verdict, mut in_a_row, mut last) = (initial, 0_u64, None);
        let mut found = Vec::new();
        for (index, answer) in self.answers.iter().enumerate() {
            let (holds, from) = (answer.failure.is_none(), self.asked_after(answer.from));
            let asked = match self.answers.get(index + 1) {
                Some(next) => self.index(self.asked_after(next.from)) - self.index(from),
                None => u64::MAX,
            };
            if asked == 0 {
                continue;
            }
            in_a_row = if last == Some(holds) { in_a_row } else { 0 };
            let missing = if holds { self.success } else { self.failure }.saturating_sub(in_a_row).max(1);
            if verdict != Some(holds) && missing <= asked {
                verdict = Some(holds);
                found.push((from.saturating_add(self.times(missing - 1)), holds));
            }
            (in_a_row, last) = (in_a_row.saturating_add(asked), Some(holds));
        }
        found
    }

    /// The first time from this one on at which it asks.
    fn asked_after(&self, from: Duration) -> Duration {
        let periods = from.saturating_sub(self.first).as_millis().div_ceil(self.period.as_millis().max(1));
        self.first.saturating_add(self.times(u64::try_from(periods).unwrap_or(u64::MAX)))
    }

    fn index(&self, asked: Duration) -> u64 {
        asked.saturating_sub(self.first).as_secs() / self.period.as_secs().max(1)
    }

    fn times(&self, count: u64) -> Duration {
        Duration::from_secs(self.period.as_secs().saturating_mul(count))
    }

    /// When it fails next from this time on, and what it hears then.
    pub fn fails_after(&self, from: Duration) -> Option<(Duration, &str)> {
        let mut ends = self.answers.iter().skip(1).map(|next| Some(next.from)).chain([None]);
        let failing = self.answers.iter().filter_map(|answer| {
            let end = ends.next().flatten();
            let text = answer.failure.as_deref()?;
            let at = self.asked_after(answer.from.max(from));
            end.is_none_or(|end| at < end).then_some((at, text))
        });
        failing.min_by_key(|(at, _)| *at).filter(|(at, _)| self.end.is_none_or(|end| *at <= end))
    }
}

/// What a probe hears in the course of time.
fn answers(exec: Option<&Exec>, timeout: Duration, pauses: &[Duration], sight: Sight<'_>) -> Vec<Answer> {
    let from = |from: Duration, failure: Option<String>| Answer { from, failure };
    let Some(exec) = exec else { return vec![from(Duration::ZERO, None)] };
    if let Some(answer) = ask(exec, timeout, &Environment::default(), &mut Files::new()) {
        return vec![from(Duration::ZERO, answer)];
    }
    let mut found: Vec<Answer> = Vec::new();
    for age in std::iter::once(Duration::ZERO).chain(pauses.iter().copied()) {
        let seen = sight(age);
        let answer = seen.as_ref().and_then(|(around, files)| ask(exec, timeout, around, &mut files.clone())).flatten();
        if found.last().is_none_or(|last| last.failure != answer) {
            found.push(from(age, answer));
        }
        if seen.is_none() {
            break;
        }
    }
    found
}

/// What a command says if it fails; none if it isn't known what it does.
fn ask(exec: &Exec, timeout: Duration, around: &Environment, files: &mut Files) -> Option<Option<String>> {
    let run = command::run(&exec.command, &[], around, files);
    let end = run.end?;
    if end.after > timeout {
        return Some(Some(format!(
            "command timed out: \"{}\" timed out after {}s",
            exec.command.join(" "),
            timeout.as_secs()
        )));
    }
    let said: String = run.said.into_iter().map(|(_, line)| line + "\n").collect();
    Some((end.code != 0).then(|| match &*exec.command {
        [program, path] if &**program == "cat" => format!("cat: can't open '{path}': No such file or directory\n"),
        _ => said,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn course(first: u64, period: u64, failure: u64, answers: &[(u64, bool)]) -> Course {
        let answer = |(from, holds): &(u64, bool)| Answer {
            from: Duration::from_secs(*from),
            failure: (!holds).then(String::new),
        };
        Course {
            kind: Kind::Liveness,
            first: Duration::from_secs(first),
            period: Duration::from_secs(period),
            success: 1,
            failure,
            answers: answers.iter().map(answer).collect(),
            end: None,
        }
    }

    #[test]
    fn a_verdict_changes_after_so_many_answers_in_a_row() {
        let check = |course: Course, initial: Option<bool>, expected: &[(u64, bool)]| {
            let found: Vec<_> = course.verdicts(initial).into_iter().map(|(at, holds)| (at.as_secs(), holds)).collect();
            assert_eq!(found, expected, "{course:?}");
        };
        check(course(0, 1, 1, &[(0, false)]), Some(true), &[(0, false)]);
        check(course(5, 10, 3, &[(0, false)]), Some(true), &[(25, false)]);
        check(course(0, 10, 3, &[(0, true)]), Some(true), &[]);
        check(course(0, 10, 3, &[(0, true)]), Some(false), &[(0, true)]);
        check(course(15, 5, 1, &[(0, true), (10, false)]), Some(true), &[(15, false)]);
        check(course(0, 5, 2, &[(0, true), (11, false)]), Some(true), &[(20, false)]);
        check(course(0, 5, 3, &[(0, false), (12, true), (32, false)]), None, &[(10, false), (15, true), (45, false)]);
        check(course(0, 10, 3, &[(0, true), (11, false), (19, true)]), Some(true), &[]);
    }

    #[test]
    fn failures_are_told_when_they_happen() {
        let failing = course(5, 10, 3, &[(0, true), (11, false), (31, true)]);
        let at = |from: u64| failing.fails_after(Duration::from_secs(from)).map(|(at, _)| at.as_secs());
        assert_eq!((at(0), at(15), at(16), at(26)), (Some(15), Some(15), Some(25), None));
    }
}
