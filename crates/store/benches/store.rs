//! Figures of the store on a real disk, one line each. Run by `make bench`.
//!
//! Everything happens in one process: what is measured is the store, without HTTP. Objects are ConfigMaps of about 1 KB. Data
//! goes to a directory in the current one, so that a temporary file system in memory does not flatter the figures.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use setpoint_api::labels;
use setpoint_api::{GroupResource, Revision};
use setpoint_store::{
    Change, Expectation, Key, NoFields, Options, Query, RealDisk, Selection, Store, Transaction, WatchRequest,
};

const PAYLOAD: usize = 820;

/// The argument with which this program starts itself to measure a start from disk in a fresh process.
const RECOVER: &str = "--recover=";

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    if let Some(path) = std::env::args().find_map(|argument| argument.strip_prefix(RECOVER).map(str::to_owned)) {
        return runtime.block_on(recover(&path));
    }
    runtime.block_on(async {
        if wanted("commits") {
            for writers in [1, 16, 64, 256] {
                commits(writers).await;
            }
        }
        if wanted("fan-out") {
            fan_out(1_000).await;
        }
        if wanted("lists") {
            lists(300_000).await;
        }
        if wanted("recovery") {
            for objects in [100_000, 1_000_000] {
                recovery(objects).await;
            }
        }
    });
}

/// Whether a benchmark was asked for by name; without a name all are.
fn wanted(name: &str) -> bool {
    let mut names = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).peekable();
    names.peek().is_none() || names.any(|asked| asked == name)
}

fn resource() -> GroupResource {
    GroupResource::new("", "configmaps")
}

fn put(name: &str, number: u64) -> Transaction {
    let payload = "x".repeat(PAYLOAD);
    let json = format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}","namespace":"bench","uid":"00000000-0000-0000-0000-{number:012}","labels":{{"app":"bench","shard":"s{}"}}}},"data":{{"payload":"{payload}"}}}}"#,
        number % 100
    );
    let key = Key::namespaced(resource(), "bench", name);
    Transaction::of(Change::put(key, Expectation::Any, json.into_bytes(), &NoFields).expect("a sound object"))
}

async fn open(directory: &tempfile::TempDir) -> Store {
    open_at(directory.path()).await
}

async fn open_at(path: &std::path::Path) -> Store {
    let disk = RealDisk::new(path).expect("a directory");
    let options = Options { identity: *b"benchmark-store!", ..Options::default() };
    Store::open(Arc::new(disk), Arc::new(NoFields), options).await.expect("an empty directory").0
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(".").expect("a writable directory")
}

fn percentile(sorted: &[Duration], share: f64) -> Duration {
    sorted[((sorted.len() - 1) as f64 * share) as usize]
}

async fn commits(writers: usize) {
    let directory = directory();
    let store = open(&directory).await;
    let run = Duration::from_secs(4);
    let cpu = cpu_time();
    let start = Instant::now();
    let reads = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for writer in 0..writers {
        let store = store.clone();
        tasks.push(tokio::spawn(async move {
            let mut times = Vec::new();
            let mut number = 0;
            while start.elapsed() < run {
                let transaction = put(&format!("w{writer}-{number}"), number);
                let begin = Instant::now();
                store.commit(transaction).await.expect("a commit");
                times.push(begin.elapsed());
                number += 1;
            }
            times
        }));
    }
    let reader = {
        let (store, reads) = (store.clone(), Arc::clone(&reads));
        tokio::spawn(async move {
            let mut slowest = Duration::ZERO;
            while start.elapsed() < run {
                let begin = Instant::now();
                std::hint::black_box(store.snapshot().get(&resource(), Some("bench"), "w0-0"));
                slowest = slowest.max(begin.elapsed());
                reads.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            slowest
        })
    };
    let mut times = Vec::new();
    for task in tasks {
        times.extend(task.await.expect("a writer"));
    }
    let seconds = start.elapsed().as_secs_f64();
    let cpu = cpu_time() - cpu;
    let slowest_read = reader.await.expect("the reader");
    times.sort();
    let figures = store.figures();
    println!(
        "commit, {writers:>3} writers: {:>8.0} commits/s, {:>6.0} syncs/s, {:>5.0} bytes written per object, {:.1} µs of CPU each, p50 {:?}, p99 {:?}; slowest of {} reads beside it {:?}",
        times.len() as f64 / seconds,
        figures.syncs as f64 / seconds,
        figures.bytes_written as f64 / figures.commits as f64,
        cpu.as_secs_f64() * 1e6 / times.len() as f64,
        percentile(&times, 0.5),
        percentile(&times, 0.99),
        reads.load(Ordering::Relaxed),
        slowest_read,
    );
    store.close().await;
}

async fn fan_out(watchers: usize) {
    let directory = directory();
    let store = open(&directory).await;
    let events = 2_000u64;
    let mut tasks = Vec::new();
    for _ in 0..watchers {
        let request = WatchRequest {
            resource: resource(),
            namespace: Some("bench".into()),
            selection: Selection::everything(),
            from: Revision::ZERO,
        };
        let mut watcher = store.watch(request).expect("a watch");
        tasks.push(tokio::spawn(async move {
            let (mut seen, mut wakes, mut buffer) = (0, 0u64, Vec::new());
            while seen < events {
                let batch = watcher.next().await.expect("events");
                wakes += 1;
                buffer.clear();
                batch.iter().for_each(|event| event.write_json(&mut buffer));
                seen += batch.len() as u64;
            }
            wakes
        }));
    }
    let cpu = cpu_time();
    let start = Instant::now();
    for number in 0..events {
        store.commit(put(&format!("o{number}"), number)).await.expect("a commit");
    }
    let mut wakes = 0;
    for task in tasks {
        wakes += task.await.expect("a watcher");
    }
    let (seconds, cpu) = (start.elapsed().as_secs_f64(), cpu_time() - cpu);
    let delivered = events as f64 * watchers as f64;
    println!(
        "fan-out, 1 writer to {watchers} watchers: {:.0} events/s, {:.2} µs of CPU per event, {:.1} events per wake-up",
        delivered / seconds,
        cpu.as_secs_f64() * 1e6 / delivered,
        delivered / wakes as f64
    );
    store.close().await;
}

async fn fill(store: &Store, objects: u64) {
    let mut tasks = Vec::new();
    for part in 0..256 {
        let store = store.clone();
        tasks.push(tokio::spawn(async move {
            for number in (part..objects).step_by(256) {
                store.commit(put(&format!("o{number:07}"), number)).await.expect("a commit");
            }
        }));
    }
    for task in tasks {
        task.await.expect("a writer");
    }
}

async fn lists(objects: u64) {
    let directory = directory();
    let store = open(&directory).await;
    fill(&store, objects).await;
    let resource = resource();
    for (what, selector) in [("no match", "app=other"), ("1 of 100", "shard=s7"), ("all", "app=bench")] {
        let labels = labels::Selector::parse(selector).expect("a selector");
        let selection = Selection::new(labels, setpoint_api::fields::Selector::everything());
        let mut times = Vec::new();
        let (mut found, mut bytes) = (0, 0);
        for _ in 0..7 {
            let start = Instant::now();
            let query = Query { resource: &resource, namespace: None, selection: &selection, after: None, limit: None };
            let page = store.snapshot().list(&query);
            times.push(start.elapsed());
            found = page.items.len();
            bytes = page.items.iter().map(|object| object.json().len()).sum::<usize>();
        }
        times.sort();
        println!("list of {objects} by label, {what}: {:?} for {found} objects, {} MB", times[3], bytes / 1_000_000);
    }
    store.close().await;
}

async fn recovery(objects: u64) {
    let directory = directory();
    let store = open(&directory).await;
    fill(&store, objects).await;
    store.close().await;
    drop(store);
    let program = std::env::current_exe().expect("this program");
    let child = std::process::Command::new(program).arg(format!("{RECOVER}{}", directory.path().display())).status();
    assert!(child.is_ok_and(|status| status.success()), "the recovery failed");
}

/// Opens a filled directory in this process, which has done nothing else.
async fn recover(path: &str) {
    let path = std::path::Path::new(path);
    let (disk, before) = (on_disk(path), resident());
    let start = Instant::now();
    let store = open_at(path).await;
    let elapsed = start.elapsed();
    let memory = resident() - before;
    let (resource, selection) = (resource(), Selection::everything());
    let query = Query { resource: &resource, namespace: None, selection: &selection, after: None, limit: None };
    let items = store.snapshot().list(&query).items;
    let objects = items.len() as u64;
    let json: u64 = items.iter().map(|object| object.json().len() as u64).sum();
    println!(
        "recovery of {objects} objects: {elapsed:?}, {} MB on disk; memory per object: its JSON of {} bytes + {} by resident size",
        disk / 1_000_000,
        json / objects,
        memory.saturating_sub(json) / objects,
    );
    store.close().await;
}

fn on_disk(path: &std::path::Path) -> u64 {
    let files = std::fs::read_dir(path).expect("the directory").filter_map(Result::ok);
    files.filter_map(|file| file.metadata().ok()).map(|metadata| metadata.len()).sum()
}

/// Resident bytes of this process.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}

/// User and system time of this process.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    Duration::from_millis((ticks(11) + ticks(12)) * 10)
}
