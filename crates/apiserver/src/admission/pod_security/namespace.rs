//! The labels of a namespace: they name levels that there are, and what is there already is held against a stricter one.

use std::collections::{BTreeMap, HashSet};

use serde_json::Value;
use setpoint_api::{FieldError, GroupResource, Path, Status};
use setpoint_schema::Edit;
use setpoint_store::{Query, Selection};

use super::{Level, found, is_level, policy};
use crate::call::Call;
use crate::objects;

const LABELS: [&str; 6] = ["enforce", "enforce-version", "audit", "audit-version", "warn", "warn-version"];

/// Most pods that are held against a new level. As upstream.
const PODS_MAX: usize = 3000;

/// Refuses labels that name no level or version; a change may leave them as they were.
pub(in crate::admission) fn check(call: &mut Call<'_>, new: &Value, old: Option<&Value>) -> Result<(), Box<Status>> {
    if call.subresource.is_some() {
        return Ok(());
    }
    let labels = &new["metadata"]["labels"];
    let errors = errors(labels);
    if !errors.is_empty() && old.is_none_or(|old| self::errors(&old["metadata"]["labels"]) != errors) {
        let name = new["metadata"].text("name");
        return Err(Box::new(Status::invalid(&call.kind().group_kind(), name, &errors)));
    }
    if let Some(old) = old {
        let (before, after) = (policy(&old["metadata"]["labels"], "enforce"), policy(labels, "enforce"));
        if before != after && (before.1 != after.1 || after.0 > before.0) {
            warn_of_pods(call, new["metadata"].text("name"), after);
        }
    }
    Ok(())
}

fn errors(labels: &Value) -> Vec<FieldError> {
    let metadata = Path::root("metadata");
    let path = metadata.child("labels");
    let wrong = |name: &str| {
        let key = format!("pod-security.kubernetes.io/{name}");
        let value = labels.get(&key)?.as_str()?;
        let detail = match name.ends_with("version") {
            true if is_version(value) => return None,
            true => "must be \"latest\" or \"v1.x\"",
            false if is_level(value) => return None,
            false => "must be one of privileged, baseline, restricted",
        };
        Some(FieldError::invalid(&path.key(&key), value, detail))
    };
    LABELS.iter().filter_map(|name| wrong(name)).collect()
}

fn is_version(text: &str) -> bool {
    let Some(minor) = text.strip_prefix("v1.") else { return text == "latest" };
    minor.bytes().all(|byte| byte.is_ascii_digit())
        && (minor.len() == 1 || !minor.starts_with('0'))
        && minor.parse::<i64>().is_ok()
}

fn warn_of_pods(call: &mut Call<'_>, namespace: &str, (level, version): (Level, String)) {
    if level == Level::Privileged {
        return;
    }
    let pods = pods(call, namespace);
    // For each thing that is wrong: the first pod by name, and how many there are.
    let mut wrong: BTreeMap<String, (String, usize)> = BTreeMap::new();
    for pod in pods.iter().take(PODS_MAX) {
        let violations = found(level, &version, pod);
        if violations.is_empty() {
            continue;
        }
        let what = violations.into_iter().map(|violation| violation.what).collect::<Vec<_>>().join(", ");
        let name = pod["metadata"].text("name");
        let seen = wrong.entry(what).or_insert_with(|| (name.to_owned(), 0));
        seen.1 += 1;
        if *name < *seen.0 {
            seen.0 = name.to_owned();
        }
    }
    if pods.len() > PODS_MAX {
        let all = pods.len();
        call.warnings.push(format!(
            "new PodSecurity enforce level only checked against the first {PODS_MAX} of {all} existing pods"
        ));
    }
    if !wrong.is_empty() {
        let level = level.name();
        call.warnings.push(format!(
            "existing pods in namespace \"{namespace}\" violate the new PodSecurity enforce level \"{level}:{version}\""
        ));
    }
    let mut told: Vec<String> = wrong.into_iter().map(|(what, (pod, count))| told(&what, &pod, count)).collect();
    told.sort_unstable();
    call.warnings.extend(told);
}

fn told(what: &str, pod: &str, count: usize) -> String {
    match count {
        1 => format!("{pod}: {what}"),
        2 => format!("{pod} (and 1 other pod): {what}"),
        more => format!("{pod} (and {} other pods): {what}", more - 1),
    }
}

/// The pods of a namespace; those with an owner that another one has come last, because they are alike.
fn pods(call: &Call<'_>, namespace: &str) -> Vec<Value> {
    let selection = Selection::everything();
    let resource = GroupResource::new("", "pods");
    let query =
        Query { resource: &resource, namespace: Some(namespace), selection: &selection, after: None, limit: None };
    let all = call.server.store.snapshot().list(&query).items;
    let mut owners = HashSet::new();
    let (mut first, more): (Vec<Value>, Vec<Value>) =
        all.iter().map(|pod| objects::value(pod)).partition(|pod| match controller(pod) {
            Some(uid) => owners.insert(uid),
            None => true,
        });
    first.extend(more);
    first
}

fn controller(pod: &Value) -> Option<String> {
    let owners = pod["metadata"]["ownerReferences"].as_array()?;
    owners.iter().find(|owner| owner.flag("controller")).map(|owner| owner.text("uid").to_owned())
}
