//! What the store holds and does.

use setpoint_store::Store;

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
    out.family("setpoint_store_revision", "gauge", "The newest revision.");
    out.sample("", &[], snapshot.revision());
    out.family("setpoint_store_memory_bytes", "gauge", "Memory behind all objects.");
    out.sample("", &[], snapshot.memory());
}
