//! `setpoint status`: whether a control plane is well, and what needs attention.

use std::collections::BTreeMap;

use clap::Args;
use serde_json::{Value, json};
use setpoint_api::time::Timestamp;

use crate::connection::ConnectionArguments;
use crate::failure::{Failure, print};
use crate::get::now;
use crate::health::{self, Mark};
use crate::output::FormArguments;
use crate::request::{Ask, Server};
use crate::tab::Tabs;
use crate::terminal::{coloured, escape, with_progress};

/// Objects of one kind that are looked at.
const LOOK_MAX: &str = "1000";

/// Lines about what needs attention.
const ATTENTION_MAX: usize = 10;

/// What is looked at: kind, version, path.
const KINDS: [(&str, &str, &str); 10] = [
    ("Node", "v1", "/api/v1/nodes"),
    (NAMESPACE, "v1", "/api/v1/namespaces"),
    ("Deployment", "apps/v1", "/apis/apps/v1/deployments"),
    ("StatefulSet", "apps/v1", "/apis/apps/v1/statefulsets"),
    ("DaemonSet", "apps/v1", "/apis/apps/v1/daemonsets"),
    ("Job", "batch/v1", "/apis/batch/v1/jobs"),
    ("Pod", "v1", "/api/v1/pods"),
    (CLAIM, "v1", "/api/v1/persistentvolumeclaims"),
    ("Vehicle", "fleet.setpoint.dev/v1alpha1", "/apis/fleet.setpoint.dev/v1alpha1/vehicles"),
    ("Rollout", "fleet.setpoint.dev/v1alpha1", "/apis/fleet.setpoint.dev/v1alpha1/rollouts"),
];

/// There are some in every cluster: they are told of where not all are well.
const NAMESPACE: &str = "Namespace";

const CLAIM: &str = "PersistentVolumeClaim";

/// A claim that has no volume after so many seconds is not on its way to one.
const CLAIM_SECONDS: i64 = 60;

/// The command line.
#[derive(Args, Debug)]
pub struct StatusArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub form: FormArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub connection: ConnectionArguments,
}

/// Runs it. What needs attention is no failure; a server that is not ready is.
pub async fn run(arguments: &StatusArguments) -> Result<(), Failure> {
    let server = arguments.connection.connect().await?;
    let version = server.get(Ask::get("/version")).await?;
    let (code, checks) = server.text("/readyz?verbose").await?;
    let is_ready = code.is_success();
    let failing: Vec<&str> = checks.lines().filter(|line| line.starts_with("[-]")).collect();
    let not_ready = || Failure::new("the server is not ready", failing.join(", ")).hint("its log tells more");
    let mut tabs = Tabs::default();
    let url = server.url.to_string();
    let answers = format!("{} {}", url.trim_end_matches('/'), version["gitVersion"].as_str().unwrap_or("?"));
    tabs.row(["server".to_owned(), answers]);
    tabs.row(["ready", if is_ready { "yes" } else { "no" }]);
    let found = with_progress("reading", all(&server)).await;
    let printed = arguments.form.print(|| {
        let kinds = found.iter().map(|(kind, objects)| {
            let well = objects.iter().filter(|one| matches!(health::of(one).mark, Mark::Well | Mark::Silent)).count();
            json!({"kind": kind, "objects": objects.len(), "well": well})
        });
        json!({
            "server": url.trim_end_matches('/'), "version": version["gitVersion"], "ready": is_ready,
            "kinds": kinds.collect::<Vec<_>>(), "needsAttention": attention(&found, now()),
        })
    });
    if printed {
        return if is_ready { Ok(()) } else { Err(not_ready().answered()) };
    }
    for (kind, objects) in &found {
        let is_usual = *kind == NAMESPACE && objects.iter().all(|one| health::of(one).mark == Mark::Well);
        if !objects.is_empty() && !is_usual {
            tabs.row([format!("{}s", kind.to_lowercase()), tally(objects)]);
        }
    }
    print(&tabs.flush());
    let attention = attention(&found, now());
    if !attention.is_empty() {
        print("\nneeds attention:\n");
        let more = attention.len().saturating_sub(ATTENTION_MAX);
        for line in attention.iter().take(ATTENTION_MAX) {
            print(&format!("  {} {}\n", coloured("✗", Mark::Bad.colour()), escape(line)));
        }
        if more > 0 {
            print(&format!("  and {more} more\n"));
        }
        print("\n`setpoint why KIND/NAME` tells the first cause\n");
    }
    if is_ready { Ok(()) } else { Err(not_ready()) }
}

async fn all(server: &Server) -> Vec<(&'static str, Vec<Value>)> {
    let mut found = Vec::new();
    for (kind, version, path) in KINDS {
        // What one may not see is not told of.
        let Ok(mut list) = server.get(Ask::get(path).with("limit", LOOK_MAX).quietly()).await else { continue };
        let Value::Array(items) = list["items"].take() else { continue };
        let named = |mut item: Value| {
            item["kind"] = kind.into();
            item["apiVersion"] = version.into();
            item
        };
        found.push((kind, items.into_iter().map(named).collect()));
    }
    found
}

/// How many are well, and what is with the others.
fn tally(objects: &[Value]) -> String {
    let mut words: BTreeMap<String, usize> = BTreeMap::new();
    let mut well = 0;
    for health in objects.iter().map(health::of) {
        match health.mark {
            Mark::Well | Mark::Silent => well += 1,
            Mark::Working | Mark::Bad => *words.entry(health.words).or_insert(0) += 1,
        }
    }
    let others: Vec<_> = words.iter().map(|(words, count)| format!("{count} {words}")).collect();
    let others = if others.is_empty() { String::new() } else { format!(" ({})", others.join(", ")) };
    format!("{well} of {} well{others}", objects.len())
}

/// What is bad, by name.
fn attention(found: &[(&str, Vec<Value>)], now: i64) -> Vec<String> {
    let all = found.iter().flat_map(|(kind, objects)| objects.iter().map(move |object| (kind, object)));
    let bad = all.filter_map(|(kind, object)| {
        let health = health::of(object);
        let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default();
        let place = if text("namespace").is_empty() { String::new() } else { format!(" in {}", text("namespace")) };
        let said = format!("{}/{}{place}: {}", kind.to_lowercase(), text("name"), health.words);
        (health.mark == Mark::Bad || is_overdue(object, now)).then_some(said)
    });
    bad.collect()
}

/// Whether a claim has waited for its volume for too long.
fn is_overdue(object: &Value, now: i64) -> bool {
    let made = object["metadata"]["creationTimestamp"].as_str().and_then(|time| Timestamp::parse(time).ok());
    object["kind"] == CLAIM
        && object["status"]["phase"] == "Pending"
        && made.is_some_and(|made| now - made.seconds > CLAIM_SECONDS)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_not_well_is_counted_and_named() {
        let pod = |name: &str, phase: &str| json!({"kind": "Pod", "metadata": {"name": name, "namespace": "a"}, "status": {"phase": phase}});
        let pods = vec![pod("x", "Failed"), pod("y", "Pending"), pod("z", "Succeeded")];
        assert_eq!(tally(&pods), "1 of 3 well (1 Failed, 1 Pending)");
        assert_eq!(attention(&[("Pod", pods)], 0), ["pod/x in a: Failed"]);
    }

    #[test]
    fn a_claim_that_gets_no_volume_needs_attention() {
        let claim = json!({
            "kind": CLAIM, "metadata": {"name": "data", "namespace": "a", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "status": {"phase": "Pending"},
        });
        let found = [(CLAIM, vec![claim])];
        let made = Timestamp::parse("2026-01-01T00:00:00Z").unwrap().seconds;
        assert!(attention(&found, made + 30).is_empty());
        assert_eq!(attention(&found, made + 90), ["persistentvolumeclaim/data in a: Pending"]);
    }
}
