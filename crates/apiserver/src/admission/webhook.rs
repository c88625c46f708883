//! Webhooks: servers elsewhere that change objects or refuse them.

mod review;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use serde_json::{Value, json};
use setpoint_api::Status;
use setpoint_api::quote::quote;
use setpoint_schema::Edit;
use setpoint_schema::builtin::admissionregistration::Scope;
use setpoint_schema::json::Json;
use setpoint_schema::patch::{JsonPatch, Strictness};

use self::review::{Sort, Verdict};
use super::expression::{Conditions, Evaluation, Inputs, Met, Seen};
use super::matching::Criteria;
use super::notes::Notes;
use super::pod_resources::items;
use super::reinvocation::Reinvocation;
use super::request::Request;
use crate::registry::Served;
use crate::webhook_client::{Client, Surroundings, Trouble};

const MUTATION: &str = "mutation.webhook.admission.k8s.io/";
const PATCH: &str = "patch.webhook.admission.k8s.io/";

/// Longest time that a webhook may take if its configuration says nothing.
const TIMEOUT_SECONDS: i64 = 10;

/// One webhook of a configuration.
pub(super) struct Hook {
    configuration: String,
    name: String,
    /// Tells webhooks of one name apart.
    id: String,
    criteria: Criteria,
    conditions: Conditions,
    client: Client,
    /// Whether a request is refused if the webhook can't be asked.
    strict: bool,
    has_side_effects: bool,
    timeout: Duration,
    is_reinvoked: bool,
    versions: Vec<String>,
}

impl Hook {
    /// The webhooks of a stored configuration.
    pub(super) fn read_all(configuration: &Value) -> Vec<Arc<Hook>> {
        let name = configuration["metadata"].text("name");
        let hooks = items(configuration, "webhooks").enumerate();
        hooks.map(|(index, webhook)| Arc::new(Hook::read(name, index, webhook))).collect()
    }

    fn read(configuration: &str, index: usize, webhook: &Value) -> Hook {
        let name = webhook.text("name").to_owned();
        let strict = webhook.text("failurePolicy") != "Ignore";
        let seconds = webhook.number("timeoutSeconds").unwrap_or(TIMEOUT_SECONDS);
        Hook {
            configuration: configuration.to_owned(),
            id: format!("{configuration}/{name}/{index}"),
            criteria: Criteria::of_webhook(webhook),
            conditions: Conditions::read(webhook, &Scope::without_params(), strict),
            client: Client::read(&webhook["clientConfig"]),
            strict,
            has_side_effects: !matches!(webhook.text("sideEffects"), "None" | "NoneOnDryRun"),
            timeout: Duration::from_secs(u64::try_from(seconds).unwrap_or(1)),
            is_reinvoked: webhook.text("reinvocationPolicy") == "IfNeeded",
            versions: items(webhook, "admissionReviewVersions").filter_map(Value::as_str).map(str::to_owned).collect(),
            name,
        }
    }

    /// The version in which the webhook wants to see the object, if it wants to.
    async fn matched(
        &self,
        request: &Request<'_>,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<Option<Arc<Served>>, Box<Status>> {
        let Some(served) = self.criteria.matched(request, object, old)? else { return Ok(None) };
        if self.conditions.is_empty() {
            return Ok(Some(served));
        }
        let seen = Seen::new(request, &served, object, old, &Value::Null).await?;
        let inputs = Inputs { seen, params: Value::Null };
        let met = self.conditions.judge(&mut Evaluation::new(&inputs, &[]));
        match met {
            Met::Yes => Ok(Some(served)),
            Met::No => Ok(None),
            Met::Unknown(why) => Err(Box::new(Status::forbidden(&request.resource(), &request.name, why))),
        }
    }

    /// Asks the webhook.
    async fn ask(
        &self,
        sort: Sort,
        request: &Request<'_>,
        served: &Served,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<Verdict, Failure> {
        if request.dry_run && self.has_side_effects {
            let why = format!("admission webhook {} does not support dry run", quote(&self.name));
            return Err(Failure::Refused(Box::new(Status::bad_request(why))));
        }
        let version = review::version(&self.versions).ok_or_else(|| {
            let why = "webhook does not accept known AdmissionReview versions (v1, v1beta1)";
            Failure::Unreachable(Trouble::plain(format!("could not create admission objects: {why}")))
        })?;
        let uid = request.server.chance.uid();
        let mut told = request.to_value(served);
        told.insert("uid".into(), json!(uid));
        for (field, object) in [("object", object), ("oldObject", old)] {
            let shown = match object {
                Some(object) => request.converted(object, request.served, served).await.map_err(Failure::Refused)?,
                None => Value::Null,
            };
            told.insert(field.into(), shown);
        }
        let document = review::document(version, Value::Object(told));
        let body = serde_json::to_vec(&document).expect("a value is always encodable");
        let around = Surroundings { store: &request.server.store, chance: &request.server.chance };
        let query = format!("?timeout={}s", self.timeout.as_secs());
        let answer = self.client.post(around, &query, Bytes::from(body), self.timeout).await;
        let answer = answer.map_err(|trouble| Failure::Unreachable(trouble.within("failed to call webhook")))?;
        let quoting = |why: String, kept: &'static str| Failure::Unreachable(Trouble::quoting(why, kept.to_owned()));
        let answer = setpoint_schema::json::parse(&answer)
            .map_err(|error| quoting(format!("failed to call webhook: {error}"), "its answer is no JSON"))?;
        review::read(version, sort, &uid, &answer.into_value()).map_err(|why| {
            quoting(format!("received invalid webhook response: {why}"), "its answer is not that of a review")
        })
    }

    fn failed(&self, why: &str) -> String {
        format!("failed calling webhook {}: {why}", quote(&self.name))
    }
}

/// Why there is no verdict.
enum Failure {
    /// The webhook can't be asked, or answers nonsense: its configuration says what that means.
    Unreachable(Trouble),
    /// Whatever the configuration says, it is a refusal.
    Refused(Box<Status>),
}

/// Lets webhooks change an object, one after the other.
pub(super) async fn mutate(
    hooks: &[Arc<Hook>],
    request: &Request<'_>,
    mut object: Option<&mut Value>,
    old: Option<&Value>,
    rounds: &mut Reinvocation,
    notes: &mut Notes,
) -> Result<(), Box<Status>> {
    for (index, hook) in hooks.iter().enumerate() {
        let Some(served) = hook.matched(request, object.as_deref(), old).await? else { continue };
        // One that was not asked the first time isn't asked now.
        if !rounds.hooks.asks(&hook.id) {
            continue;
        }
        let place = format!("round_{}_index_{index}", rounds.hooks.number());
        let outcome = hook.ask(Sort::Mutating, request, &served, object.as_deref(), old).await;
        let changed = match outcome {
            Ok(verdict) => settle(hook, request, &served, object.as_deref_mut(), verdict, &place, notes).await?,
            Err(Failure::Refused(status)) => return Err(status),
            Err(Failure::Unreachable(trouble)) => Settled::Failed(trouble),
        };
        let changed = match changed {
            Settled::Done(changed) => changed,
            Settled::Failed(trouble) if hook.strict => {
                return Err(Box::new(Status::internal_error(hook.failed(&trouble.why))));
            }
            Settled::Failed(trouble) => {
                tracing::warn!(
                    webhook = hook.name,
                    why = trouble.kept,
                    "a webhook can't be asked, and the request goes on"
                );
                notes.annotate(format!("failed-open.{MUTATION}{place}"), &hook.name);
                false
            }
        };
        let told = json!({"configuration": hook.configuration, "webhook": hook.name, "mutated": changed});
        notes.annotate(format!("{MUTATION}{place}"), told.to_string());
        if changed {
            rounds.hooks.require();
            rounds.wanted = true;
        }
        if hook.is_reinvoked {
            rounds.hooks.remember(&hook.id);
        }
    }
    rounds.hooks.leave(object.as_deref());
    Ok(())
}

/// What became of a verdict.
enum Settled {
    /// It was followed; whether the object changed.
    Done(bool),
    /// It makes no sense.
    Failed(Trouble),
}

/// Does what a webhook said.
async fn settle(
    hook: &Hook,
    request: &Request<'_>,
    served: &Served,
    object: Option<&mut Value>,
    verdict: Verdict,
    place: &str,
    notes: &mut Notes,
) -> Result<Settled, Box<Status>> {
    note(hook, &verdict, notes);
    if !verdict.allowed {
        return Err(review::denied(&hook.name, &verdict.result));
    }
    if verdict.patch.is_empty() {
        return Ok(Settled::Done(false));
    }
    let patch = match JsonPatch::decode(&verdict.patch, Strictness::Lax) {
        Ok(patch) => patch,
        Err(error) => {
            let why = format!("received undecodable patch in webhook response: {error}");
            return Ok(Settled::Failed(Trouble::quoting(why, "its patch can't be read".to_owned())));
        }
    };
    let written: Value = serde_json::from_slice(&verdict.patch).unwrap_or_default();
    if written.as_array().is_none_or(Vec::is_empty) {
        return Ok(Settled::Done(false));
    }
    let internal = |why: String| Box::new(Status::internal_error(why));
    let Some(object) = object else {
        let name = quote(&hook.name);
        let why = "attempted to modify the object, which is not supported for this operation";
        return Err(internal(format!("admission webhook {name} {why}")));
    };
    if verdict.patch_type != "JSONPatch" {
        let why = format!("unsupported patch type {}", quote(&verdict.patch_type));
        return Ok(Settled::Failed(Trouble::quoting(why, "its patch is of an unknown type".to_owned())));
    }
    let before = request.converted(object, request.served, served).await?;
    let patched = patch.apply(Json::of(&before)).map_err(|error| internal(error.to_string()))?.into_value();
    let next = request.decoded(request.converted(&patched, served, request.served).await?)?;
    let told = json!({
        "configuration": hook.configuration, "webhook": hook.name, "patch": written, "patchType": "JSONPatch",
    });
    notes.annotate(format!("{PATCH}{place}"), told.to_string());
    let changed = *object != next;
    *object = next;
    Ok(Settled::Done(changed))
}

fn note(hook: &Hook, verdict: &Verdict, notes: &mut Notes) {
    notes.warnings.extend(verdict.warnings.iter().cloned());
    for (key, value) in &verdict.annotations {
        notes.annotate(format!("{}/{key}", hook.name), value);
    }
}

/// Asks webhooks about an object that is as it will be stored, all at once.
pub(super) async fn validate(
    hooks: &[Arc<Hook>],
    request: &Request<'_>,
    object: Option<&Value>,
    old: Option<&Value>,
    notes: &mut Notes,
) -> Result<(), Box<Status>> {
    let mut relevant = Vec::new();
    for hook in hooks {
        if let Some(served) = hook.matched(request, object, old).await? {
            relevant.push((hook, served));
        }
    }
    let asked = relevant.iter().map(|(hook, served)| hook.ask(Sort::Validating, request, served, object, old));
    let outcomes = join_all(asked).await;
    let mut refused = None;
    for (index, ((hook, _), outcome)) in relevant.iter().zip(outcomes).enumerate() {
        let refusal = match outcome {
            Ok(verdict) => {
                note(hook, &verdict, notes);
                (!verdict.allowed).then(|| review::denied(&hook.name, &verdict.result))
            }
            Err(Failure::Refused(status)) => Some(status),
            Err(Failure::Unreachable(trouble)) if hook.strict => {
                Some(Box::new(Status::internal_error(hook.failed(&trouble.why))))
            }
            Err(Failure::Unreachable(trouble)) => {
                tracing::warn!(
                    webhook = hook.name,
                    why = trouble.kept,
                    "a webhook can't be asked, and the request goes on"
                );
                let key = format!("failed-open.validating.webhook.admission.k8s.io/round_0_index_{index}");
                notes.annotate(key, &hook.name);
                None
            }
        };
        refused = refused.or(refusal);
    }
    refused.map_or(Ok(()), Err)
}
