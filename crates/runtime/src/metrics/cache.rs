//! What caches hold and how far they have come, under client-go's names where it has any.

use std::fmt::Display;

use setpoint_api::metrics::Exposition;

use crate::cache::{CacheFigures, Informers, Target};

/// What a floating point number, which Prometheus has, tells apart. Same as client-go.
const EXACT: u64 = 1_000_000_000_000_000;

pub(super) fn write(informers: &Informers, out: &mut Exposition) {
    let all = informers.figures();
    let version = "The last 15 digits of the resource version that the cache has reached.";
    each(&all, "informer_store_resource_version", "gauge", version, out, |it| {
        it.progress.resource_version.parse::<u64>().unwrap_or_default() % EXACT
    });
    let queued = "Objects of a list that have come and are not in the cache yet.";
    each(&all, "informer_queued_items", "gauge", queued, out, |it| it.counts.queued.value());
    let processing = "Seconds that it took to put changes into the cache and to tell of them.";
    out.family("informer_processing_latency_seconds", "histogram", processing);
    labelled(&all, |labels, it| it.counts.processing.write(labels, out));
    let watches = "Watches that were opened.";
    each(&all, "informer_watches_total", "counter", watches, out, |it| it.counts.watches.value());
    let short = "Watches that ended within a second without an event.";
    each(&all, "informer_short_watches_total", "counter", short, out, |it| it.counts.short_watches.value());
    let failures = "How often the server could not be followed.";
    each(&all, "informer_failures_total", "counter", failures, out, |it| it.counts.failures.value());
    each(&all, "informer_synced", "gauge", "1 once the first list is in the cache.", out, |it| {
        u8::from(it.progress.synced)
    });
    each(&all, "informer_lists_total", "counter", "Lists that filled the cache.", out, |it| it.progress.lists);
    let changes = "Objects added, changed and deleted.";
    each(&all, "informer_changes_total", "counter", changes, out, |it| it.progress.changes);
    each(&all, "informer_objects", "gauge", "Objects in the cache.", out, |it| it.memory.objects);
    each(&all, "informer_bytes", "gauge", "Memory of the objects in the cache, estimated.", out, |it| it.memory.bytes);
}

fn each<V: Display>(
    all: &[CacheFigures],
    family: &'static str,
    kind: &str,
    help: &str,
    out: &mut Exposition,
    value: impl Fn(&CacheFigures) -> V,
) {
    out.family(family, kind, help);
    labelled(all, |labels, figures| out.sample("", labels, value(figures)));
}

fn labelled(all: &[CacheFigures], mut write: impl FnMut(&[(&str, &str)], &CacheFigures)) {
    let mut names: Vec<String> = Vec::new();
    for figures in all {
        let target = &figures.target;
        let (group, version) = target.api_version.rsplit_once('/').unwrap_or(("", &target.api_version));
        let name = name_of(target, &names);
        let labels = [("name", &*name), ("group", group), ("version", version), ("resource", &target.plural)];
        write(&labels, figures);
        names.push(name);
    }
}

/// What is followed. Several views of the same objects are told apart by a number.
fn name_of(target: &Target, taken: &[String]) -> String {
    let selectors: Vec<&str> =
        [&target.label_selector, &target.field_selector].into_iter().flatten().map(String::as_str).collect();
    let name = format!("{} {}", target.path, selectors.join(" "));
    let name = name.trim_end();
    let views = taken.iter().filter(|known| known.split(" #").next() == Some(name)).count();
    if views == 0 { name.to_owned() } else { format!("{name} #{}", views + 1) }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::PartialObjectMeta;

    use super::*;
    use crate::clock::Chance;
    use crate::fake_api::{FakeApi, config_map, pass};
    use crate::metrics::Metrics;

    #[tokio::test(start_paused = true)]
    async fn caches_tell_what_they_hold_each_under_its_own_name() {
        let api = FakeApi::default();
        api.put("configmaps", config_map("a", "1"));
        let version = api.put("configmaps", config_map("b", "2"));
        let informers = Informers::new(api.client(), &Chance::seeded(1));
        let maps = informers.all::<ConfigMap>();
        let target = Target::of::<ConfigMap>(&(), None).labels("app=web");
        let _ = (informers.of::<ConfigMap>(target.clone()), informers.of::<PartialObjectMeta<ConfigMap>>(target));
        let following = maps.clone();
        let following = tokio::spawn(async move { following.run_until(std::future::pending()).await });
        maps.until_synced().await;
        let version = api.put("configmaps", config_map("b", "3")).max(version);
        pass(std::time::Duration::from_secs(1)).await;
        let metrics = Metrics::new();
        metrics.caches(informers);
        let text = metrics.text();
        let labels = |name: &str| format!("{{name=\"{name}\",group=\"\",version=\"v1\",resource=\"configmaps\"}}");
        let all = labels("/api/v1/configmaps");
        for line in [
            format!("informer_store_resource_version{all} {version}"),
            format!("informer_synced{all} 1"),
            format!("informer_objects{all} 2"),
            format!("informer_queued_items{all} 0"),
            format!("informer_watches_total{all} 1"),
            // The first list, and a change.
            format!("informer_processing_latency_seconds_count{all} 2"),
            format!("informer_synced{} 0", labels("/api/v1/configmaps app=web")),
            format!("informer_synced{} 0", labels("/api/v1/configmaps app=web #2")),
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\nin\n{text}");
        }
        following.abort();
    }
}
