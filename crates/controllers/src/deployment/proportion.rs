//! Scaling in the middle of a rollout: every set gets its share, so that the rollout neither hurries nor falls back.

use std::cmp::Reverse;

use super::annotations::{self, MAX_REPLICAS};
use super::bounds::Bounds;
use super::family::{Family, Member};

/// Spreads what there is to add, or to take away, over the active sets.
pub fn scale(bounds: &Bounds, family: &mut Family) {
    // How many pods there are, for sets that don't say how large the deployment was.
    let actual: i64 = family.all().map(Member::actual).sum();
    let allowed = if bounds.replicas > 0 { bounds.most() } else { 0 };
    let Family { new, old } = family;
    let mut active: Vec<_> = old.iter_mut().chain(new).filter(|member| member.is_active()).collect();
    let to_add = allowed - active.iter().map(|member| member.replicas).sum::<i64>();
    // The largest first; of equal ones the newest grows first and the oldest shrinks first.
    active.sort_by(|one, other| one.age_order().cmp(&other.age_order()));
    if to_add > 0 {
        active.reverse();
    }
    active.sort_by_key(|member| Reverse(member.replicas));
    let mut added = 0;
    let mut sizes = Vec::with_capacity(active.len());
    for member in &active {
        let part = share(member, bounds, actual);
        let part = match to_add > 0 {
            true => part.min(to_add - added),
            false => part.max(to_add - added),
        };
        let part = if to_add == added { 0 } else { part };
        added += part;
        sizes.push(member.replicas + part);
    }
    if let Some(first) = sizes.first_mut() {
        *first = (*first + to_add - added).max(0);
    }
    for (member, size) in active.into_iter().zip(sizes) {
        member.resize(size, bounds);
    }
}

/// By how much a set would have to grow to keep its part of the whole.
fn share(member: &Member, bounds: &Bounds, actual: i64) -> i64 {
    if bounds.replicas == 0 {
        return -member.replicas;
    }
    let noted = annotations::count(&member.annotations, MAX_REPLICAS).filter(|most| *most > 0);
    let Some(before) = noted.or(Some(actual).filter(|actual| *actual > 0)) else { return 0 };
    let (size, before) = (i128::from(member.replicas) * i128::from(bounds.most()), i128::from(before));
    // Rounded, halves up: sizes aren't negative.
    let size = (2 * size + before) / (2 * before);
    i64::try_from(size).unwrap_or(i64::MAX) - member.replicas
}

#[cfg(test)]
mod tests {
    use super::super::family::tests::member;
    use super::*;

    fn check(replicas: i64, surge: i64, new: Option<(i64, i64)>, old: &[(i64, i64)], expected: &[i64]) {
        let bounds = Bounds { replicas, surge, unavailable: 0, is_rolling: true };
        let old =
            old.iter().zip(1..).map(|((size, most), at)| member(&format!("s{at}"), *size, *size, *most)).collect();
        let mut family = Family { new: new.map(|(size, most)| member("s9", size, size, most)), old };
        scale(&bounds, &mut family);
        let sizes: Vec<_> = family.all().map(|member| member.replicas).collect();
        assert_eq!(sizes, expected, "{replicas}+{surge}: {new:?} {:?}", family.old.len());
    }

    #[test]
    fn every_set_keeps_its_part() {
        // The example of the documentation: 10 with surge 3, five more.
        check(15, 3, Some((5, 13)), &[(8, 13)], &[11, 7]);
        // Halves, up and down.
        check(20, 0, Some((5, 10)), &[(5, 10)], &[10, 10]);
        check(5, 0, Some((5, 10)), &[(5, 10)], &[2, 3]);
        // Of equal sets the newest grows first, and the leftover goes to it too.
        check(12, 0, Some((2, 6)), &[(2, 6), (2, 6)], &[4, 4, 4]);
        check(7, 0, Some((2, 6)), &[(2, 6), (2, 6)], &[2, 2, 3]);
        check(5, 0, Some((2, 6)), &[(2, 6), (2, 6)], &[1, 2, 2]);
        // To nothing, and from a size that nobody noted.
        check(0, 0, Some((5, 13)), &[(8, 13)], &[0, 0]);
        check(20, 0, Some((5, 0)), &[(5, 0)], &[10, 10]);
        // Nothing to add.
        check(10, 0, Some((5, 10)), &[(5, 10)], &[5, 5]);
        check(i64::from(i32::MAX), 0, Some((5, 10)), &[(5, 10)], &[1_073_741_823, 1_073_741_824]);
    }
}
