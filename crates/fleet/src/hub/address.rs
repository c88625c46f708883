//! Where hubs are: each writes it into one ConfigMap that everybody who is logged in may read, under its own name.
//!
//! An entry is taken back on an orderly stop. One of a hub that was killed stays until it is back: an agent that knows several hubs tries
//! one after another, so an entry too many costs it a moment.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use setpoint_runtime::manager::{Lifecycle, RunError, Runnable};
use tokio::time::{sleep, timeout};

/// Where the ConfigMap is.
pub const NAMESPACE: &str = "kube-public";
/// Its name.
pub const NAME: &str = "fleet-hubs";

/// The longest key of a ConfigMap.
const KEY_BYTES_MAX: usize = 253;

/// The longest name of a manager that the API takes.
const MANAGER_BYTES_MAX: usize = 128;

/// The first pause after it could not be written, doubled with each in a row, and the longest.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(300);

/// How long a hub that ends takes to say so.
const FAREWELL: Duration = Duration::from_secs(1);

/// Publishes where a hub is for as long as it runs.
pub struct Publishing {
    /// As the hub.
    pub client: Client,
    /// The name of the hub.
    pub hub: String,
    /// Where vehicles find it: `https://HOST:PORT`.
    pub url: String,
}

impl Publishing {
    async fn write(&self, entries: BTreeMap<String, &str>) -> Result<(), kube::Error> {
        let body = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME, "namespace": NAMESPACE}, "data": entries,
        });
        // Each hub owns its own entry, and with it nobody else's.
        let mut manager = format!("fleet-hub/{}", key(&self.hub));
        manager.truncate(MANAGER_BYTES_MAX);
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), NAMESPACE);
        api.patch(NAME, &PatchParams::apply(&manager).force(), &Patch::Apply(body)).await.map(drop)
    }

    async fn publish(&self) {
        let mut pause = PAUSE;
        while let Err(error) = self.write([(key(&self.hub), &*self.url)].into()).await {
            tracing::warn!(%error, "where this hub is could not be published; it is tried again");
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

impl Runnable for Publishing {
    fn name(&self) -> &str {
        "fleet-hub-address"
    }

    fn needs_leadership(&self) -> bool {
        false
    }

    fn run(self: Box<Self>, lifecycle: Lifecycle) -> BoxFuture<'static, Result<(), RunError>> {
        Box::pin(async move {
            // Vehicles that are enrolled already don't need it.
            lifecycle.ready();
            tokio::select! {
                biased;
                () = lifecycle.draining() => return Ok(()),
                () = self.publish() => {}
            }
            lifecycle.draining().await;
            // Who can't be told of it any more finds a hub that isn't there.
            let _ = timeout(FAREWELL, self.write(BTreeMap::new())).await;
            Ok(())
        })
    }
}

/// Where hubs are, as they say themselves; in the order of their names.
///
/// # Errors
/// What the API server says.
pub async fn published(client: &Client) -> Result<Vec<String>, kube::Error> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let data = api.get_opt(NAME).await?.and_then(|found| found.data).unwrap_or_default();
    let mut urls: Vec<String> = data.into_values().collect();
    urls.dedup();
    Ok(urls)
}

/// The name of a hub as a key: what a key may not have is a dash.
fn key(hub: &str) -> String {
    let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    let key: String = hub.chars().map(|letter| if is_allowed(letter) { letter } else { '-' }).collect();
    // `..` at the beginning is the one thing that the letters don't rule out.
    let key = if key.is_empty() || key.starts_with('.') { format!("hub-{key}") } else { key };
    key.chars().take(KEY_BYTES_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_of_a_hub_is_a_key() {
        for (hub, expected) in
            [("depot-1", "depot-1"), ("a b/ü", "a-b--"), ("", "hub-"), ("..", "hub-.."), ("A.b_c", "A.b_c")]
        {
            assert_eq!(key(hub), expected);
        }
        assert_eq!(key(&"x".repeat(300)).len(), 253);
    }
}
