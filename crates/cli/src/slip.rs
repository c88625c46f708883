//! Slips of the finger: which known word was meant.

/// How different a word may be from a known one to be taken for it.
const SLIPS_MAX: usize = 2;

/// The known word that is the least different from this one, if it is not too different.
pub fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let lower = word.to_lowercase();
    let near = known.map(|known| (difference(&lower, &known.to_lowercase()), known)).min_by_key(|(slips, _)| *slips)?;
    // Half a word that is wrong is another word.
    (near.0 <= SLIPS_MAX.min(word.chars().count() / 2)).then_some(near.1)
}

/// How many letters have to be put in, taken out, replaced or swapped to make one word of the other.
fn difference(left: &str, right: &str) -> usize {
    let (left, right): (Vec<char>, Vec<char>) = (left.chars().collect(), right.chars().collect());
    let mut rows = vec![(0..=right.len()).collect::<Vec<usize>>()];
    for (i, a) in left.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in right.iter().enumerate() {
            let mut least = (rows[i][j + 1] + 1).min(row[j] + 1).min(rows[i][j] + usize::from(a != b));
            if i > 0 && j > 0 && *a == right[j - 1] && left[i - 1] == *b {
                least = least.min(rows[i - 1][j - 1] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[left.len()][right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_that_was_meant_is_found() {
        let known = ["get", "apply", "delete", "wait", "why"];
        for (word, expected) in [
            ("gt", Some("get")),
            ("aply", Some("apply")),
            ("Delete", Some("delete")),
            ("wiat", Some("wait")),
            ("x", None),
            ("destroy", None),
        ] {
            assert_eq!(nearest(word, known.into_iter()), expected, "{word}");
        }
    }
}
