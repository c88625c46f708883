//! The members of an etcd cluster as one: calls go to one of them until it fails, then to the next.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prost::Message;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;

use super::grpc::{CallError, Connection, Stream};
use super::messages::{AUTHENTICATE, AuthenticateRequest, AuthenticateResponse, Empty, STATUS, StatusResponse};

/// How long a member may take until it speaks.
const DIAL_MAX: Duration = Duration::from_secs(2);

/// After no member could be reached, nobody tries again for so long.
const DIAL_PAUSE: Duration = Duration::from_millis(100);

/// One member of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// A name or an address.
    pub host: String,
    /// The port that clients use.
    pub port: u16,
}

impl Endpoint {
    /// From `HOST:PORT`; an address of IPv6 is in brackets.
    pub fn parse(text: &str) -> Option<Endpoint> {
        let (host, port) = text.rsplit_once(':')?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let sound =
            !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-:_".contains(&byte));
        Some(Endpoint { host: host.to_owned(), port: port.parse().ok().filter(|_| sound)? })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// Reaches the cluster.
pub(super) struct Channel {
    endpoints: Vec<Endpoint>,
    tls: Option<Arc<ClientConfig>>,
    credentials: Option<(String, String)>,
    current: Mutex<Current>,
    /// Calls that ended well, for the figures.
    pub(super) calls: AtomicU64,
}

#[derive(Default)]
struct Current {
    member: Option<Arc<Member>>,
    /// The endpoint to try first.
    next: usize,
    failed: Option<(Instant, CallError)>,
}

/// A member that is connected.
pub(super) struct Member {
    pub(super) connection: Connection,
    /// What it said of its version.
    pub(super) version: Version,
}

/// A version of etcd.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version(u32, u32, u32);

impl Version {
    fn parse(text: &str) -> Version {
        let mut parts = text.split(['.', '-', '+']).map(|part| part.parse().unwrap_or(0));
        let mut next = || parts.next().unwrap_or(0);
        Version(next(), next(), next())
    }

    /// Whether an answer to a request for progress never overtakes events. Before these versions it may (etcd issue 15220).
    pub(super) fn tells_progress_in_order(self) -> bool {
        self >= Version(3, 5, 8) || Version(3, 4, 25) <= self && self < Version(3, 5, 0)
    }
}

impl Channel {
    pub(super) fn new(
        endpoints: Vec<Endpoint>,
        tls: Option<Arc<ClientConfig>>,
        credentials: Option<(String, String)>,
    ) -> Channel {
        Channel { endpoints, tls, credentials, current: Mutex::default(), calls: AtomicU64::new(0) }
    }

    /// One request, one answer, within a time. Nothing is sent twice.
    pub(super) async fn call<Q: Message, A: Message + Default>(
        &self,
        method: &str,
        request: &Q,
        limit: Duration,
    ) -> Result<A, CallError> {
        let deadline = Instant::now() + limit;
        let too_late = || CallError::Unsent("etcd could not be reached in time".into());
        let member = timeout_at(deadline, self.member()).await.map_err(|_| too_late())??;
        let answered = timeout_at(deadline, member.connection.unary(method, request)).await;
        let answered = answered.unwrap_or_else(|_| Err(CallError::Lost("etcd did not answer in time".into())));
        match &answered {
            Ok(_) => drop(self.calls.fetch_add(1, Ordering::Relaxed)),
            Err(error) if error.is_final() || error.is_crowded() || *error == CallError::TooLarge => {}
            // It may be cut off from the others: another one may know better. What is under way with it fails.
            Err(_) => member.connection.close(),
        }
        answered
    }

    /// The same for what may be asked twice: until there is an answer, or the time is over.
    pub(super) async fn ask<Q: Message, A: Message + Default>(
        &self,
        method: &str,
        request: &Q,
        each: Duration,
        limit: Duration,
    ) -> Result<A, CallError> {
        let deadline = Instant::now() + limit;
        loop {
            match self.call(method, request, each).await {
                answered @ (Ok(_) | Err(CallError::Denied(_) | CallError::TooLarge)) => return answered,
                Err(error) if !error.is_final() && Instant::now() < deadline => {
                    tokio::time::sleep(DIAL_PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// A stream of requests and answers, and whom it is with.
    pub(super) async fn stream<Q: Message>(
        &self,
        method: &str,
        first: &Q,
        limit: Duration,
    ) -> Result<(Arc<Member>, Stream), CallError> {
        let member = self.member().await?;
        let opened = timeout(limit, member.connection.stream(method, first)).await;
        match opened.unwrap_or_else(|_| Err(CallError::Lost("etcd did not answer in time".into()))) {
            Ok(stream) => Ok((member, stream)),
            Err(error) => {
                member.connection.close();
                Err(error)
            }
        }
    }

    /// The member that calls go to.
    pub(super) async fn member(&self) -> Result<Arc<Member>, CallError> {
        let mut current = self.current.lock().await;
        if let Some(member) = current.member.as_ref().filter(|member| !member.connection.is_closed()) {
            return Ok(Arc::clone(member));
        }
        if let Some((at, error)) = &current.failed
            && at.elapsed() < DIAL_PAUSE
        {
            return Err(error.clone());
        }
        let (mut why, mut all_denied) = ("no member of etcd is named".to_owned(), true);
        for _ in 0..self.endpoints.len() {
            let endpoint = &self.endpoints[current.next % self.endpoints.len()];
            current.next = (current.next + 1) % self.endpoints.len();
            let dialled = timeout(DIAL_MAX, self.dial(endpoint)).await;
            match dialled.unwrap_or_else(|_| Err("it did not answer in time".to_owned().into())) {
                Ok(member) => {
                    let member = Arc::new(member);
                    current.member = Some(Arc::clone(&member));
                    current.failed = None;
                    return Ok(member);
                }
                Err(NotDialled { why: error, is_denied }) => {
                    why = format!("etcd at {endpoint} can't be reached: {error}");
                    all_denied &= is_denied;
                }
            }
        }
        let why = if all_denied { CallError::Denied(why) } else { CallError::Unsent(why) };
        current.failed = Some((Instant::now(), why.clone()));
        Err(why)
    }

    async fn dial(&self, endpoint: &Endpoint) -> Result<Member, NotDialled> {
        let stream = TcpStream::connect((&*endpoint.host, endpoint.port)).await.map_err(|error| error.to_string())?;
        // Small requests must not wait for each other.
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let connection = match &self.tls {
            None => Connection::open(stream, format!("http://{endpoint}")).await,
            Some(config) => {
                let name = ServerName::try_from(endpoint.host.clone()).map_err(|error| error.to_string())?;
                let secured = TlsConnector::from(Arc::clone(config)).connect(name, stream).await;
                let secured =
                    secured.map_err(|error| NotDialled { is_denied: is_disbelief(&error), why: error.to_string() });
                Connection::open(secured?, format!("https://{endpoint}")).await
            }
        };
        let connection = self.authenticated(connection.map_err(|error| error.to_string())?).await?;
        let status: Result<StatusResponse, CallError> = connection.unary(STATUS, &Empty {}).await;
        let version = match status {
            Ok(status) => Version::parse(&status.version),
            // It speaks, but tells this only to its administrators: then it counts as old.
            Err(error) if error.is_final() => Version::default(),
            Err(error) if self.credentials.is_none() && error.says("user name is empty") => {
                return Err(NotDialled { why: format!("it asks for a name and a password: {error}"), is_denied: true });
            }
            Err(error) => return Err(error.to_string().into()),
        };
        Ok(Member { connection, version })
    }

    async fn authenticated(&self, connection: Connection) -> Result<Connection, NotDialled> {
        let Some((name, password)) = &self.credentials else { return Ok(connection) };
        let request = AuthenticateRequest { name: name.clone(), password: password.clone() };
        let given: Result<AuthenticateResponse, CallError> = connection.unary(AUTHENTICATE, &request).await;
        match given {
            Ok(given) => Ok(connection.with_token(given.token)),
            Err(error) if error.says("authentication is not enabled") => Ok(connection),
            Err(error) => Err(NotDialled { is_denied: error.says("authentication failed"), why: error.to_string() }),
        }
    }
}

/// Why a member is not connected.
struct NotDialled {
    why: String,
    /// It does not believe who we are, or we don't who it is.
    is_denied: bool,
}

impl From<String> for NotDialled {
    fn from(why: String) -> NotDialled {
        NotDialled { why, is_denied: false }
    }
}

/// Whether a handshake failed by a certificate, and not by its way.
fn is_disbelief(error: &std::io::Error) -> bool {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    matches!(cause, Some(rustls::Error::InvalidCertificate(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_host_and_a_port() {
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(Endpoint::parse(text).map(|found| found.to_string()).as_deref(), expected, "{text}");
        };
        check("127.0.0.1:2379", Some("127.0.0.1:2379"));
        check("[::1]:2379", Some("[::1]:2379"));
        check("etcd-0.etcd:2379", Some("etcd-0.etcd:2379"));
        check("127.0.0.1", None);
        check(":2379", None);
        check("a/b:2379", None);
        check("a:70000", None);
    }

    #[test]
    fn old_versions_let_progress_overtake_events() {
        let check = |text, expected| assert_eq!(Version::parse(text).tells_progress_in_order(), expected, "{text}");
        check("3.6.5", true);
        check("3.7.0-rc.0", true);
        check("3.5.8", true);
        check("3.5.7", false);
        check("3.4.25", true);
        check("3.4.23", false);
        check("", false);
    }
}
