//! The order of keys: by letter, but numbers within by their value, and letters behind everything else.

use std::cmp::Ordering;

/// Compares two keys.
pub(super) fn compare(a: &str, b: &str) -> Ordering {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let Some(at) = a.iter().zip(&b).position(|(a, b)| a != b) else { return a.len().cmp(&b.len()) };
    match (a[at].is_alphabetic(), b[at].is_alphabetic()) {
        (true, true) => a[at].cmp(&b[at]),
        (true, false) => Ordering::Greater,
        (false, true) => Ordering::Less,
        (false, false) => by_number(&a, &b, at),
    }
}

fn by_number(a: &[char], b: &[char], at: usize) -> Ordering {
    // A zero counts as a digit of the number that began before it, unless that is all zeros.
    let began = a[..at].iter().rev().take_while(|character| character.is_ascii_digit()).any(|digit| *digit != '0');
    let start = i64::from((a[at] == '0' || b[at] == '0') && began);
    let (left, right) = (number(&a[at..], start), number(&b[at..], start));
    left.cmp(&right).then(a[at].cmp(&b[at]))
}

/// The value of the digits at the beginning and how many there are. Overlong numbers wrap, as Go's do.
fn number(characters: &[char], start: i64) -> (i64, usize) {
    let digits = characters.iter().map_while(|character| character.to_digit(10));
    digits.fold((start, 0), |(value, count), digit| (value.wrapping_mul(10).wrapping_add(i64::from(digit)), count + 1))
}
