//! How fast requests go to the API server, and which of them are sent again: what client-go does below every client.
//!
//! - Without `qps` nothing waits here: servers with flow control say themselves when it is too much.
//! - A request is sent again only if the server said when to come back (`Retry-After`), so its own order is kept. Everything else is
//!   an error for whoever asked, who knows better what to do about it.
//! - Leases are neither held back nor counted against the rest: a leader that waits behind its own controllers loses its place.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{HeaderMap, Request, StatusCode, header};
use kube::client::Body;
use tokio::time::Instant;

use crate::queue::limiter::{Bucket, Limiter};

/// How often a request is sent again at most. Same as client-go.
pub const RETRIES: u32 = 10;

/// Requests at once before `qps` counts. Same as controller-runtime's.
pub const BURST: u32 = 30;

/// Longest time that a server may ask a request to wait here. Beyond it the answer is an error: a worker that sleeps so long does
/// nothing else, while its queue could.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// How the clients of a manager treat the API server.
///
/// ```no_run
/// # fn example(client: kube::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use setpoint_runtime::clock::{Chance, Clock};
/// use setpoint_runtime::manager::{Manager, ManagerOptions};
/// use setpoint_runtime::throttle::ClientOptions;
///
/// let client_options = ClientOptions { qps: Some(20.0), ..ClientOptions::default() };
/// let options = ManagerOptions { client: client_options, ..ManagerOptions::default() };
/// let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse()?);
/// let manager = Manager::new(client, clock, Chance::seeded(1), options)?;
/// let held_back = manager.client();
/// # let _ = held_back;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ClientOptions {
    /// Requests per second, of all clients of a manager together; none for no limit.
    pub qps: Option<f64>,
    /// Requests at once before that counts.
    pub burst: u32,
    /// How often a request is sent again that the server put off.
    pub retries: u32,
}

impl Default for ClientOptions {
    fn default() -> Self {
        ClientOptions { qps: None, burst: BURST, retries: RETRIES }
    }
}

/// What the clients of a manager share. Clones are the same bucket.
#[derive(Clone, Debug)]
pub(crate) struct Throttle {
    bucket: Option<Arc<Mutex<Bucket>>>,
    retries: u32,
}

impl Throttle {
    pub fn new(options: &ClientOptions) -> Throttle {
        let bucket = options.qps.map(|qps| Arc::new(Mutex::new(Bucket::new(qps, options.burst))));
        Throttle { bucket, retries: options.retries }
    }

    /// Takes everything and sends nothing again: for elections, which have a time of their own for each attempt.
    pub fn none() -> Throttle {
        Throttle { bucket: None, retries: 0 }
    }

    /// Waits until a request may go; for how long, if there is a limit at all.
    pub async fn pass(&self) -> Option<Duration> {
        let bucket = self.bucket.as_ref()?;
        let wait =
            Limiter::<()>::delay(&mut *bucket.lock().unwrap_or_else(PoisonError::into_inner), &(), Instant::now());
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        Some(wait)
    }

    /// The same request once more, should it be put off; none if it can't be or must not be.
    pub fn spare(&self, request: &Request<Body>, sent_again: u32) -> Option<Request<Body>> {
        if sent_again >= self.retries {
            return None;
        }
        let mut spare = Request::new(request.body().try_clone()?);
        *spare.method_mut() = request.method().clone();
        *spare.uri_mut() = request.uri().clone();
        *spare.version_mut() = request.version();
        *spare.headers_mut() = request.headers().clone();
        *spare.extensions_mut() = request.extensions().clone();
        Some(spare)
    }
}

/// When the server wants to be asked again, if it put a request off.
pub(crate) fn put_off(status: StatusCode, headers: &HeaderMap) -> Option<Duration> {
    let is_moment = status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error();
    let seconds = headers.get(header::RETRY_AFTER).filter(|_| is_moment)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds)).filter(|wait| *wait <= WAIT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_server_put_off_for_a_while_is_sent_again() {
        for (status, retry_after, wait) in [
            (429, Some("1"), Some(1)),
            (503, Some("30"), Some(30)),
            (500, Some("0"), Some(0)),
            (429, None, None),
            (503, Some("31"), None),
            (503, Some("Wed, 21 Oct 2026 07:28:00 GMT"), None),
            (429, Some("-1"), None),
            (409, Some("1"), None),
            (200, Some("1"), None),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(retry_after) = retry_after {
                headers.insert(header::RETRY_AFTER, retry_after.parse().unwrap());
            }
            let found = put_off(StatusCode::from_u16(status).unwrap(), &headers);
            assert_eq!(found, wait.map(Duration::from_secs), "{status} {retry_after:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn requests_beyond_the_burst_wait_for_their_turn_whoever_sends_them() {
        let throttle = Throttle::new(&ClientOptions { qps: Some(10.0), burst: 2, ..ClientOptions::default() });
        let begin = Instant::now();
        for expected in [0, 0, 100, 200] {
            throttle.clone().pass().await;
            assert_eq!(begin.elapsed(), Duration::from_millis(expected));
        }
        assert_eq!(Throttle::new(&ClientOptions::default()).pass().await, None, "no limit, no wait to measure");
    }

    #[test]
    fn a_spare_request_is_the_same_request_and_there_are_only_so_many() {
        let throttle = Throttle::new(&ClientOptions { retries: 2, ..ClientOptions::default() });
        let mut request = Request::put("/a?b=c").header("x", "y").body(Body::from(b"body".to_vec())).unwrap();
        request.extensions_mut().insert(7_u8);
        let spare = throttle.spare(&request, 1).unwrap();
        assert_eq!((spare.method(), spare.uri().to_string()), (&http::Method::PUT, "/a?b=c".to_owned()));
        assert_eq!((spare.headers(), spare.extensions().get::<u8>()), (request.headers(), Some(&7)));
        assert!(throttle.spare(&request, 2).is_none());
        assert!(Throttle::none().spare(&request, 0).is_none());
    }
}
