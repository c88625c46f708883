//! A namespace that is being deleted loses its content first: pods, then everything else of every kind, then itself.

mod conditions;
mod content;

use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::jiff::Timestamp;
use kube::Resource;
use kube::api::{Api, PostParams};
use kube::core::Request;
use serde::de::IgnoredAny;
use setpoint_runtime::Key;
use setpoint_runtime::cache::Informer;
use setpoint_runtime::controller::{Action, Context, Error, Predicate};
use setpoint_runtime::manager::ManagerError;
use setpoint_runtime::retry;

use self::content::{Content, Outcome};
use crate::Wiring;

/// Whoever creates something has seen by then that the namespace is going. Same as Kubernetes.
const GRACE: Duration = Duration::from_secs(5);

/// What the API server waits for before it lets a namespace go.
const FINALIZER: &str = "kubernetes";

/// How many namespaces are emptied at once. Same as Kubernetes.
const WORKERS: usize = 10;

/// The longest wait between two tries: somebody waits for the namespace to be gone. Same as Kubernetes.
const RETRY_MAX: Duration = Duration::from_secs(60);

/// Adds the controller.
pub fn add(wiring: &Wiring<'_>) -> Result<(), ManagerError> {
    let desk = wiring.desk("namespace-controller")?.queue(|queue| queue.max_delay = RETRY_MAX);
    let namespaces: Informer<Namespace> = wiring.informer();
    let controller = desk
        .controller(&namespaces, WORKERS)
        // Its own conditions tell nothing new.
        .predicate(Predicate::new(|old: Option<&Namespace>, new: &Namespace| {
            is_going(new)
                && old.is_none_or(|old| old.spec != new.spec || old.metadata.finalizers != new.metadata.finalizers)
        }))
        .build(move |context: Context, key: Key| reconcile(context, namespaces.clone(), key));
    desk.run(controller)
}

fn is_going(namespace: &Namespace) -> bool {
    namespace.metadata.deletion_timestamp.is_some()
}

async fn reconcile(context: Context, namespaces: Informer<Namespace>, key: Key) -> Result<Action, Error> {
    let Some(known) = context.read(&namespaces, &key).filter(|known| is_going(known)) else {
        return Ok(Action::done());
    };
    if let Some(wait) = wait(&known, context.clock().wall()) {
        return Ok(Action::requeue_after(wait));
    }
    let api: Api<Namespace> = Api::all(context.client().clone());
    let Some(mut namespace) = api.get_opt(key.name()).await?.filter(is_going) else { return Ok(Action::done()) };
    if !is_held(&namespace) {
        return Ok(Action::done());
    }
    let since = since(&namespace, context.clock().wall());
    let content = Content { client: context.client(), namespace: key.name(), since };
    let outcome = content.delete().await;
    let told = tell(&context, &api, &mut namespace, &outcome).await;
    finish(&context, namespace, outcome, told).await
}

/// Says in the status what remains.
async fn tell(
    context: &Context,
    api: &Api<Namespace>,
    namespace: &mut Namespace,
    outcome: &Outcome,
) -> Result<(), kube::Error> {
    let mut status = namespace.status.clone().unwrap_or_default();
    status.phase = Some("Terminating".to_owned());
    let old = status.conditions.as_deref().unwrap_or_default();
    if let Some(conditions) = conditions::conditions(old, &outcome.findings, context.clock().time()) {
        status.conditions = Some(conditions);
    }
    if namespace.status.as_ref() == Some(&status) {
        return Ok(());
    }
    let next = Namespace { status: Some(status), ..namespace.clone() };
    let name = namespace.metadata.name.clone().unwrap_or_default();
    *namespace = api.replace_status(&name, &PostParams::default(), &next).await?;
    Ok(())
}

async fn finish(
    context: &Context,
    namespace: Namespace,
    outcome: Outcome,
    told: Result<(), kube::Error>,
) -> Result<Action, Error> {
    let findings = &outcome.findings;
    let failures = findings.discovery.iter().chain(&findings.failures);
    let failures: Vec<&str> = failures.map(String::as_str).collect();
    if !failures.is_empty() {
        return Err(Error::transient(failures.join(", ")));
    }
    if !outcome.estimate.is_zero() {
        told?;
        return Ok(Action::requeue_after(Duration::from_secs(outcome.estimate.as_secs() / 2 + 1)));
    }
    // All is gone; that the status could not say so is no reason to keep the namespace.
    match finalize(context, namespace).await {
        Err(error) if retry::is_not_found(&error) => Ok(Action::done()),
        answer => Ok(answer.map(|()| Action::done())?),
    }
}

/// Lets the namespace go, as far as its content is concerned.
async fn finalize(context: &Context, mut namespace: Namespace) -> Result<(), kube::Error> {
    let name = namespace.metadata.name.clone().unwrap_or_default();
    if let Some(finalizers) = namespace.spec.as_mut().and_then(|spec| spec.finalizers.as_mut()) {
        finalizers.retain(|finalizer| finalizer != FINALIZER);
    }
    namespace.status = None;
    let body = serde_json::to_vec(&namespace).map_err(kube::Error::SerdeError)?;
    let request = Request::new(Namespace::url_path(&(), None));
    let request = request.replace_subresource("finalize", &name, &PostParams::default(), body);
    context.client().request::<IgnoredAny>(request.map_err(kube::Error::BuildRequest)?).await.map(drop)
}

/// Whether the API server still waits for us.
fn is_held(namespace: &Namespace) -> bool {
    let finalizers = namespace.spec.iter().flat_map(|spec| spec.finalizers.iter().flatten());
    finalizers.into_iter().any(|finalizer| finalizer == FINALIZER)
}

/// How long ago the deletion was asked for, by our clock.
fn since(namespace: &Namespace, now: Timestamp) -> Duration {
    let begun = namespace.metadata.deletion_timestamp.as_ref().map_or(now, |time| time.0);
    now.duration_since(begun).try_into().unwrap_or(Duration::ZERO)
}

/// How long to wait before the content goes. A deletion that our clock says is yet to come needs no wait: clocks differ.
fn wait(namespace: &Namespace, now: Timestamp) -> Option<Duration> {
    let begun = namespace.metadata.deletion_timestamp.as_ref()?.0;
    let passed: Duration = now.duration_since(begun).try_into().ok()?;
    GRACE.checked_sub(passed).filter(|left| !left.is_zero())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    #[test]
    fn the_content_goes_five_seconds_after_the_deletion_by_any_clock() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let mut namespace = Namespace::default();
        assert_eq!(wait(&namespace, at(0)), None);
        namespace.metadata.deletion_timestamp = Some(Time(at(100)));
        for (now, expected) in [(100, Some(5)), (103, Some(2)), (105, None), (9_000, None), (50, None)] {
            assert_eq!(wait(&namespace, at(now)), expected.map(Duration::from_secs), "{now}");
        }
        assert_eq!(since(&namespace, at(130)), Duration::from_secs(30));
        assert_eq!(since(&namespace, at(30)), Duration::ZERO);
    }

    #[test]
    fn a_namespace_is_held_by_our_finalizer_only() {
        let with = |finalizers: &[&str]| -> Namespace {
            serde_json::from_value(serde_json::json!({"spec": {"finalizers": finalizers}})).unwrap()
        };
        assert!(is_held(&with(&["other", "kubernetes"])));
        assert!(!is_held(&with(&["other"])) && !is_held(&with(&[])) && !is_held(&Namespace::default()));
    }
}
