//! Trying again after a conflict: someone else wrote first, so read again and decide again.

use std::future::Future;
use std::time::Duration;

use tokio::time::sleep;

use crate::clock::Chance;

/// How often, and how long to wait in between.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Retry {
    /// Attempts in all.
    pub attempts: u32,
    /// The first wait.
    pub wait: Duration,
    /// What each wait is multiplied with for the next.
    pub factor: f64,
    /// By how much of itself a wait is stretched at most.
    pub jitter: f64,
}

impl Retry {
    /// For conflicts with others who write the same object now and then. Same as client-go: five attempts, 10 ms apart.
    pub const CONFLICT: Retry = Retry { attempts: 5, wait: Duration::from_millis(10), factor: 1.0, jitter: 0.1 };

    /// For conflicts with many who write the same object all the time. Same as client-go: four attempts, from 10 ms, times five.
    pub const BUSY: Retry = Retry { attempts: 4, wait: Duration::from_millis(10), factor: 5.0, jitter: 0.1 };

    /// Calls `attempt` until it succeeds, fails for another reason than a conflict, or has failed too often. Each attempt
    /// must read the object anew.
    ///
    /// ```no_run
    /// # async fn doc(nodes: kube::Api<k8s_openapi::api::core::v1::Node>, chance: setpoint_runtime::clock::Chance) -> Result<(), kube::Error> {
    /// use kube::api::PostParams;
    /// use setpoint_runtime::retry::Retry;
    ///
    /// let cordon = || async {
    ///     let mut node = nodes.get("node-1").await?;
    ///     node.spec.get_or_insert_default().unschedulable = Some(true);
    ///     nodes.replace("node-1", &PostParams::default(), &node).await
    /// };
    /// Retry::CONFLICT.on_conflict(&chance, cordon).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn on_conflict<T, F>(&self, chance: &Chance, mut attempt: impl FnMut() -> F) -> Result<T, kube::Error>
    where
        F: Future<Output = Result<T, kube::Error>>,
    {
        let mut wait = self.wait;
        for _ in 1..self.attempts {
            match attempt().await {
                Err(error) if is_conflict(&error) => sleep(chance.jitter(wait, self.jitter)).await,
                answer => return answer,
            }
            wait = wait.mul_f64(self.factor);
        }
        attempt().await
    }
}

/// Whether someone else wrote first.
pub fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409 && status.reason != "AlreadyExists")
}

/// Whether the object to be created is there already.
pub fn is_already_exists(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.reason == "AlreadyExists")
}

/// Whether there is no such object.
pub fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use kube::api::PostParams;
    use serde_json::json;

    use super::*;
    use crate::fake_api::{FakeApi, Fault};

    const MAP: &str = "/api/v1/namespaces/default/configmaps/a";

    /// Refuses the first writes with these codes, and counts all attempts.
    async fn check(codes: &'static [u16], expected_attempts: usize, expected: Result<(), u16>) {
        let api = FakeApi::default();
        api.put_at(MAP, json!({"metadata": {"name": "a"}}));
        let (mut refuse, mut attempts) = (codes.iter().copied(), 0);
        api.plan(move |call| match call.method == http::Method::PUT {
            true => refuse.next().map_or(Fault::None, Fault::Refuse),
            false => Fault::None,
        });
        let maps: Api<ConfigMap> = Api::default_namespaced(api.client());
        let attempt = || {
            attempts += 1;
            async {
                let map = maps.get("a").await?;
                maps.replace("a", &PostParams::default(), &map).await
            }
        };
        let answer = Retry::CONFLICT.on_conflict(&Chance::seeded(1), attempt).await;
        let answer = answer.map(drop).map_err(|error| match error {
            kube::Error::Api(status) => status.code,
            other => panic!("{other}"),
        });
        assert_eq!((answer, attempts), (expected, expected_attempts));
    }

    #[tokio::test(start_paused = true)]
    async fn only_conflicts_are_tried_again_and_only_so_often() {
        check(&[], 1, Ok(())).await;
        check(&[409, 409], 3, Ok(())).await;
        check(&[409; 9], 5, Err(409)).await;
        check(&[409, 500], 2, Err(500)).await;
    }
}
