//! Objects of chosen resources can't be read on the disk, and come back whole.

mod support;

use std::sync::Arc;

use setpoint_api::kind::GroupResource;
use setpoint_store::{
    Change, Disk, Expectation, MemoryDisk, OpenError, Options, Seal, Store, Transaction, backup, restore, verify,
};
use support::{ByNode, json, open, pod, pods, run, small};

const CANARY: &str = "canary-in-the-mine";

/// No cipher, but it hides what is there and knows where it belongs.
#[derive(Debug)]
struct Mask(u8);

impl Seal for Mask {
    fn covers(&self, resource: &GroupResource) -> bool {
        *resource == pods()
    }

    fn seal(&self, place: &[u8], plain: &[u8]) -> Vec<u8> {
        let whole = [&[self.0], place, &[0], plain].concat();
        whole.iter().map(|byte| byte ^ 0x5a).collect()
    }

    fn open(&self, place: &[u8], sealed: &[u8]) -> Result<Vec<u8>, String> {
        let whole: Vec<u8> = sealed.iter().map(|byte| byte ^ 0x5a).collect();
        let start = [&[self.0], place, &[0]].concat();
        whole.strip_prefix(start.as_slice()).map(<[u8]>::to_vec).ok_or_else(|| "not with this key".to_owned())
    }
}

fn masked(key: u8) -> Options {
    Options { seal: Some(Arc::new(Mask(key))), ..small() }
}

async fn put(store: &Store, name: &str) {
    let key = pod("red", name);
    let json = json(&key, "red", "n", CANARY);
    let change = Change::put(key, Expectation::Any, json, &ByNode).expect("an object");
    store.commit(Transaction::of(change)).await.expect("committed");
}

/// The files that have the canary in them.
async fn betrayed(disk: &MemoryDisk) -> Vec<String> {
    let mut found = Vec::new();
    for file in disk.list().await.expect("files") {
        let bytes = disk.read(&file.name, 0, file.length as usize).await.expect("read");
        if bytes.windows(CANARY.len()).any(|window| window == CANARY.as_bytes()) {
            found.push(file.name);
        }
    }
    found
}

fn value(store: &Store, name: &str) -> bool {
    let found = store.snapshot().get(&pods(), Some("red"), name).expect("it is there");
    support::text(&found).contains(CANARY)
}

#[test]
fn what_is_sealed_is_nowhere_on_the_disk_and_comes_back() {
    run(async {
        let disk = MemoryDisk::new();
        let (store, _) = open(disk.clone(), masked(1)).await.expect("a new store");
        for n in 0..100 {
            put(&store, &format!("p{n}")).await;
        }
        store.rewrite().await.expect("rewritten");
        put(&store, "last").await;
        assert!(store.figures().checkpoints >= 1);
        backup(&store.snapshot(), &disk, "saved", Some(&Mask(1))).await.expect("saved");
        store.close().await;
        assert_eq!(betrayed(&disk).await, Vec::<String>::new());

        let target = MemoryDisk::new();
        let without = restore(&disk, "saved", &target, [5; 16], &ByNode, None).await;
        assert!(matches!(without, Err(OpenError::Sealed(_))), "{without:?}");
        restore(&disk, "saved", &target, [5; 16], &ByNode, Some(&Mask(1))).await.expect("restored");
        assert_eq!(betrayed(&target).await, Vec::<String>::new());
        for disk in [disk, target] {
            let (store, report) = open(disk, masked(1)).await.expect("it opens");
            assert_eq!((report.objects, report.unsealed), (101, 0));
            assert!(value(&store, "p0") && value(&store, "last"));
        }
    });
}

#[test]
fn without_its_key_a_store_stays_closed_but_can_be_checked() {
    run(async {
        let disk = MemoryDisk::new();
        let (store, _) = open(disk.clone(), masked(1)).await.expect("a new store");
        put(&store, "a").await;
        store.close().await;
        for options in [small(), masked(2)] {
            let before = disk.operations();
            match open(disk.clone(), options).await {
                Err(OpenError::Sealed(why)) => assert!(why.contains("pods red/a"), "{why}"),
                other => panic!("{:?}", other.map(|(_, report)| report)),
            }
            assert_eq!(disk.operations(), before, "something was written");
        }
        assert_eq!(verify(&disk, &ByNode, None).await.expect("sound").objects, 1);
        assert!(matches!(verify(&disk, &ByNode, Some(Arc::new(Mask(2)))).await, Err(OpenError::Sealed(_))));
    });
}

#[test]
fn what_was_written_plain_is_sealed_once_it_is_written_anew() {
    run(async {
        let disk = MemoryDisk::new();
        let (store, _) = open(disk.clone(), small()).await.expect("a new store");
        put(&store, "a").await;
        put(&store, "b").await;
        store.close().await;
        assert!(!betrayed(&disk).await.is_empty());

        let (store, report) = open(disk.clone(), masked(1)).await.expect("it opens");
        assert_eq!(report.unsealed, 2);
        store.rewrite().await.expect("rewritten");
        assert!(value(&store, "a"));
        store.close().await;
        assert_eq!(betrayed(&disk).await, Vec::<String>::new());
        let (store, report) = open(disk, masked(1)).await.expect("it opens");
        assert_eq!((report.objects, report.unsealed, report.clean), (2, 0, true));
        assert!(value(&store, "b"));
    });
}
