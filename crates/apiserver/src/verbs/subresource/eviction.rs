//! `/eviction`: a deletion that asks the pod's disruption budget first.

use http::StatusCode;
use serde_json::{Value, json};
use setpoint_api::labels::LabelSelector;
use setpoint_api::{FieldError, GroupKind, GroupResource, Path, Status, StatusCause};
use setpoint_schema::Edit;
use setpoint_store::{CommitError, Expectation, Query, Selection};

use super::binding::set_condition;
use super::read;
use crate::admission::node_restriction;
use crate::answer::{self, Answer};
use crate::body::Body;
use crate::call::Call;
use crate::query::{FieldValidation, WriteOptions};
use crate::verbs::create::Outcome;
use crate::verbs::delete::{self, DeleteOptions};
use crate::verbs::update;
use crate::{admission, objects};

/// How often an eviction starts again because the pod or the budget changed meanwhile.
const CONFLICT_TRIES_MAX: usize = 20;

/// Pods that a budget may have on its way out before its controller confirms them.
const DISRUPTED_MAX: usize = 2000;

const VIOLATES: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

pub(super) async fn run(call: &mut Call<'_>, body: Body) -> Answer {
    let (mut eviction, options) = read(call, body).await?;
    let name = call.object_name();
    let given = eviction["metadata"].text("name");
    if !given.is_empty() && given != name {
        return Err(Box::new(Status::bad_request("name in URL does not match name in Eviction object")));
    }
    node_restriction::delete(call, name)?;
    admission::post(call, &mut eviction, name, &options).await?;
    let options = delete_options(call, &eviction, &options)?;
    let mut tries = 0;
    loop {
        match evict(call, name, &options).await {
            Err(status) if is_conflict(&status) && options.resource_version.is_none() && tries < CONFLICT_TRIES_MAX => {
                tries += 1;
            }
            Err(status) => return Err(status),
            Ok(()) => return Ok(answer::status(&Status::success(StatusCode::CREATED.as_u16()))),
        }
    }
}

/// A precondition that the client named never comes true by trying again.
fn is_conflict(status: &Status) -> bool {
    status.reason == "Conflict" && !status.message.contains("in the precondition")
}

fn delete_options(call: &Call<'_>, eviction: &Value, options: &WriteOptions) -> Result<DeleteOptions, Box<Status>> {
    let given = &eviction["deleteOptions"];
    if given.flag("ignoreStoreReadErrorWithClusterBreakingPotential") {
        let path = Path::root("deleteOptions");
        let detail = "can not be set for pod eviction, try after removing the option";
        let field = path.child("ignoreStoreReadErrorWithClusterBreakingPotential");
        let errors = [FieldError::invalid(&field, true, detail)];
        return Err(Box::new(Status::invalid(&GroupKind::new("policy", "Eviction"), call.object_name(), &errors)));
    }
    let mut parsed = DeleteOptions::of(given)?;
    parsed.dry_run |= options.dry_run;
    Ok(parsed)
}

async fn evict(call: &mut Call<'_>, name: &str, options: &DeleteOptions) -> Result<(), Box<Status>> {
    let found = objects::find(&call.server.store.snapshot(), call.served, call.namespace, name)?;
    let pod = objects::value(&found);
    if has_ended(&pod) {
        return remove(call, name, options, None).await;
    }
    let version = || Some(pod["metadata"].text("resourceVersion").to_owned());
    if pod["status"].text("phase") == "Pending" {
        // It may start and be counted on meanwhile; then it is looked at again.
        let removed = remove(call, name, options, version()).await;
        let is_ours = |status: &Status| {
            options.resource_version.is_none() && status.message.contains("the ResourceVersion in the precondition")
        };
        return removed.map_err(|status| if is_ours(&status) { changed(name) } else { status });
    }
    match budget(call, &pod)? {
        None => remove(call, name, options, None).await,
        Some(budget) if is_beyond_help(&pod, &budget) => {
            let removed = remove(call, name, options, version()).await;
            let own_version = options.resource_version.is_some();
            removed.map_err(|status| if status.code == 409 && !own_version { busy(&budget) } else { status })
        }
        Some(budget) => {
            spend(call, name, &budget, options.dry_run).await?;
            remove(call, name, options, None).await
        }
    }
}

/// Pods that do nothing any more count for no budget.
fn has_ended(pod: &Value) -> bool {
    matches!(pod["status"].text("phase"), "Succeeded" | "Failed") || pod["metadata"].has("deletionTimestamp")
}

/// The pod is another one than the one that was looked at: a conflict that trying again solves.
fn changed(name: &str) -> Box<Status> {
    Box::new(Status::conflict(&GroupResource::new("", "pods"), name, "the pod has changed"))
}

/// The one budget of a pod.
fn budget(call: &Call<'_>, pod: &Value) -> Result<Option<Value>, Box<Status>> {
    let resource = GroupResource::new("policy", "poddisruptionbudgets");
    let selection = Selection::everything();
    let query =
        Query { resource: &resource, namespace: call.namespace, selection: &selection, after: None, limit: None };
    let labels: std::collections::BTreeMap<String, String> =
        serde_json::from_value(pod["metadata"]["labels"].clone()).unwrap_or_default();
    let found = call.server.store.snapshot().list(&query);
    let mut budgets = found.items.iter().map(|object| objects::value(object)).filter(|budget| {
        // No selector selects nothing, an empty one everything.
        let selector = budget.find(&["spec", "selector"]).cloned();
        let selector = selector.and_then(|selector| serde_json::from_value::<LabelSelector>(selector).ok());
        selector.and_then(|selector| selector.selector().ok()).is_some_and(|selector| selector.matches(&labels))
    });
    let (first, second) = (budgets.next(), budgets.next());
    if second.is_some() {
        let message =
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
        let mut status = Status::bad_request(message);
        (status.code, status.reason) = (500, String::new());
        return Err(Box::new(status));
    }
    Ok(first)
}

/// A pod that isn't ready may go if the budget says so, or if the budget's other pods suffice.
fn is_beyond_help(pod: &Value, budget: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let ready = conditions.into_iter().any(|c| c.text("type") == "Ready" && c.text("status") == "True");
    let count = |name: &str| budget["status"].number(name).unwrap_or(0);
    let suffices = count("currentHealthy") >= count("desiredHealthy") && count("desiredHealthy") > 0;
    !ready && (budget["spec"].text("unhealthyPodEvictionPolicy") == "AlwaysAllow" || suffices)
}

/// Takes one disruption from the budget.
async fn spend(call: &Call<'_>, pod: &str, budget: &Value, dry_run: bool) -> Result<(), Box<Status>> {
    let served = call.server.registry.find("policy", "v1", "poddisruptionbudgets").expect("a built-in kind");
    let name = budget["metadata"].text("name").to_owned();
    let mut tries = 0;
    loop {
        let current = objects::find(&call.server.store.snapshot(), served, call.namespace, &name)?;
        let mut budget = objects::value(&current);
        check_budget(&budget)?;
        if dry_run {
            return Ok(());
        }
        take_one(&mut budget, pod, &call.server.clock.timestamp());
        served.kind.normalize(&mut budget);
        let key = objects::key(served, call.namespace, &name);
        match objects::put(call, served, key, Expectation::Unchanged(current.revision()), budget).await {
            Ok(_) => return Ok(()),
            Err(CommitError::Conflict { .. }) if tries < CONFLICT_TRIES_MAX => tries += 1,
            Err(CommitError::Conflict { .. }) => {
                let message = format!("couldn't update PodDisruptionBudget \"{name}\" due to conflicts");
                return Err(Box::new(Status::timeout(&message, 10)));
            }
            Err(error) => return Err(objects::refusal(served, &name, error)),
        }
    }
}

fn check_budget(budget: &Value) -> Result<(), Box<Status>> {
    let (name, status) = (budget["metadata"].text("name"), &budget["status"]);
    let count = |field: &str| status.number(field).unwrap_or(0);
    let forbidden =
        |why: &str| Err(Box::new(Status::forbidden(&GroupResource::new("policy", "poddisruptionbudget"), name, why)));
    if count("observedGeneration") < budget["metadata"].number("generation").unwrap_or(0) {
        return Err(busy(budget));
    }
    if count("disruptionsAllowed") < 0 {
        return forbidden("pdb disruptions allowed is negative");
    }
    if status["disruptedPods"].as_object().is_some_and(|pods| pods.len() > DISRUPTED_MAX) {
        return forbidden("DisruptedPods map too big - too many evictions not confirmed by PDB controller");
    }
    if count("disruptionsAllowed") > 0 {
        return Ok(());
    }
    Err(Box::new(Status::too_many_requests(VIOLATES, 0).with_cause(cause(why_not(budget)))))
}

fn why_not(budget: &Value) -> String {
    let (name, status) = (budget["metadata"].text("name"), &budget["status"]);
    let count = |field: &str| status.number(field).unwrap_or(0);
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let refused = conditions.into_iter().find(|c| {
        c.text("type") == "DisruptionAllowed" && c.text("status") == "False" && !c.text("message").is_empty()
    });
    match refused {
        Some(condition) if condition.text("reason") == "SyncFailed" => format!(
            "The disruption budget {name} does not allow evicting pods currently because it failed sync: {}",
            condition.text("message")
        ),
        _ if count("currentHealthy") <= count("desiredHealthy") => format!(
            "The disruption budget {name} needs {} healthy pods and has {} currently",
            count("desiredHealthy"),
            count("currentHealthy")
        ),
        Some(condition) => format!(
            "The disruption budget {name} does not allow evicting pods currently ({}): {}",
            condition.text("reason"),
            condition.text("message")
        ),
        None => format!("The disruption budget {name} does not allow evicting pods currently"),
    }
}

fn take_one(budget: &mut Value, pod: &str, now: &str) {
    let status = budget.ensure("status");
    let left = status.number("disruptionsAllowed").unwrap_or(0) - 1;
    status.set("disruptionsAllowed", left);
    status.ensure("disruptedPods").set(pod, now);
    if left > 0 {
        return;
    }
    let mut conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let generation = status.number("observedGeneration").unwrap_or(0);
    let mut used_up = json!({
        "type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "",
        "observedGeneration": generation, "lastTransitionTime": now,
    });
    match conditions.iter().position(|condition| condition.text("type") == "DisruptionAllowed") {
        Some(place) => {
            if conditions[place].text("status") == "False" {
                used_up.set("lastTransitionTime", conditions[place]["lastTransitionTime"].clone());
            }
            conditions[place] = used_up;
        }
        None => conditions.push(used_up),
    }
    status.set("conditions", conditions);
}

/// The budget's controller has not seen the present state yet.
fn busy(budget: &Value) -> Box<Status> {
    let name = budget["metadata"].text("name");
    let message = format!("The disruption budget {name} is still being processed by the server.");
    Box::new(Status::too_many_requests(VIOLATES, 10).with_cause(cause(message)))
}

fn cause(message: String) -> StatusCause {
    StatusCause { reason: "DisruptionBudget".to_owned(), message, field: String::new() }
}

/// Says in the pod's status why it goes, and deletes it.
async fn remove(
    call: &mut Call<'_>,
    name: &str,
    options: &DeleteOptions,
    version: Option<String>,
) -> Result<(), Box<Status>> {
    let mut options = options.clone();
    options.resource_version = options.resource_version.or(version);
    if !options.dry_run {
        let stored = mark(call, &options).await?;
        if options.resource_version.is_some() {
            options.resource_version = Some(stored);
        }
    }
    delete::delete(call, name, &options).await.map(drop)
}

/// Sets the condition, and returns the pod's new version.
async fn mark(call: &mut Call<'_>, options: &DeleteOptions) -> Result<String, Box<Status>> {
    let write = WriteOptions {
        dry_run: false,
        field_validation: FieldValidation::Ignore,
        field_manager: String::new(),
        force: None,
        applied: false,
        kind: "",
    };
    let now = call.server.clock.timestamp();
    let subresource = call.subresource.replace("status");
    let mut make = |call: &mut Call<'_>, old: &Value| {
        delete::check_preconditions(call, call.object_name(), old, options)?;
        let mut new = old.clone();
        let condition = json!({
            "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
        });
        set_condition(new.ensure("status"), condition, &now);
        new.ensure("metadata").remove("resourceVersion");
        Ok(new)
    };
    let marked = update::change(call, &write, &mut make).await;
    call.subresource = subresource;
    Ok(match marked? {
        Outcome::Stored(pod) => pod.revision().to_string(),
        Outcome::DryRun(pod) => pod["metadata"].text("resourceVersion").to_owned(),
    })
}
