//! What the store holds and does.

use setpoint_store::{EtcdFigures, Store};

use setpoint_api::metrics::Exposition;

/// Writes the store's figures.
pub(super) fn write(store: &Store, out: &mut Exposition) {
    let snapshot = store.snapshot();
    let counts = snapshot.counts();
    out.family("apiserver_resource_objects", "gauge", "Stored objects by kind.");
    for (resource, count) in &counts {
        out.sample("", &[("group", &*resource.group), ("resource", &*resource.resource)], count);
    }
    out.family(
        "apiserver_storage_objects",
        "gauge",
        "Stored objects by kind. Deprecated: use apiserver_resource_objects.",
    );
    for (resource, count) in &counts {
        out.sample("", &[("resource", &resource.to_string())], count);
    }
    let figures = store.figures();
    let totals = [
        ("setpoint_store_commits_total", "Transactions committed.", figures.commits),
        ("setpoint_store_written_bytes_total", "Bytes written to the log.", figures.bytes_written),
        ("setpoint_store_syncs_total", "Times that the log was synced to the disk.", figures.syncs),
        ("setpoint_store_checkpoints_total", "Checkpoints written.", figures.checkpoints),
    ];
    for (name, help, value) in totals {
        out.family(name, "counter", help);
        out.sample("", &[], value);
    }
    if let Some(etcd) = store.etcd() {
        write_etcd(&etcd, out);
    }
    out.family("setpoint_store_revision", "gauge", "The newest revision.");
    out.sample("", &[], snapshot.revision());
    out.family("setpoint_store_memory_bytes", "gauge", "Memory behind all objects.");
    out.sample("", &[], snapshot.memory());
}

/// Writes how the etcd behind the store is.
fn write_etcd(etcd: &EtcdFigures, out: &mut Exposition) {
    let gauges = [
        ("setpoint_etcd_reachable", "Whether etcd answered when it was last asked.", u64::from(etcd.reachable)),
        ("setpoint_etcd_database_bytes", "Size of the database of the member in use.", etcd.database_bytes),
        (
            "setpoint_etcd_database_in_use_bytes",
            "Of these, what is in use; the rest goes with a defragmentation.",
            etcd.database_bytes_in_use,
        ),
    ];
    for (name, help, value) in gauges {
        out.family(name, "gauge", help);
        out.sample("", &[], value);
    }
    out.family("setpoint_etcd_alarms", "gauge", "Alarms that etcd has raised.");
    for alarm in ["NOSPACE", "CORRUPT"] {
        out.sample("", &[("alarm", alarm)], u64::from(etcd.alarms.contains(&alarm)));
    }
    let counters = [
        (
            "setpoint_etcd_feed_starts_total",
            "Times that the watch of etcd has begun, the first one included.",
            etcd.feed_starts,
        ),
        (
            "setpoint_etcd_resolved_writes_total",
            "Lost answers to writes whose outcome had to be found out.",
            etcd.resolved_writes,
        ),
    ];
    for (name, help, value) in counters {
        out.family(name, "counter", help);
        out.sample("", &[], value);
    }
}
