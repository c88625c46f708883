//! On which day the token of a Secret was last used, as a label of the Secret: so that those can be found that nobody needs.

use std::collections::BTreeSet;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use setpoint_api::{GroupResource, Status, time};
use setpoint_schema::Edit;
use tokio::sync::Notify;

use crate::call::{Call, System};
use crate::query::WriteOptions;
use crate::server::Inner;
use crate::verbs;

const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";

/// Most Secrets that wait for their label. What is not noted now is with the next use.
const WAITING_MAX: usize = 1024;

const DAY: i64 = 24 * 3600;

/// Secrets whose label is not that of the day.
#[derive(Default)]
pub(crate) struct Uses {
    waiting: Mutex<BTreeSet<Secret>>,
    more: Notify,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Secret {
    namespace: String,
    name: String,
    uid: String,
}

impl Uses {
    /// Notes that the token in a Secret was used. Costs nothing from the second time on of each day.
    pub(super) fn note(&self, secret: &Value, now: i64) {
        if is_told(secret, now) {
            return;
        }
        let text = |field: &str| secret["metadata"].text(field).to_owned();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() < WAITING_MAX {
            waiting.insert(Secret { namespace: text("namespace"), name: text("name"), uid: text("uid") });
            self.more.notify_one();
        }
    }

    fn take(&self) -> BTreeSet<Secret> {
        mem::take(&mut self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Servers whose clocks are apart don't take turns around midnight: tomorrow is as good as today.
fn is_told(secret: &Value, now: i64) -> bool {
    let told = secret["metadata"]["labels"].text(LAST_USED);
    told == day(now) || told == day(now + DAY)
}

fn day(seconds: i64) -> String {
    let mut text = time::format_rfc3339(seconds);
    text.truncate("2006-01-02".len());
    text
}

/// Writes the labels until the server stops.
pub(crate) async fn run(server: Arc<Inner>) {
    let write = async {
        loop {
            server.legacy_uses.more.notified().await;
            for secret in server.legacy_uses.take() {
                // The next use tells it again.
                if let Err(status) = tell(&server, &secret).await {
                    tracing::debug!(error = %status.message, "the last use of a token could not be noted");
                }
            }
        }
    };
    server.until_stopped(write).await;
}

async fn tell(server: &Inner, secret: &Secret) -> Result<(), Box<Status>> {
    let resource = GroupResource::new("", "secrets");
    let served = server.registry.find(&resource.group, "v1", &resource.resource).expect("a built-in kind");
    let system = System::default();
    let mut call = Call::of_system(server, served, &system, Some(&secret.namespace), Some(&secret.name), None);
    let now = server.clock.seconds();
    let mut make = |_: &mut Call<'_>, old: &Value| {
        let mut new = old.clone();
        if old["metadata"].text("uid") == secret.uid && !is_told(old, now) {
            new.ensure("metadata").ensure("labels").set(LAST_USED, day(now));
        }
        Ok(new)
    };
    verbs::change(&mut call, &WriteOptions::of_system(), &mut make).await.map(|_| ())
}
