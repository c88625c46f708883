//! The data directory: whose it is, who may use it, and how to take it elsewhere.

mod support;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use setpoint_api::Revision;
use setpoint_store::{
    Disk, Expectation, FORMAT, Fault, MemoryDisk, OpenError, RESTORE_JUMP, RealDisk, Store, Transaction, WatchError,
    WatchRequest, backup, restore, verify,
};
use support::truth::Truth;
use support::workload::{Load, work};
use support::{ByNode, dump, open, pod, pods, put, rest, run, selection, small};

async fn write_file(disk: &MemoryDisk, name: &str, content: &str) {
    disk.create(name, 0).await.expect("created");
    disk.write(name, 0, Bytes::from(content.to_owned())).await.expect("written");
}

async fn commit(store: &Store, name: &str) -> Revision {
    let change = put(&pod("red", name), Expectation::Any, name);
    store.commit(Transaction::of(change)).await.expect("committed").revision
}

#[test]
fn a_directory_is_opened_by_one_at_a_time() {
    run(async {
        let disk = MemoryDisk::new();
        let (store, _) = open(disk.clone(), small()).await.expect("the first");
        assert!(matches!(open(disk.clone(), small()).await, Err(OpenError::Locked)));
        assert!(matches!(verify(&disk, &ByNode, None).await, Err(OpenError::Locked)));
        store.close().await;
        open(disk, small()).await.expect("the first has closed it");
    });
}

#[test]
fn a_store_that_failed_gives_its_directory_back() {
    run(async {
        let disk = MemoryDisk::new();
        let (store, _) = open(disk.clone(), small()).await.expect("the first");
        disk.fail(1, Fault::Error(std::io::ErrorKind::Other));
        let change = put(&pod("red", "a"), Expectation::Any, "a");
        store.commit(Transaction::of(change)).await.expect_err("the disk fails");
        rest().await;
        open(disk, small()).await.expect("the first has given up");
    });
}

#[test]
fn a_newer_format_and_a_foreign_directory_are_refused_with_a_clear_message() {
    run(async {
        for (file, content, message) in [
            (
                "format",
                r#"{"format":2,"store":"00000000000000000000000000000000"}"#,
                "the data directory has format 2, written by a newer version; this version reads up to 1",
            ),
            (
                "thesis.doc",
                "years of work",
                "the data directory is not empty and not ours: it has a file \"thesis.doc\" and no \"format\"",
            ),
            (
                "format",
                "png",
                "the data directory is damaged: format at byte 0: not the format file of a data directory; restore a backup",
            ),
            (
                "format",
                r#"{"format":1,"store":"someone"}"#,
                "the data directory is damaged: format at byte 0: it does not name its store; restore a backup",
            ),
        ] {
            let disk = MemoryDisk::new();
            write_file(&disk, file, content).await;
            let operations = disk.operations();
            let Err(error) = open(disk.clone(), small()).await else { panic!("{file} {content} was opened") };
            assert_eq!(error.to_string(), message);
            assert_eq!(disk.operations(), operations, "a refused directory was changed");
        }
        assert_eq!(FORMAT, 1, "the messages above speak of format 1");
    });
}

#[test]
fn an_empty_directory_is_not_called_sound() {
    run(async {
        let disk = MemoryDisk::new();
        assert!(matches!(verify(&disk, &ByNode, None).await, Err(OpenError::Foreign(_))));
        assert_eq!(disk.operations(), 0);
    });
}

fn mode(path: &Path) -> u32 {
    path.metadata().expect("it is there").permissions().mode() & 0o777
}

/// A runtime for the real disk, whose work is done by other threads.
fn run_for_real<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime").block_on(future)
}

#[test]
fn on_a_real_disk_only_the_owner_can_read() {
    let parent = tempfile::tempdir().expect("a directory");
    let directory = parent.path().join("data");
    run_for_real(async {
        let disk = RealDisk::new(&directory).expect("a disk");
        let (store, _) = open(disk, small()).await.expect("a new store");
        for n in 0..60 {
            commit(&store, &format!("o{n}")).await;
        }
        backup(&store.snapshot(), &RealDisk::new(&directory).expect("the disk"), "saved", None)
            .await
            .expect("a backup");
        assert_eq!(mode(&directory), 0o700);
        let files: Vec<_> =
            std::fs::read_dir(&directory).expect("files").map(|file| file.expect("a file").path()).collect();
        assert!(files.len() >= 4, "{files:?}");
        for file in files {
            assert_eq!(mode(&file), 0o600, "{file:?}");
        }
        store.close().await;
    });
}

#[test]
fn on_a_real_disk_the_lock_is_exclusive_and_a_wide_open_directory_is_closed() {
    let parent = tempfile::tempdir().expect("a directory");
    let directory = parent.path().join("data");
    std::fs::create_dir(&directory).expect("made");
    std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o755)).expect("opened");
    run_for_real(async {
        let (store, _) = open(RealDisk::new(&directory).expect("a disk"), small()).await.expect("the first");
        assert_eq!(mode(&directory), 0o700);
        let second = open(RealDisk::new(&directory).expect("a disk"), small()).await;
        assert!(matches!(second, Err(OpenError::Locked)));
        let revision = commit(&store, "kept").await;
        store.close().await;
        let (store, report) =
            open(RealDisk::new(&directory).expect("a disk"), small()).await.expect("the first has closed it");
        assert!(report.clean && report.revision == revision);
        assert!(store.snapshot().get(&pods(), Some("red"), "kept").is_some());
    });
}

#[test]
fn a_backup_taken_while_others_write_restores_to_the_same_objects_at_a_later_revision() {
    run(async {
        let disk = MemoryDisk::new();
        let (store, _) = open(disk.clone(), small()).await.expect("a new store");
        let mut truth = Truth::default();
        work(&store, &disk, Load::new(1)).await.tell(&mut truth);
        let snapshot = store.snapshot();
        let elsewhere = Arc::new(MemoryDisk::new());
        let saving = {
            let (snapshot, elsewhere) = (snapshot.clone(), Arc::clone(&elsewhere));
            tokio::spawn(async move { backup(&snapshot, &*elsewhere, "saved", None).await })
        };
        let during = work(&store, &disk, Load::new(2)).await;
        assert!(!during.acknowledged.is_empty());
        let size = saving.await.expect("no panic").expect("saved");
        assert_eq!(size, elsewhere.list().await.expect("files")[0].length);

        let target = MemoryDisk::new();
        let report = restore(&*elsewhere, "saved", &target, [5; 16], &ByNode, None).await.expect("restored");
        let jumped = Revision::new(snapshot.revision().get() + RESTORE_JUMP);
        assert_eq!((report.revision, report.objects, report.clean), (jumped, truth.state().len(), true));
        let seen = verify(&target, &ByNode, None).await.expect("sound");
        assert_eq!((seen.revision, seen.objects, seen.clean), (jumped, truth.state().len(), true));

        let (restored, _) = open(target.clone(), small()).await.expect("it opens");
        assert_eq!(dump(&restored.snapshot()), truth.state(), "objects and their resourceVersions are the same");
        for old in [1, snapshot.revision().get(), jumped.get() - 1] {
            let from = Revision::new(old);
            let request = WatchRequest { resource: pods(), namespace: None, selection: selection("", ""), from };
            assert!(matches!(restored.watch(request), Err(WatchError::Expired(_))), "{old}");
            assert!(restored.snapshot_at(&pods(), from).is_err(), "{old}");
        }
        assert!(commit(&restored, "new").await > jumped);
        let again = restore(&*elsewhere, "saved", &target.copy(), [5; 16], &ByNode, None).await;
        assert!(matches!(again, Err(OpenError::Foreign(_))), "a directory in use was overwritten");
    });
}

#[test]
fn a_damaged_backup_and_a_checkpoint_are_not_restored() {
    run(async {
        let disk = MemoryDisk::new();
        let (store, _) = open(disk.clone(), small()).await.expect("a new store");
        work(&store, &disk, Load::new(3)).await;
        let saved = MemoryDisk::new();
        let size = backup(&store.snapshot(), &saved, "saved", None).await.expect("saved") as usize;
        for byte in (0..size).step_by(7) {
            let broken = saved.copy();
            broken.corrupt("saved", |bytes| bytes[byte] ^= 0x10);
            let target = MemoryDisk::new();
            let result = restore(&broken, "saved", &target, [5; 16], &ByNode, None).await;
            assert!(matches!(result, Err(OpenError::Damaged { .. })), "byte {byte}: {result:?}");
            assert_eq!(target.operations(), 0, "something was written before the backup was checked");
        }
        store.close().await;
        let files = disk.list().await.expect("files");
        let checkpoint = files.iter().find(|file| file.name.starts_with("checkpoint-")).expect("a checkpoint");
        let result = restore(&disk, &checkpoint.name, &MemoryDisk::new(), [5; 16], &ByNode, None).await;
        assert!(matches!(result, Err(OpenError::Damaged { why, .. }) if why == "it is not a backup"));
    });
}

#[test]
fn the_report_tells_what_was_found() {
    run(async {
        let disk = MemoryDisk::new();
        let (store, report) = open(disk.clone(), small()).await.expect("a new store");
        assert_eq!((report.revision, report.objects, report.clean), (Revision::ZERO, 0, true));
        for name in ["a", "b", "c"] {
            commit(&store, name).await;
        }
        let killed = verify(&disk.copy(), &ByNode, None).await.expect("sound");
        assert_eq!((killed.objects, killed.commits, killed.segments, killed.clean), (3, 3, 1, false));
        assert!(killed.revision > Revision::new(3), "a kill may have lost revisions: they are passed over");
        tokio::time::advance(Duration::from_millis(101)).await;
        store.close().await;
        let closed = verify(&disk, &ByNode, None).await.expect("sound");
        assert_eq!((closed.objects, closed.commits, closed.segments, closed.clean), (3, 3, 1, true));
        assert_eq!((closed.revision, closed.checkpoint_objects, closed.torn), (Revision::new(3), 0, None));
    });
}
