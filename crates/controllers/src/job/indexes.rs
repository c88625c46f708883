//! Sets of completion indexes as a Job's status writes them: `1,3-5,7`.

use std::fmt;

/// A set of indexes as ordered intervals with gaps between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Indexes(Vec<(i64, i64)>);

impl Indexes {
    /// Reads `1,3-5,7`, as far as it is below `completions`. What can't be read is passed over.
    pub fn parse(text: &str, completions: i64) -> Indexes {
        let mut intervals = Vec::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (Ok(first), Ok(last)) = (first.parse::<i64>(), last.parse::<i64>()) else { continue };
            if first >= completions {
                break;
            }
            if first >= 0 && last >= first {
                intervals.push((first, last.min(completions - 1)));
            }
        }
        Indexes::of(intervals)
    }

    /// How many there are.
    pub fn total(&self) -> i64 {
        self.0.iter().map(|(first, last)| last - first + 1).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an index is among them.
    pub fn has(&self, index: i64) -> bool {
        let at = self.0.partition_point(|(_, last)| *last < index);
        self.0.get(at).is_some_and(|(first, _)| *first <= index)
    }

    /// These and others.
    pub fn with(&self, others: impl IntoIterator<Item = i64>) -> Indexes {
        let others = others.into_iter().map(|index| (index, index));
        Indexes::of(self.0.iter().copied().chain(others).collect())
    }

    /// These and those of another set.
    pub fn union(&self, other: &Indexes) -> Indexes {
        Indexes::of(self.0.iter().chain(&other.0).copied().collect())
    }

    /// How many are in both sets.
    pub fn overlap(&self, other: &Indexes) -> i64 {
        let (mut own, mut theirs, mut count) = (self.0.as_slice(), other.0.as_slice(), 0);
        while let ([a, own_rest @ ..], [b, their_rest @ ..]) = (own, theirs) {
            count += (a.1.min(b.1) - a.0.max(b.0) + 1).max(0);
            match a.1.cmp(&b.1) {
                std::cmp::Ordering::Less => own = own_rest,
                std::cmp::Ordering::Greater => theirs = their_rest,
                std::cmp::Ordering::Equal => (own, theirs) = (own_rest, their_rest),
            }
        }
        count
    }

    /// The first so many indexes below `completions` that are not among them.
    pub fn first_missing(&self, count: usize, completions: i64) -> Vec<i64> {
        let (mut missing, mut candidate) = (Vec::new(), 0);
        for (first, last) in self.0.iter().copied().chain([(completions, completions)]) {
            let end = first.min(completions);
            missing.extend((candidate..end.max(candidate)).take(count - missing.len()));
            candidate = last + 1;
        }
        missing
    }

    fn of(mut intervals: Vec<(i64, i64)>) -> Indexes {
        intervals.sort_unstable();
        let mut joined: Vec<(i64, i64)> = Vec::with_capacity(intervals.len());
        for (first, last) in intervals {
            match joined.last_mut() {
                Some(before) if first <= before.1 + 1 => before.1 = before.1.max(last),
                _ => joined.push((first, last)),
            }
        }
        Indexes(joined)
    }
}

impl fmt::Display for Indexes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (first, last)) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            match last - first {
                0 => write!(out, "{comma}{first}")?,
                1 => write!(out, "{comma}{first},{last}")?,
                _ => write!(out, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_read_and_written_alike() {
        for (text, completions, expected) in [
            ("", 10, ""),
            ("3", 10, "3"),
            ("1,2", 10, "1,2"),
            ("1,2,3", 10, "1-3"),
            ("0,2-4,7", 10, "0,2-4,7"),
            ("0,2-4,7", 4, "0,2,3"),
            ("5,x,7-y,8", 10, "5,8"),
            ("4-2,-3,9", 10, "9"),
            ("9223372036854775807", 10, ""),
        ] {
            assert_eq!(Indexes::parse(text, completions).to_string(), expected, "{text}");
        }
    }

    #[test]
    fn sets_are_joined_and_compared() {
        let set = |text| Indexes::parse(text, 100);
        assert_eq!(set("1,5-7").with([2, 8, 6, 20]).to_string(), "1,2,5-8,20");
        assert_eq!(set("1-3").union(&set("4-5,9")).to_string(), "1-5,9");
        assert_eq!((set("1,5-7").total(), set("").total()), (4, 0));
        assert!(set("1,5-7").has(6) && !set("1,5-7").has(4) && !set("1,5-7").has(8));
        for (one, other, count) in [("0-9", "2,4-5,20", 3), ("", "1", 0), ("1,3", "1,3", 2), ("0-1", "2-3", 0)] {
            assert_eq!(set(one).overlap(&set(other)), count, "{one} {other}");
        }
    }

    #[test]
    fn the_first_that_are_missing_come_in_order() {
        for (text, count, completions, expected) in [
            ("", 2, 5, vec![0, 1]),
            ("0-1,3", 9, 6, vec![2, 4, 5]),
            ("0-1,3", 2, 6, vec![2, 4]),
            ("0-5", 3, 6, vec![]),
            ("2", 0, 6, vec![]),
            ("0-9", 3, 4, vec![]),
        ] {
            let set = Indexes::parse(text, 100);
            assert_eq!(set.first_missing(count, completions), expected, "{text} {count} {completions}");
        }
    }
}
