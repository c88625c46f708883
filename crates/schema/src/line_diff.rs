//! The difference of two texts by lines, as upstream's messages show it: a unified diff without file names.
//!
//! The longest common run of lines is found first, then the runs before and after it. A line that stands in more than
//! one percent of a long text says little and starts no run, so that the same input gives the same output as upstream.

use std::collections::HashMap;
use std::fmt::Write;

/// Lines around a change.
const CONTEXT: usize = 3;
/// Longest texts that are compared line by line: time grows with their square.
const LINES_MAX: usize = 5_000;
/// Texts from this many lines on have lines that say little.
const LONG: usize = 200;

/// A unified diff of two texts; empty if they are equal. Texts beyond bounds are only counted.
pub fn unified(before: &str, after: &str) -> String {
    let (a, b): (Vec<&str>, Vec<&str>) = (before.split('\n').collect(), after.split('\n').collect());
    if a.len().max(b.len()) > LINES_MAX {
        return format!("texts of {} and {} lines are too long to compare\n", a.len(), b.len());
    }
    let mut text = String::new();
    for group in groups(changes(&a, &b)) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let _ = writeln!(text, "@@ -{} +{} @@", range(first.a.0, last.a.1), range(first.b.0, last.b.1));
        for change in &group {
            let mut lines = |sign: char, lines: &[&str]| {
                lines.iter().for_each(|line| text.extend([&sign.to_string(), *line, "\n"]))
            };
            if change.equal {
                lines(' ', &a[change.a.0..change.a.1]);
            } else {
                lines('-', &a[change.a.0..change.a.1]);
                lines('+', &b[change.b.0..change.b.1]);
            }
        }
    }
    text
}

/// What becomes of a run of lines.
#[derive(Debug, Clone, Copy)]
struct Change {
    equal: bool,
    a: (usize, usize),
    b: (usize, usize),
}

/// A common run: where it starts on both sides, and its length.
type Match = (usize, usize, usize);

fn changes(a: &[&str], b: &[&str]) -> Vec<Change> {
    let (mut i, mut j) = (0, 0);
    let mut changes = Vec::new();
    for (start_a, start_b, size) in matches(a, b) {
        if i < start_a || j < start_b {
            changes.push(Change { equal: false, a: (i, start_a), b: (j, start_b) });
        }
        (i, j) = (start_a + size, start_b + size);
        if size > 0 {
            changes.push(Change { equal: true, a: (start_a, i), b: (start_b, j) });
        }
    }
    changes
}

/// All common runs in order, and an empty one at the end.
fn matches(a: &[&str], b: &[&str]) -> Vec<Match> {
    let places = places(b);
    let mut open = vec![(0, a.len(), 0, b.len())];
    let mut found: Vec<Match> = Vec::new();
    while let Some((a_low, a_high, b_low, b_high)) = open.pop() {
        let (i, j, size) = longest(a, b, &places, (a_low, a_high), (b_low, b_high));
        if size > 0 {
            found.push((i, j, size));
            open.push((a_low, i, b_low, j));
            open.push((i + size, a_high, j + size, b_high));
        }
    }
    found.sort_unstable();
    let mut joined: Vec<Match> = Vec::new();
    for (i, j, size) in found {
        match joined.last_mut() {
            Some(last) if last.0 + last.2 == i && last.1 + last.2 == j => last.2 += size,
            _ => joined.push((i, j, size)),
        }
    }
    joined.push((a.len(), b.len(), 0));
    joined
}

/// Where each line stands, without those that say little.
fn places<'a>(b: &[&'a str]) -> HashMap<&'a str, Vec<usize>> {
    let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
    for (index, line) in b.iter().enumerate() {
        places.entry(line).or_default().push(index);
    }
    if b.len() >= LONG {
        let most = b.len() / 100 + 1;
        places.retain(|_, at| at.len() <= most);
    }
    places
}

fn longest(
    a: &[&str],
    b: &[&str],
    places: &HashMap<&str, Vec<usize>>,
    (a_low, a_high): (usize, usize),
    (b_low, b_high): (usize, usize),
) -> Match {
    let mut best = (a_low, b_low, 0);
    let mut lengths: HashMap<usize, usize> = HashMap::new();
    for (i, line) in a.iter().enumerate().take(a_high).skip(a_low) {
        let mut next = HashMap::new();
        for &j in places.get(line).into_iter().flatten().filter(|j| (b_low..b_high).contains(*j)) {
            let size = j.checked_sub(1).and_then(|before| lengths.get(&before)).copied().unwrap_or(0) + 1;
            next.insert(j, size);
            if size > best.2 {
                best = (i + 1 - size, j + 1 - size, size);
            }
        }
        lengths = next;
    }
    // Lines that say little start no run, but belong to one beside them.
    while best.0 > a_low && best.1 > b_low && a[best.0 - 1] == b[best.1 - 1] {
        best = (best.0 - 1, best.1 - 1, best.2 + 1);
    }
    while best.0 + best.2 < a_high && best.1 + best.2 < b_high && a[best.0 + best.2] == b[best.1 + best.2] {
        best.2 += 1;
    }
    best
}

/// Changes with the lines around them; far from each other, they are apart.
fn groups(mut changes: Vec<Change>) -> Vec<Vec<Change>> {
    if let Some(first) = changes.first_mut().filter(|change| change.equal) {
        first.a.0 = first.a.0.max(first.a.1.saturating_sub(CONTEXT));
        first.b.0 = first.b.0.max(first.b.1.saturating_sub(CONTEXT));
    }
    if let Some(last) = changes.last_mut().filter(|change| change.equal) {
        last.a.1 = last.a.1.min(last.a.0 + CONTEXT);
        last.b.1 = last.b.1.min(last.b.0 + CONTEXT);
    }
    let mut groups = Vec::new();
    let mut group: Vec<Change> = Vec::new();
    for mut change in changes {
        if change.equal && change.a.1 - change.a.0 > 2 * CONTEXT {
            let head =
                Change { a: (change.a.0, change.a.0 + CONTEXT), b: (change.b.0, change.b.0 + CONTEXT), ..change };
            group.push(head);
            groups.push(std::mem::take(&mut group));
            change.a.0 = change.a.1 - CONTEXT;
            change.b.0 = change.b.1 - CONTEXT;
        }
        group.push(change);
    }
    groups.push(group);
    groups.retain(|group| !group.iter().all(|change| change.equal));
    groups
}

/// A range of lines: `1,5`, `3` for one line, `2,0` for none after the second.
fn range(start: usize, end: usize) -> String {
    match end - start {
        1 => (start + 1).to_string(),
        0 => format!("{start},0"),
        length => format!("{},{length}", start + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_shown_with_three_lines_around_it() {
        let before = "1\n2\n3\n4\n5\n6\n7\n8\n9";
        let after = "1\n2\n3\n4\nx\n6\n7\n8\n9";
        assert_eq!(unified(before, after), "@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+x\n 6\n 7\n 8\n");
        assert_eq!(unified(before, before), "");
    }

    #[test]
    fn changes_far_apart_are_shown_apart() {
        let before: Vec<String> = (0..30).map(|n| n.to_string()).collect();
        let mut after = before.clone();
        after[2] = "x".into();
        after.remove(25);
        let text = unified(&before.join("\n"), &after.join("\n"));
        assert_eq!(
            text,
            "@@ -1,6 +1,6 @@\n 0\n 1\n-2\n+x\n 3\n 4\n 5\n@@ -23,7 +23,6 @@\n 22\n 23\n 24\n-25\n 26\n 27\n 28\n"
        );
    }
}
