//! Sets of indexes as text: `1,3-5,7`.

use setpoint_api::quote::quote;

/// How many indexes there are; or what is wrong with the text, if each must be below `completions`.
pub(super) fn count(text: &str, completions: i64) -> Result<i64, String> {
    if text.is_empty() {
        return Ok(0);
    }
    let (mut total, mut last) = (0, None);
    for interval in text.split(',') {
        let (first, end) = parse(interval, completions)?;
        if let Some(previous) = last.filter(|previous| *previous >= first) {
            return Err(format!("non-increasing order, previous: {previous}, current: {first}"));
        }
        total += end - first + 1;
        last = Some(end);
    }
    Ok(total)
}

/// The first index that is in both sets. Intervals that can't be read are passed over.
pub(super) fn overlap(left: &str, right: &str, completions: i64) -> Option<i64> {
    let read = |text: &str| -> Vec<(i64, i64)> {
        text.split(',').filter_map(|interval| parse(interval, completions).ok()).collect()
    };
    let (left, right) = (read(left), read(right));
    let (mut at_left, mut at_right) = (left.iter().peekable(), right.iter().peekable());
    while let (Some(a), Some(b)) = (at_left.peek(), at_right.peek()) {
        if a.0 <= b.1 && b.0 <= a.1 {
            return Some(a.0.max(b.0));
        }
        if a.0 <= b.0 {
            at_left.next()
        } else {
            at_right.next()
        };
    }
    None
}

fn parse(interval: &str, completions: i64) -> Result<(i64, i64), String> {
    let limits: Vec<&str> = interval.split('-').collect();
    let index = |text: &str| -> Result<i64, String> {
        let number: i64 =
            text.parse().map_err(|_| format!("cannot convert string to integer for index: {}", quote(text)))?;
        if number >= completions { Err(format!("too large index: {}", quote(text))) } else { Ok(number) }
    };
    match limits[..] {
        [only] => index(only).map(|number| (number, number)),
        [first, last] => match (index(first)?, index(last)?) {
            (first, last) if first >= last => Err(format!("non-increasing order, previous: {first}, current: {last}")),
            interval => Ok(interval),
        },
        _ => Err(format!(
            "the fragment {} violates the requirement that an index interval can have at most two parts separated by '-'",
            quote(interval)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_counted_in_order() {
        assert_eq!(count("", 3), Ok(0));
        assert_eq!(count("0,2-4", 5), Ok(4));
        for (text, expected) in [
            ("a", "cannot convert string to integer for index: \"a\""),
            ("5", "too large index: \"5\""),
            ("3-1", "non-increasing order, previous: 3, current: 1"),
            ("2,1", "non-increasing order, previous: 2, current: 1"),
            (
                "1-2-3",
                "the fragment \"1-2-3\" violates the requirement that an index interval can have at most two parts \
                 separated by '-'",
            ),
        ] {
            assert_eq!(count(text, 5), Err(expected.to_owned()), "{text}");
        }
    }

    #[test]
    fn the_first_common_index_is_found() {
        assert_eq!(overlap("0-2,5", "3,5-7", 9), Some(5));
        assert_eq!(overlap("0-2", "x,3", 9), None);
    }
}
