//! The order of versions: stable before beta before alpha, newer before older, others last by name.

use std::cmp::Ordering;

/// Compares two versions by how much clients prefer them: `v2` is greater than `v1`, which is greater than `v2beta1`.
pub fn compare(a: &str, b: &str) -> Ordering {
    match (parse(a), parse(b)) {
        (Some(x), Some(y)) => x.cmp(&y),
        (Some(_), None) => Ordering::Greater,
        (None, Some(_)) => Ordering::Less,
        // Upstream has them in alphabetical order, the first preferred.
        (None, None) => b.cmp(a),
    }
}

/// Stability, major and minor of `v1`, `v1beta2` and the like.
fn parse(version: &str) -> Option<(u8, u64, u64)> {
    let rest = version.strip_prefix('v')?;
    let split = |word: &str, stability: u8| {
        let (major, minor) = rest.split_once(word)?;
        Some((stability, number(major)?, number(minor)?))
    };
    match number(rest) {
        Some(major) => Some((2, major, 0)),
        None => split("beta", 1).or_else(|| split("alpha", 0)),
    }
}

/// A number that starts with 1 to 9.
fn number(text: &str) -> Option<u64> {
    let good = !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
    if good { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::compare;

    #[test]
    fn versions_have_the_order_that_clients_prefer() {
        let mut versions =
            ["foo10", "v1alpha1", "v3beta1", "v2", "v1", "foo1", "v10beta3", "v11alpha2", "v12alpha1", "v10"];
        versions.sort_by(|a, b| compare(b, a));
        let expected =
            ["v10", "v2", "v1", "v10beta3", "v3beta1", "v12alpha1", "v11alpha2", "v1alpha1", "foo1", "foo10"];
        assert_eq!(versions, expected);
    }
}
