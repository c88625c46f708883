//! Which of two versions is older.

use std::cmp::Ordering;

/// Compares versions part by part; numbers as numbers. A version with a suffix after `-` is older than the one without it, as
/// in semantic versions; what follows a `+` doesn't count.
#[must_use]
pub fn compare(one: &str, other: &str) -> Ordering {
    let split = |version: &str| {
        let version = version.split('+').next().unwrap_or_default();
        let (release, suffix) = version.split_once('-').map_or((version, None), |(a, b)| (a, Some(b)));
        (release.to_owned(), suffix.map(str::to_owned))
    };
    let ((one, one_suffix), (other, other_suffix)) = (split(one), split(other));
    parts(&one, &other).then_with(|| match (&one_suffix, &other_suffix) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Greater,
        (Some(_), None) => Ordering::Less,
        (Some(one), Some(other)) => parts(one, other),
    })
}

fn parts(one: &str, other: &str) -> Ordering {
    let (mut one, mut other) = (one.split('.'), other.split('.'));
    loop {
        let order = match (one.next(), other.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => Ordering::Less,
            (Some(_), None) => Ordering::Greater,
            (Some(one), Some(other)) => match (one.parse::<u64>(), other.parse::<u64>()) {
                (Ok(one), Ok(other)) => one.cmp(&other),
                _ => one.cmp(other),
            },
        };
        if order.is_ne() {
            return order;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_in_the_order_in_which_they_are_released() {
        let ordered = ["1.2.0-alpha", "1.2.0-alpha.1", "1.2.0-beta.2", "1.2.0-beta.11", "1.2.0", "1.10", "1.10.0", "2"];
        for pair in ordered.windows(2) {
            assert_eq!(compare(pair[0], pair[1]), Ordering::Less, "{pair:?}");
            assert_eq!(compare(pair[1], pair[0]), Ordering::Greater, "{pair:?}");
        }
        assert_eq!(compare("1.0+a", "1.0+b"), Ordering::Equal);
    }
}
