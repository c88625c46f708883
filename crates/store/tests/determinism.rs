//! The same seed gives the same run, to the last disk operation and answer: so that any failure can be replayed.

mod support;

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use setpoint_store::MemoryDisk;
use support::traced_disk::TracedDisk;
use support::workload::{Load, work};
use support::{dump, open, run, seeds, small};

/// A hash over everything that a run did, with a power cut in its middle.
fn trace(seed: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    let mut memory = MemoryDisk::new();
    for round in 0..3 {
        run(async {
            let disk = TracedDisk::slow(memory.clone(), seed);
            let (store, report) = open(disk.clone(), small()).await.expect("it opens");
            report.revision.hash(&mut hasher);
            let answers = work(&store, &memory, Load::new(seed * 3 + round)).await;
            for acknowledged in &answers.acknowledged {
                (acknowledged.revision, acknowledged.at).hash(&mut hasher);
            }
            dump(&store.snapshot()).hash(&mut hasher);
            disk.hash().hash(&mut hasher);
        });
        memory = memory.power_cut(seed);
    }
    hasher.finish()
}

#[test]
fn the_same_seed_gives_the_same_trace_and_another_seed_another_one() {
    let mut traces = std::collections::BTreeSet::new();
    for seed in seeds(6) {
        let first = trace(seed);
        assert_eq!(first, trace(seed), "seed {seed} went another way the second time");
        assert!(traces.insert(first), "seed {seed} went the way of another");
    }
}
