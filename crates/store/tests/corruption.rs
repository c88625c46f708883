//! Bytes that change behind the store's back: it refuses to start and says where, or nothing is different. Never wrong data.

mod support;

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use setpoint_api::Revision;
use setpoint_store::{Disk, FileInfo, MemoryDisk, OpenError, Options, Report, Store, verify};
use support::truth::Truth;
use support::workload::{Load, work};
use support::{ByNode, Dump, dump, open, rest, run, seeds, small};

/// How the run that wrote a disk ended.
#[derive(Clone, Copy, PartialEq)]
enum End {
    /// Closed in order.
    Clean,
    /// Killed after a while without a write.
    Quiet,
    /// Killed in the middle of it.
    Killed,
}

/// A data directory and what it holds.
struct Sound {
    disk: MemoryDisk,
    truth: Truth,
    files: Vec<FileInfo>,
    state: Dump,
    end: End,
    options: Options,
}

/// What became of a damaged directory.
#[derive(Debug, PartialEq)]
enum Outcome {
    Damaged {
        file: String,
        offset: u64,
    },
    Refused,
    Same,
    /// The state after an earlier commit.
    Earlier(Revision),
}

impl Sound {
    async fn new(seed: u64, end: End, options: Options, commits_each: u64) -> Sound {
        Sound::with(Load { commits_each, ..Load::new(seed) }, end, options).await
    }

    async fn with(load: Load, end: End, options: Options) -> Sound {
        let disk = MemoryDisk::new();
        let (store, _) = open(disk.clone(), options.clone()).await.expect("a new store");
        let answers = work(&store, &disk, Load { relaxed_in_ten: 0, pauses: end != End::Killed, ..load }).await;
        match end {
            End::Clean => store.close().await,
            End::Quiet => {
                tokio::time::advance(Duration::from_millis(101)).await;
                rest().await;
            }
            End::Killed => {}
        }
        let mut truth = Truth::default();
        answers.tell(&mut truth);
        let disk = disk.copy();
        let files = disk.list().await.expect("files");
        let state = truth.state();
        Sound { disk, truth, files, state, end, options }
    }

    fn last_segment(&self) -> &FileInfo {
        self.files.iter().rfind(|file| file.name.starts_with("segment-")).expect("a segment")
    }

    /// Where the log ends in its last segment.
    async fn log_end(&self) -> usize {
        let bytes = self.disk.read(&self.last_segment().name, 0, usize::MAX).await.expect("the segment");
        bytes.iter().rposition(|byte| *byte != 0).expect("a log") + 1
    }

    /// Opens a copy after a change to one file. A look before opening says the same as opening.
    async fn after(&self, file: &str, change: impl FnOnce(&mut Vec<u8>)) -> Outcome {
        let disk = self.disk.copy();
        disk.corrupt(file, change);
        self.outcome(disk).await
    }

    async fn outcome(&self, disk: MemoryDisk) -> Outcome {
        let seen = verify(&disk, &ByNode, None).await;
        let opened = open(disk, self.options.clone()).await;
        let report = opened.as_ref().map(|(_, report)| report);
        assert_eq!(comparable(seen.as_ref()), comparable(report), "verify and open disagree");
        self.judge(opened)
    }

    fn judge(&self, opened: Result<(Store, Report), OpenError>) -> Outcome {
        match opened {
            Err(OpenError::Damaged { file, offset, why }) => {
                assert!(!why.is_empty());
                Outcome::Damaged { file, offset }
            }
            Err(OpenError::Newer { .. }) => Outcome::Refused,
            Err(other) => panic!("neither read nor damaged: {other}"),
            Ok((store, _)) => {
                let found = dump(&store.snapshot());
                if found == self.state {
                    return Outcome::Same;
                }
                let earlier = self.truth.revisions().find(|revision| self.truth.state_at(*revision) == found);
                Outcome::Earlier(earlier.expect("wrong data was read"))
            }
        }
    }

    /// A change to the bytes of a file is detected or harmless; only the last commit of a killed run may be taken for torn.
    async fn check(&self, file: &str, change: impl FnOnce(&mut Vec<u8>), what: &str) -> Outcome {
        let outcome = self.after(file, change).await;
        match &outcome {
            Outcome::Same | Outcome::Damaged { .. } => {}
            Outcome::Refused => assert_eq!(file, "format", "{what}"),
            Outcome::Earlier(_) => assert!(self.end == End::Killed, "{file} {what}: cut instead of detected"),
        }
        outcome
    }
}

/// What a look and a start must agree on. The revision differs: it depends on the options of who opens.
fn comparable(result: Result<&Report, &OpenError>) -> Result<Report, String> {
    match result {
        Ok(report) => Ok(Report { revision: Revision::ZERO, ..report.clone() }),
        Err(error) => Err(error.to_string()),
    }
}

fn flip(bytes: &mut [u8], bit: usize) {
    bytes[bit / 8] ^= 1 << (bit % 8);
}

fn one_segment() -> Options {
    Options { segment_bytes: 6 * 1024, checkpoint_bytes: 1 << 20, ..small() }
}

#[test]
fn every_flipped_bit_at_the_end_of_a_closed_log_is_detected_or_harmless() {
    run(async {
        let load = Load { writers: 1, commits_each: 5, value_bytes: 900, ..Load::new(1) };
        let sound = Sound::with(load, End::Clean, one_segment()).await;
        let (file, end) = (sound.last_segment().name.clone(), sound.log_end().await);
        let mut detected = 0;
        for bit in end.saturating_sub(4096) * 8..end * 8 {
            let disk = sound.disk.copy();
            disk.corrupt(&file, |bytes| flip(bytes, bit));
            let outcome = sound.judge(open(disk, sound.options.clone()).await);
            assert!(matches!(outcome, Outcome::Same | Outcome::Damaged { .. }), "bit {bit}: {outcome:?}");
            if let Outcome::Damaged { file: named, offset } = outcome {
                assert_eq!(named, file);
                assert!(offset <= bit as u64 / 8, "bit {bit} was blamed on byte {offset}");
                detected += 1;
            }
        }
        assert!(detected > 8 * end.min(4096) * 9 / 10, "only {detected} flips were detected");
    });
}

#[test]
fn a_flip_in_the_last_group_is_detected_once_the_log_was_quiet_and_cut_only_before() {
    run(async {
        for end in [End::Quiet, End::Killed] {
            let load = Load { writers: 1, commits_each: 4, ..Load::new(2) };
            let sound = Sound::with(load, end, one_segment()).await;
            let (file, end) = (sound.last_segment().name.clone(), sound.log_end().await);
            let mut cut = 0;
            for bit in 64 * 8..end * 8 {
                let outcome = sound.check(&file, |bytes| flip(bytes, bit), &format!("bit {bit}")).await;
                cut += usize::from(matches!(outcome, Outcome::Earlier(_)));
            }
            assert_eq!(cut > 0, sound.end == End::Killed);
        }
    });
}

#[test]
fn random_flips_anywhere_are_detected_or_harmless() {
    for seed in seeds(4) {
        run(async {
            let sound = Sound::new(seed, End::Clean, small(), 30).await;
            let mut rng = StdRng::seed_from_u64(seed);
            let mut detected = 0;
            for _ in 0..500 {
                let file = &sound.files[rng.random_range(0..sound.files.len())];
                let bit = rng.random_range(0..file.length as usize * 8);
                let what = format!("seed {seed} bit {bit}");
                let outcome = sound.check(&file.name, |bytes| flip(bytes, bit), &what).await;
                detected += usize::from(outcome != Outcome::Same);
            }
            assert!(detected > 100, "only {detected} were detected");
        });
    }
}

/// Zeroes that reach the end of the log look like a log that ends there: what a disk that never got the bytes would show.
#[test]
fn zeroed_pages_are_detected_unless_they_are_the_end_of_the_log() {
    for seed in seeds(3) {
        run(async {
            let sound = Sound::new(seed, End::Clean, small(), 30).await;
            let (last, log_end) = (sound.last_segment().name.clone(), sound.log_end().await);
            for file in &sound.files {
                for page in 0..(file.length as usize).div_ceil(512) {
                    let range = page * 512..((page + 1) * 512).min(file.length as usize);
                    let outcome = sound.after(&file.name, |bytes| bytes[range.clone()].fill(0)).await;
                    if let Outcome::Earlier(_) = outcome {
                        assert!(file.name == last && range.end >= log_end, "{} {range:?}: {outcome:?}", file.name);
                    }
                }
            }
        });
    }
}

#[test]
fn a_missing_segment_or_checkpoint_is_detected() {
    for seed in seeds(4) {
        run(async {
            let sound = Sound::new(seed, End::Clean, Options { checkpoint_bytes: 1 << 13, ..small() }, 30).await;
            let last = sound.last_segment().name.clone();
            let segments = sound.files.iter().filter(|file| file.name.starts_with("segment-")).count();
            for file in &sound.files {
                // Nothing after the last segment tells that there was one, unless the checkpoint does.
                if file.name == "format" || file.name == last && segments > 1 {
                    continue;
                }
                let disk = sound.disk.copy();
                disk.lose(&file.name);
                let outcome = sound.outcome(disk).await;
                assert!(matches!(outcome, Outcome::Damaged { .. }), "without {}: {outcome:?}", file.name);
            }
        });
    }
}

#[test]
fn the_segment_that_a_checkpoint_begins_with_is_missed() {
    run(async {
        let mut tried = 0;
        for seed in 0..8 {
            let sound = Sound::new(seed, End::Clean, small(), 20 + seed).await;
            let segments: Vec<_> = sound.files.iter().filter(|file| file.name.starts_with("segment-")).collect();
            let [only] = segments.as_slice() else { continue };
            let disk = sound.disk.copy();
            disk.lose(&only.name);
            let outcome = sound.outcome(disk).await;
            assert_eq!(outcome, Outcome::Damaged { file: only.name.clone(), offset: 0 });
            tried += 1;
        }
        assert!(tried > 0, "no run ended right behind a checkpoint");
    });
}

#[test]
fn swapped_and_foreign_segments_are_detected() {
    run(async {
        let options = Options { checkpoint_bytes: 1 << 20, ..small() };
        let sound = Sound::new(3, End::Clean, options.clone(), 30).await;
        let foreign = Sound::new(3, End::Clean, Options { identity: [9; 16], ..options }, 30).await;
        let segments: Vec<_> = sound.files.iter().filter(|file| file.name.starts_with("segment-")).collect();
        assert!(segments.len() > 3);
        let mut contents = Vec::new();
        for file in &segments {
            contents.push(sound.disk.read(&file.name, 0, usize::MAX).await.expect("a segment"));
            let other = foreign.disk.read(&file.name, 0, usize::MAX).await.expect("the same segment of another store");
            let outcome = sound.after(&file.name, |bytes| *bytes = other).await;
            assert_eq!(outcome, Outcome::Damaged { file: file.name.clone(), offset: 0 });
        }
        for (i, left) in segments.iter().enumerate() {
            for (j, right) in segments.iter().enumerate().filter(|(j, _)| *j > i) {
                let disk = sound.disk.copy();
                disk.corrupt(&left.name, |bytes| bytes.clone_from(&contents[j]));
                disk.corrupt(&right.name, |bytes| bytes.clone_from(&contents[i]));
                let outcome = sound.outcome(disk).await;
                assert_eq!(outcome, Outcome::Damaged { file: left.name.clone(), offset: 0 });
            }
        }
    });
}

#[test]
fn a_checkpoint_or_format_cut_anywhere_is_detected() {
    run(async {
        let sound = Sound::new(4, End::Clean, small(), 30).await;
        let whole = |file: &&FileInfo| !file.name.starts_with("segment-");
        for file in sound.files.iter().filter(whole) {
            for length in 0..file.length as usize {
                let outcome = sound.after(&file.name, |bytes| bytes.truncate(length)).await;
                let Outcome::Damaged { file: named, offset } = outcome else {
                    panic!("{} cut to {length}: {outcome:?}", file.name)
                };
                assert_eq!(named, file.name);
                assert!(offset <= length as u64, "cut to {length} and blamed on byte {offset}");
            }
        }
    });
}

#[test]
fn a_segment_before_the_last_cut_anywhere_is_detected() {
    run(async {
        let sound = Sound::new(5, End::Clean, Options { checkpoint_bytes: 1 << 20, ..small() }, 20).await;
        let last = sound.last_segment().name.clone();
        let mut rng = StdRng::seed_from_u64(5);
        for file in sound.files.iter().filter(|file| file.name.starts_with("segment-") && file.name != last) {
            for _ in 0..50 {
                let length = rng.random_range(0..file.length as usize);
                let outcome = sound.after(&file.name, |bytes| bytes.truncate(length)).await;
                // What is cut may be only the reserved rest behind the log's end.
                assert!(!matches!(outcome, Outcome::Earlier(_)), "{} cut to {length}: {outcome:?}", file.name);
            }
        }
    });
}
