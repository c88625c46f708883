//! Takes away bootstrap tokens whose time is over.
//!
//! The server takes no such token any more: this is so that nobody who looks for what can still be used is misled.

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, Preconditions};
use setpoint_runtime::Key;
use setpoint_runtime::cache::{Informer, Target};
use setpoint_runtime::controller::{Action, Context, Error};
use setpoint_runtime::manager::ManagerError;
use setpoint_runtime::retry;

use crate::Wiring;

/// Where bootstrap tokens are.
const NAMESPACE: &str = "kube-system";

/// Which Secrets they are.
const BOOTSTRAP: &str = "type=bootstrap.kubernetes.io/token";

/// Adds the controller.
pub fn add(wiring: &Wiring<'_>) -> Result<(), ManagerError> {
    let desk = wiring.desk("token-cleaner-controller")?;
    let target = Target::of::<Secret>(&(), Some(NAMESPACE));
    let tokens: Informer<Secret> = wiring.informer_of(Target { field_selector: Some(BOOTSTRAP.to_owned()), ..target });
    let cache = tokens.clone();
    let controller =
        desk.controller(&tokens, 1).build(move |context: Context, key: Key| reconcile(context, cache.clone(), key));
    desk.run(controller)
}

async fn reconcile(context: Context, tokens: Informer<Secret>, key: Key) -> Result<Action, Error> {
    let Some(token) = context.read(&tokens, &key) else { return Ok(Action::done()) };
    let Some(end) = ends_at(&token) else { return Ok(Action::done()) };
    let wait = context.clock().until(end);
    if !wait.is_zero() {
        return Ok(Action::requeue_after(wait));
    }
    // Somebody may have given it more time since the cache saw it.
    let preconditions = Some(Preconditions {
        uid: token.metadata.uid.clone(),
        resource_version: token.metadata.resource_version.clone(),
    });
    let api: Api<Secret> = Api::namespaced(context.client().clone(), NAMESPACE);
    match api.delete(key.name(), &DeleteParams { preconditions, ..DeleteParams::default() }).await {
        Err(error) if retry::is_not_found(&error) => Ok(Action::done()),
        other => Ok(other.map(|_| Action::done())?),
    }
}

/// When a token's time is over; none if it has no end. A time that can't be read is over.
fn ends_at(token: &Secret) -> Option<Timestamp> {
    let text = &token.data.as_ref()?.get("expiration").filter(|text| !text.0.is_empty())?.0;
    let end = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    Some(end.unwrap_or(Timestamp::MIN))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;

    use super::*;

    #[test]
    fn a_token_ends_when_it_says() {
        let check = |expiration: Option<&str>, expected: Option<&str>| {
            let data = expiration.map(|text| [("expiration".to_owned(), ByteString(text.into()))].into());
            let found = ends_at(&Secret { data, ..Secret::default() });
            assert_eq!(found.map(|end| end.to_string()).as_deref(), expected, "{expiration:?}");
        };
        check(None, None);
        check(Some(""), None);
        check(Some("2026-01-01T00:00:00Z"), Some("2026-01-01T00:00:00Z"));
        check(Some("2026-01-01T02:00:00+02:00"), Some("2026-01-01T00:00:00Z"));
        check(Some("tomorrow"), Some(&Timestamp::MIN.to_string()));
    }
}
