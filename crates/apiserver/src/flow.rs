//! How many requests run at once. Over the bound they wait a little, then are told to come back.

use std::time::Duration;

use setpoint_api::Status;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Requests that run at once: those that read and those that write together, as kube-apiserver's defaults add up (400 and
/// 200).
pub const IN_FLIGHT_MAX: usize = 600;

/// Longest wait for a place. Clients try again by themselves after a 429.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// Hands out places to requests.
pub(crate) struct Flow(Semaphore);

impl Default for Flow {
    fn default() -> Flow {
        Flow(Semaphore::new(IN_FLIGHT_MAX))
    }
}

impl Flow {
    /// A place, in the order of asking; 429 if none becomes free in time.
    pub(crate) async fn enter(&self) -> Result<SemaphorePermit<'_>, Box<Status>> {
        if let Ok(place) = self.0.try_acquire() {
            return Ok(place);
        }
        match tokio::time::timeout(WAIT_MAX, self.0.acquire()).await {
            Ok(Ok(place)) => Ok(place),
            _ => Err(Box::new(Status::too_many_requests("too many requests, please try again later", 1))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn over_the_bound_requests_wait_and_then_are_told_to_come_back() {
        let flow = Flow::default();
        let mut places = Vec::new();
        for _ in 0..IN_FLIGHT_MAX {
            places.push(flow.enter().await.unwrap());
        }
        let refused = flow.enter().await.unwrap_err();
        assert_eq!((refused.code, &*refused.reason), (429, "TooManyRequests"));
        places.pop();
        assert!(flow.enter().await.is_ok());
    }
}
