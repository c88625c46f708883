//! Facts about sizes.

use super::super::family::tests::member;
use super::*;

const TEN: Bounds = Bounds { replicas: 10, surge: 3, unavailable: 2, is_rolling: true };
const NOBODY: Wishes = Wishes { is_deleting: false, is_paused: false, roll_back_to: None };

/// Sets by size and available pods; the new one last.
fn family(old: &[(i64, i64)], new: Option<(i64, i64)>, most: i64) -> Family {
    let old = old.iter().zip(1..).map(|((size, available), at)| member(&format!("s{at}"), *size, *available, most));
    Family { old: old.collect(), new: new.map(|(size, available)| member("s9", size, available, most)) }
}

fn sizes(family: &Family) -> Vec<i64> {
    family.all().map(|member| member.replicas).collect()
}

#[test]
fn deletion_goes_before_pause_before_rollback_before_scaling() {
    let one = family(&[], Some((10, 10)), 10);
    let other = family(&[], Some((3, 3)), 3);
    let recreate = Bounds { is_rolling: false, ..TEN };
    let several = family(&[(2, 2)], Some((1, 1)), 3);
    for (wishes, bounds, family, expected) in [
        (NOBODY, TEN, &one, Way::Roll),
        (NOBODY, TEN, &other, Way::Scale),
        (NOBODY, TEN, &Family::default(), Way::Roll),
        (NOBODY, recreate, &one, Way::Recreate),
        (NOBODY, recreate, &other, Way::Scale),
        (NOBODY, recreate, &several, Way::Recreate),
        (Wishes { roll_back_to: Some(3), ..NOBODY }, TEN, &other, Way::RollBack(3)),
        (Wishes { is_paused: true, roll_back_to: Some(3), ..NOBODY }, TEN, &one, Way::Scale),
        (Wishes { is_deleting: true, is_paused: true, roll_back_to: Some(3) }, TEN, &one, Way::Watch),
    ] {
        assert_eq!(way(wishes, &bounds, family), expected, "{wishes:?} {bounds:?}");
    }
}

#[test]
fn the_new_set_grows_into_the_room_that_there_is() {
    for (total, new, expected) in [(0, 0, 10), (10, 0, 3), (13, 3, 3), (11, 3, 5), (20, 0, 0), (12, 12, 10), (9, 9, 10)]
    {
        assert_eq!(new_size(&TEN, total, new), expected, "{total} {new}");
    }
    assert_eq!(new_size(&Bounds { is_rolling: false, ..TEN }, 10, 0), 10);
}

#[test]
fn a_rollout_goes_one_way_at_a_time() {
    for (old, new, moved, expected) in [
        // From the start to the end, step by step.
        (vec![(10, 10)], (0, 0), true, vec![10, 3]),
        (vec![(10, 10)], (3, 0), true, vec![8, 3]),
        (vec![(8, 8)], (3, 0), true, vec![8, 5]),
        (vec![(8, 8)], (5, 0), false, vec![8, 5]),
        (vec![(8, 8)], (5, 5), true, vec![3, 5]),
        (vec![(3, 3)], (10, 8), true, vec![0, 10]),
        (vec![(0, 0)], (10, 8), false, vec![0, 10]),
        // Sick old pods go first, even if nothing new is available.
        (vec![(10, 6)], (3, 0), true, vec![8, 3]),
        (vec![(10, 8)], (3, 0), true, vec![8, 3]),
        // The oldest set gives first.
        (vec![(4, 4), (6, 6)], (3, 3), true, vec![0, 5, 3]),
        // A node fails in a rollout that is stuck: no old pod goes.
        (vec![(8, 7)], (5, 0), false, vec![8, 5]),
        // More new pods than wanted.
        (vec![], (12, 12), true, vec![10]),
    ] {
        let mut family = family(&old, Some(new), 10);
        assert_eq!(roll(&TEN, &mut family), moved, "{old:?} {new:?}");
        assert_eq!(sizes(&family), expected, "{old:?} {new:?}");
    }
}

/// What a deployment that rolls looks like to a machine that makes pods available one at a time, and kills at once.
#[test]
fn no_rollout_leaves_its_bounds() {
    for replicas in 0..12 {
        for (surge, unavailable) in [(0, 1), (1, 0), (3, 2), (5, 5), (1, 1)] {
            let bounds = Bounds { replicas, surge, unavailable: unavailable.min(replicas), is_rolling: true };
            let (mut old, mut new, mut new_available) = (replicas, 0, 0);
            for _ in 0..200 {
                let mut family = family(&[(old, old)], Some((new, new_available)), replicas);
                let moved = roll(&bounds, &mut family);
                (old, new) = (family.old[0].replicas, family.new.as_ref().unwrap().replicas);
                assert!(old + new <= bounds.most(), "{bounds:?}");
                assert!(old + new_available >= bounds.fewest(), "{bounds:?}");
                if !moved {
                    new_available = new.min(new_available + 1);
                }
            }
            assert_eq!((old, new), (0, replicas), "{bounds:?}");
        }
    }
}

#[test]
fn scaling_keeps_to_the_one_active_set_or_the_newest() {
    for (bounds, old, new, expected) in [
        (TEN, vec![(0, 0)], Some((3, 3)), vec![0, 10]),
        (TEN, vec![(3, 3)], Some((0, 0)), vec![10, 0]),
        (TEN, vec![(0, 0), (0, 0)], None, vec![0, 10]),
        (TEN, vec![(0, 0)], Some((0, 0)), vec![0, 10]),
        (Bounds { replicas: 0, ..TEN }, vec![(0, 0)], Some((3, 3)), vec![0, 0]),
        (Bounds { is_rolling: false, ..TEN }, vec![(3, 3)], Some((2, 2)), vec![3, 2]),
    ] {
        let mut family = family(&old, new, 5);
        scale(&bounds, &mut family);
        assert_eq!(sizes(&family), expected, "{old:?} {new:?}");
        assert!(!is_scaled(&bounds, &family), "the new size is noted: {old:?} {new:?}");
    }
}

#[test]
fn a_saturated_new_set_needs_no_old_ones() {
    let mut all = family(&[(2, 2), (0, 0)], Some((10, 10)), 10);
    scale(&TEN, &mut all);
    assert_eq!(sizes(&all), [0, 0, 10]);
    assert!(!all.old[1].has_changed());
}

#[test]
fn recreation_empties_all_old_sets_first() {
    let mut all = family(&[(2, 2), (0, 0), (1, 0)], Some((0, 0)), 10);
    assert!(empty_old(&TEN, &mut all));
    assert_eq!(sizes(&all), [0, 0, 0, 0]);
    assert!(!empty_old(&TEN, &mut all));
}

#[test]
fn history_goes_by_revision_and_only_if_it_is_empty() {
    let revised = |name: &str, size: i64, revision: &str| {
        let mut member = member(name, size, size, 1);
        member.annotations.insert(annotations::REVISION.to_owned(), revision.to_owned());
        member
    };
    let old = vec![revised("s1", 0, "5"), revised("s2", 0, "2"), revised("s3", 1, "1"), revised("s4", 0, "3")];
    let family = Family { new: None, old };
    let check = |limit, expected: &[&str]| {
        let names: Vec<_> = surplus_history(limit, &family).into_iter().map(Member::name).collect();
        assert_eq!(names, expected, "{limit:?}");
    };
    check(None, &[]);
    check(Some(i32::MAX), &[]);
    check(Some(4), &[]);
    check(Some(3), &[]);
    check(Some(2), &["s2"]);
    check(Some(0), &["s2", "s4", "s1"]);
}
