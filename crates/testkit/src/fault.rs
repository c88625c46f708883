//! What can go wrong, and when.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::course::Counts;

/// One thing that goes wrong in a run. Numbers count from 1, and only what the process under test does.
///
/// ```
/// use setpoint_testkit::Fault;
///
/// // As it stands in the line that runs a failure again: SETPOINT_FAULT=fail-call:7:429
/// assert_eq!("fail-call:7:429".parse(), Ok(Fault::FailCall(7, 429)));
/// assert_eq!(Fault::CrashAfterWrite(3).to_string(), "crash-after-write:3");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The process dies once its n-th write is done, before it hears of it, and is started again.
    CrashAfterWrite(usize),
    /// The same, of the writes that runs of the controller with this name make: a process may have several.
    CrashAfterWriteOf(Arc<str>, usize),
    /// The process never sees the n-th event; a while later its watch ends as too old, so it has to list again.
    HideEvent(usize),
    /// The process is started again once all is quiet, and for a while sees the world as it was at the n-th event.
    StaleAtEvent(usize),
    /// The n-th call is answered with this code, without effect.
    FailCall(usize, u16),
    /// The n-th call has its effect, but the answer never comes.
    LoseAnswer(usize),
    /// The n-th call waits for half a minute.
    DelayCall(usize),
    /// Before the n-th write somebody else takes every lease.
    LoseLease(usize),
}

/// Codes with which calls fail.
pub(crate) const CODES: [u16; 3] = [409, 429, 500];

impl Fault {
    /// Every point of a run that had so many writes, calls and events. Where several controllers write, their writes are
    /// counted each by itself: that is how their authors think of them.
    pub(crate) fn points(counts: &Counts) -> Vec<Fault> {
        let Counts { calls, writes, ref writes_of, ref writes_of_none, events, leases } = *counts;
        let mut points = Vec::new();
        if writes_of.len() > 1 {
            let of = |(name, count): (&Arc<str>, &usize)| {
                let name = Arc::clone(name);
                (1..=*count).map(move |n| Fault::CrashAfterWriteOf(Arc::clone(&name), n))
            };
            points.extend(writes_of.iter().flat_map(of));
            points.extend(writes_of_none.iter().copied().map(Fault::CrashAfterWrite));
        } else {
            points.extend((1..=writes).map(Fault::CrashAfterWrite));
        }
        points.extend((1..=events).map(Fault::HideEvent));
        points.extend((1..=events).map(Fault::StaleAtEvent));
        for code in CODES {
            points.extend((1..=calls).map(|n| Fault::FailCall(n, code)));
        }
        points.extend((1..=calls).map(Fault::LoseAnswer));
        points.extend((1..=calls).map(Fault::DelayCall));
        if leases {
            points.extend((1..=writes).map(Fault::LoseLease));
        }
        points
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::CrashAfterWrite(n) => write!(f, "crash-after-write:{n}"),
            Fault::CrashAfterWriteOf(controller, n) => write!(f, "crash-after-write:{n}:{controller}"),
            Fault::HideEvent(n) => write!(f, "hide-event:{n}"),
            Fault::StaleAtEvent(n) => write!(f, "stale-at-event:{n}"),
            Fault::FailCall(n, code) => write!(f, "fail-call:{n}:{code}"),
            Fault::LoseAnswer(n) => write!(f, "lose-answer:{n}"),
            Fault::DelayCall(n) => write!(f, "delay-call:{n}"),
            Fault::LoseLease(n) => write!(f, "lose-lease:{n}"),
        }
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Fault, String> {
        let unknown = || format!("{text:?} is no fault; they look like crash-after-write:3 or fail-call:2:409");
        let mut parts = text.split(':');
        let kind = parts.next().ok_or_else(unknown)?;
        let n: usize = parts.next().and_then(|n| n.parse().ok()).ok_or_else(unknown)?;
        Ok(match kind {
            "crash-after-write" => match parts.next() {
                Some(controller) => Fault::CrashAfterWriteOf(controller.into(), n),
                None => Fault::CrashAfterWrite(n),
            },
            "hide-event" => Fault::HideEvent(n),
            "stale-at-event" => Fault::StaleAtEvent(n),
            "fail-call" => Fault::FailCall(n, parts.next().and_then(|code| code.parse().ok()).ok_or_else(unknown)?),
            "lose-answer" => Fault::LoseAnswer(n),
            "delay-call" => Fault::DelayCall(n),
            "lose-lease" => Fault::LoseLease(n),
            _ => return Err(unknown()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_can_be_named_and_found_again() {
        let counts = Counts { calls: 3, writes: 2, events: 1, leases: true, ..Counts::default() };
        let mut points = Fault::points(&counts);
        assert_eq!(points.len(), 2 + 1 + 1 + 9 + 3 + 3 + 2);
        let writes_of = [("a".into(), 1), ("b".into(), 2)].into();
        let several = Fault::points(&Counts { writes: 4, writes_of, writes_of_none: vec![3], ..counts });
        let crashes: Vec<String> = several.iter().take(4).map(Fault::to_string).collect();
        let wanted = ["crash-after-write:1:a", "crash-after-write:1:b", "crash-after-write:2:b", "crash-after-write:3"];
        assert_eq!(crashes, wanted);
        points.extend(several);
        for point in points {
            assert_eq!(point.to_string().parse(), Ok(point));
        }
        for bad in ["", "crash", "crash-after-write:x", "fail-call:1", "melt:1"] {
            assert!(bad.parse::<Fault>().is_err(), "{bad}");
        }
    }
}
