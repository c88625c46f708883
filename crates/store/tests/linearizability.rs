//! What concurrent clients see can be explained by one order of moments; and the judge of that finds what is planted.

mod support;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use setpoint_api::Revision;
use setpoint_store::{MemoryDisk, Options, WindowBounds};
use support::linearizability::{Answer, Call, Operation, Version, Violation, check};
use support::planted::{Plan, Wrong, record};
use support::traced_disk::TracedDisk;
use support::truth::Truth;
use support::workload::{Load, work};
use support::{dump_of, nodes, open, pods, run, seeds, small};

fn history(plan: Plan) -> (Vec<Operation>, bool) {
    run(async {
        let disk = TracedDisk::slow(MemoryDisk::new(), plan.seed);
        let options = Options { segment_bytes: 64 * 1024, checkpoint_bytes: 256 * 1024, ..small() };
        let (store, _) = open(disk, options).await.expect("a new store");
        record(&[store], plan).await
    })
}

#[test]
fn histories_of_concurrent_clients_are_linearizable() {
    for seed in seeds(20) {
        let plan = Plan { seed, clients: 16, calls_each: 312, objects: 24, wrong: None };
        let (history, _) = history(plan);
        assert!(history.len() > 5000);
        let conflicts = history.iter().filter(|o| matches!(o.answer, Answer::Conflict { .. })).count();
        assert!(conflicts > 100, "clients did not get in each other's way: {conflicts} conflicts");
        assert_eq!(check(&history), Ok(()), "seed {seed}");
    }
}

#[test]
fn every_planted_fault_is_found() {
    let mut found = 0;
    for wrong in Wrong::ALL {
        for seed in seeds(4) {
            let plan = Plan { seed, clients: 5, calls_each: 150, objects: 8, wrong: Some(wrong) };
            let (history, planted) = history(plan);
            assert!(planted, "{wrong:?} was never planted with seed {seed}");
            assert!(check(&history).is_err(), "{wrong:?} with seed {seed} was not found");
            found += 1;
        }
    }
    assert!(found >= 50);
}

/// A history of one object as calls, answers and the moments of both.
fn judge(operations: &[(Call, Answer, u64, u64)]) -> Result<(), Violation> {
    let operation = |(call, answer, called, returned): &_| Operation {
        object: 0,
        call: *call,
        answer: *answer,
        called: *called,
        returned: *returned,
    };
    check(&operations.iter().map(operation).collect::<Vec<_>>())
}

#[test]
fn the_judge_knows_right_from_wrong() {
    let create = |value| Call::Create { value };
    let replace = |expected, value| Call::Replace { expected, value };
    let done = |revision| Answer::Done { revision };
    let found = |revision, value| Answer::Found(Some(Version { revision, value }));
    let unexplained = Err(Violation::Unexplained { object: 0 });

    assert_eq!(judge(&[]), Ok(()));
    assert_eq!(judge(&[(create(1), done(1), 1, 2), (Call::Get, found(1, 1), 3, 4)]), Ok(()));
    // A read beside a write may see it or not.
    assert_eq!(judge(&[(create(1), done(1), 1, 5), (Call::Get, found(1, 1), 2, 3)]), Ok(()));
    assert_eq!(judge(&[(create(1), done(1), 1, 5), (Call::Get, Answer::Found(None), 2, 3)]), Ok(()));
    // One after it must see it.
    assert_eq!(judge(&[(create(1), done(1), 1, 2), (Call::Get, Answer::Found(None), 3, 4)]), unexplained);
    // Two reads beside a write can't see it come and go.
    let reads = [(Call::Get, found(1, 1), 2, 3), (Call::Get, Answer::Found(None), 4, 5)];
    assert_eq!(judge(&[(create(1), done(1), 1, 9), reads[0], reads[1]]), unexplained);
    // Of two replaces of one version, one wins.
    let first = [(create(1), done(1), 1, 2), (replace(1, 2), done(2), 3, 9)];
    assert_eq!(judge(&[first[0], first[1], (replace(1, 3), done(3), 4, 8)]), unexplained);
    assert_eq!(judge(&[first[0], first[1], (replace(1, 3), Answer::Conflict { actual: 2 }, 4, 8)]), Ok(()));
    // The order that explains it is not that of the calls.
    let late = [(create(1), done(1), 1, 2), (replace(2, 3), done(3), 3, 10), (replace(1, 2), done(2), 4, 9)];
    assert_eq!(judge(&late), Ok(()));
    // Revisions follow time, and are used once.
    assert_eq!(
        judge(&[(create(1), done(5), 1, 2), (replace(5, 2), done(4), 3, 4)]),
        Err(Violation::OutOfOrder { earlier: 5, later: 4 })
    );
    assert_eq!(
        judge(&[(create(1), done(5), 1, 9), (create(2), done(5), 2, 8)]),
        Err(Violation::Repeated { revision: 5 })
    );
    // What was deleted is gone, until it is created again.
    let gone = [(create(1), done(1), 1, 2), (Call::Delete { expected: 1 }, done(2), 3, 4)];
    assert_eq!(judge(&[gone[0], gone[1], (replace(1, 2), Answer::Missing, 5, 6), (create(3), done(3), 7, 8)]), Ok(()));
    assert_eq!(judge(&[gone[0], gone[1], (create(3), Answer::Exists { actual: 1 }, 5, 6)]), unexplained);
}

#[test]
fn a_list_at_a_revision_is_the_replay_of_the_log_up_to_it() {
    for seed in seeds(6) {
        run(async {
            let disk = MemoryDisk::new();
            let window = WindowBounds { events: 60, bytes: 1 << 20, ..WindowBounds::default() };
            let (store, _) = open(disk.clone(), Options { window, ..small() }).await.expect("a new store");
            let mut truth = Truth::default();
            work(&store, &disk, Load { commits_each: 40, ..Load::new(seed) }).await.tell(&mut truth);
            let mut rng = StdRng::seed_from_u64(seed);
            let (mut kept, mut expired) = (0, 0);
            for _ in 0..200 {
                let revision = Revision::new(rng.random_range(0..=truth.newest().get()));
                for resource in [pods(), nodes()] {
                    let Ok(snapshot) = store.snapshot_at(&resource, revision) else {
                        expired += 1;
                        continue;
                    };
                    let mut expected = truth.state_at(revision);
                    expected.retain(|key, _| *key.resource() == resource);
                    assert_eq!(dump_of(&snapshot, &resource), expected, "seed {seed}, {resource} at {revision}");
                    assert_eq!(snapshot.revision(), revision);
                    kept += 1;
                }
            }
            assert!(kept > 20 && expired > 20, "kept {kept}, expired {expired}");
        });
    }
}
