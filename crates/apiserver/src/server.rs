//! The service: a request in, an answer out. Sockets and in-process clients call the same one.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use futures_util::FutureExt;
use http::{Method, Request, Response};
use setpoint_api::{Status, percent};
use setpoint_store::Store;
use tokio::sync::watch;

use crate::admission::quota::Queues;
use crate::admission::{Extensions, Plugin};
use crate::answer::{self, Answer};
use crate::audit::{self, Audit, Noted, Record};
use crate::authorization::{self, Access, Asked, Narrowed};
use crate::body::Body;
use crate::call::Call;
use crate::clock::{Chance, Clock};
use crate::event_rate::EventRate;
use crate::fence::Fence;
use crate::flow::{Flow, Place};
use crate::inbox::{Inbox, Received};
use crate::metrics::Metrics;
use crate::nearby::NearbyNodes;
use crate::path::{self, ResourcePath, Target};
use crate::query::Query;
use crate::registry::{Kinds, Registry, Served};
use crate::representation::{self, Media};
use crate::tokens::{LegacyUses, Signer};
use crate::user::{InProcess, RefusedCertificate, User};
use crate::{compression, discovery, freshness, health, node_metrics, tokens, verbs};

/// The API server. Clones share everything.
#[derive(Clone)]
pub struct ApiServer {
    pub(crate) inner: Arc<Inner>,
}

/// Figures in the text form of Prometheus.
pub(crate) type Figures = Box<dyn Fn() -> String + Send + Sync>;

/// Answers for paths under `/debug/`.
pub(crate) type Debug =
    Box<dyn Fn(Method, http::Uri) -> Pin<Box<dyn Future<Output = Response<Body>> + Send>> + Send + Sync>;

/// What all requests share.
pub(crate) struct Inner {
    pub(crate) store: Store,
    /// The built-in kinds.
    pub(crate) registry: Arc<Registry>,
    /// All kinds, as of what is stored.
    pub(crate) kinds: Arc<Kinds>,
    pub(crate) clock: Clock,
    pub(crate) chance: Chance,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) flow: Flow,
    /// Where bodies are gathered before their requests run.
    inbox: Inbox,
    /// How many Events were written lately.
    event_rate: EventRate,
    /// Who may do what.
    pub(crate) access: Arc<Access>,
    /// The webhooks and policies of the moment.
    pub(crate) extensions: Extensions,
    /// Where writers wait for others that write to the same quotas.
    pub(crate) quota_queues: Queues,
    /// Signs service account tokens; without one there are none.
    pub(crate) signer: OnceLock<Signer>,
    /// Secrets whose token was used on a day that they don't tell yet.
    pub(crate) legacy_uses: LegacyUses,
    /// Where clients find this server.
    pub(crate) address: OnceLock<SocketAddr>,
    /// Who did what, for those who want to know later.
    pub(crate) audit: OnceLock<Audit>,
    /// Writes the figures of what runs in the same process.
    pub(crate) beside: OnceLock<Figures>,
    /// Rules that are left out.
    left_out: OnceLock<Vec<Plugin>>,
    /// Nodes that need no connection.
    pub(crate) nearby: OnceLock<Arc<dyn NearbyNodes>>,
    /// Whether there are roles for the parts of this process too.
    has_roles: AtomicBool,
    /// Whether pods that could take over their node are warned of where a namespace says nothing about it.
    pub(crate) warns_of_risky_pods: AtomicBool,
    /// Whether figures of nodes and pods are served.
    pub(crate) serves_node_metrics: AtomicBool,
    /// Shows what goes on in the process.
    pub(crate) debug: OnceLock<Debug>,
    /// True once the server is going down: watches end.
    pub(crate) stopping: watch::Receiver<bool>,
}

impl ApiServer {
    /// A server over a store that was opened with this registry.
    pub fn new(
        store: Store,
        registry: Arc<Registry>,
        clock: Clock,
        chance: Chance,
        stopping: watch::Receiver<bool>,
    ) -> ApiServer {
        ApiServer {
            inner: Arc::new(Inner {
                store,
                kinds: Arc::new(Kinds::new(Arc::clone(&registry))),
                registry,
                clock,
                chance,
                metrics: Arc::default(),
                flow: Flow::default(),
                inbox: Inbox::default(),
                event_rate: EventRate::default(),
                access: Arc::default(),
                extensions: Extensions::default(),
                quota_queues: Queues::default(),
                signer: OnceLock::new(),
                legacy_uses: LegacyUses::default(),
                address: OnceLock::new(),
                audit: OnceLock::new(),
                beside: OnceLock::new(),
                left_out: OnceLock::new(),
                nearby: OnceLock::new(),
                has_roles: AtomicBool::new(false),
                warns_of_risky_pods: AtomicBool::new(false),
                serves_node_metrics: AtomicBool::new(false),
                debug: OnceLock::new(),
                stopping,
            }),
        }
    }

    /// Signs service account tokens with this. Whoever comes first stays.
    pub fn sign_with(&self, signer: Signer) {
        let _ = self.inner.signer.set(signer);
    }

    /// Leaves these rules of admission out. Whoever comes first stays.
    pub fn leave_out(&self, plugins: Vec<Plugin>) {
        let _ = self.inner.left_out.set(plugins);
    }

    /// Writes down in `log` what `policy` says. Whoever comes first stays.
    pub fn audit(&self, policy: audit::Policy, log: audit::Log) {
        let _ = self.inner.audit.set(Audit::new(policy, log));
    }

    /// Shows the figures of what runs in the same process with the server's own. Whoever comes first stays.
    pub fn show_figures(&self, figures: impl Fn() -> String + Send + Sync + 'static) {
        let _ = self.inner.beside.set(Box::new(figures));
    }

    /// Asks these nodes for the logs of their pods. Whoever comes first stays.
    pub fn reach(&self, nodes: Arc<dyn NearbyNodes>) {
        let _ = self.inner.nearby.set(nodes);
    }

    /// Warns of pods that could take over their node, where the labels of a namespace say nothing about them. Kubernetes warns only of what
    /// labels name.
    pub fn warn_of_risky_pods(&self) {
        self.inner.warns_of_risky_pods.store(true, Ordering::Relaxed);
    }

    /// Serves what nodes and pods use, as the group `metrics.k8s.io`. Where nobody measures, the group is better not there.
    pub fn serve_node_metrics(&self) {
        self.inner.serves_node_metrics.store(true, Ordering::Relaxed);
    }

    /// Shows what `answer` says at the paths under `/debug/`, to those who may see it. Whoever comes first stays.
    pub fn show_debug<F>(&self, answer: impl Fn(Method, http::Uri) -> F + Send + Sync + 'static)
    where
        F: Future<Output = Response<Body>> + Send + 'static,
    {
        let _ = self.inner.debug.set(Box::new(move |method, uri| Box::pin(answer(method, uri))));
    }

    /// Keeps in order what the server itself answers for, definitions of custom kinds first of all, until it stops. Run
    /// beside the service, once for each.
    pub fn tend(&self) -> impl Future<Output = ()> + Send + use<> {
        let [definitions, schemas, events, access, api_services, tokens] = [(); 6].map(|()| Arc::clone(&self.inner));
        async {
            tokio::join!(
                crate::definitions::run(definitions),
                crate::flow_schemas::run(schemas),
                crate::event_expiry::run(events),
                crate::authorization::run(access),
                crate::api_service_availability::run(api_services),
                crate::tokens::note_legacy_uses(tokens)
            )
            .0
        }
    }

    /// Keeps in the status of policies what is wrong with the types of their expressions, until the server stops. Where nothing but the
    /// server runs, nobody does, as in Kubernetes.
    pub fn check_policies(&self) -> impl Future<Output = ()> + Send + use<> {
        crate::admission::policy::typing::run(Arc::clone(&self.inner))
    }

    /// Makes what must always be there: the system's namespaces, the service range and the API's own Service.
    /// `listen` is where it can be reached.
    pub async fn prepare(&self, listen: SocketAddr) -> Result<(), Box<Status>> {
        let _ = self.inner.address.set(listen);
        crate::bootstrap::run(&self.inner, listen).await
    }

    /// Makes the roles and bindings that Kubernetes has from the start. Without them nobody but `system:masters` gets anything.
    ///
    /// From then on the parts of this process get no more than their roles allow, like anybody else.
    pub async fn prepare_roles(&self) -> Result<(), Box<Status>> {
        crate::bootstrap::make_roles(&self.inner).await?;
        self.inner.has_roles.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Makes the roles of those parts of `setpoint up` that Kubernetes has no role for.
    pub async fn prepare_own_roles(&self) -> Result<(), Box<Status>> {
        crate::bootstrap::make_own_roles(&self.inner).await
    }
}

#[cfg(test)]
impl ApiServer {
    /// What is granted now.
    pub(crate) fn policies(&self) -> Arc<crate::authorization::Policies> {
        self.inner.access.current(&self.inner.store)
    }
}

impl tower::Service<Request<Body>> for ApiServer {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let inner = Arc::clone(&self.inner);
        Box::pin(async move {
            let (method, uri) = (request.method().clone(), request.uri().clone());
            // Who asks, and what they may, is judged by what is newest too. Where that can't be had, they are told so as anybody is told
            // anything: known, and written down.
            let fresh = freshness::wait(&inner.store, &method, &uri).await;
            let registry = inner.kinds.current(&inner.store);
            let observation = inner.metrics.begin(&registry, &method, &uri);
            let id = inner.audit.get().map(|_| audit::request_id(request.headers(), &inner.chance));
            let mut record = None;
            let handled = inner.handle(&registry, request, fresh, id.as_deref(), &mut record);
            let mut response = match AssertUnwindSafe(handled).catch_unwind().await {
                Ok(response) => match record {
                    Some(record) => record.answered(response),
                    None => response,
                },
                Err(_) => {
                    tracing::error!(%method, path = uri.path(), "a handler panicked");
                    if let Some(record) = record {
                        record.panicked();
                    }
                    answer::status(&Status::internal_error(
                        "the request could not be handled; the server's log has the cause",
                    ))
                }
            };
            if let Some(id) = id {
                audit::name_answer(&mut response, &id);
            }
            Ok(inner.metrics.end(observation, response))
        })
    }
}

impl Inner {
    /// Whether a rule of admission is not left out.
    pub(crate) fn runs(&self, plugin: Plugin) -> bool {
        self.left_out.get().is_none_or(|left_out| !left_out.contains(&plugin))
    }

    /// Does work that has no end of its own, until the server stops.
    pub(crate) async fn until_stopped(&self, work: impl Future<Output = ()>) {
        let mut stopping = self.stopping.clone();
        tokio::select! {
            biased;
            _ = stopping.wait_for(|stopping| *stopping) => {}
            () = work => {}
        }
    }

    /// Answers a request. `record` is made on the way, if the request is to be written down, and left for the caller to end.
    pub(crate) async fn handle(
        &self,
        registry: &Arc<Registry>,
        request: Request<Body>,
        fresh: Result<(), Box<Status>>,
        id: Option<&str>,
        record: &mut Option<Record>,
    ) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let target = path::parse(parts.uri.path());
        let user = self.authenticated(&parts);
        if let (Some(audit), Some(id)) = (self.audit.get(), id) {
            *record = Record::begin(audit, &self.clock, id, &parts, &target, user.as_ref().ok());
        }
        let user = match user {
            Ok(user) => user,
            Err(status) => {
                let response = answer::status(&status);
                if let Some(record) = record.take() {
                    record.turned_away(&response);
                }
                return response;
            }
        };
        record.iter_mut().for_each(Record::received);
        match fresh.and_then(|()| self.caller(&parts, &target, user, record)) {
            Err(status) => answer::status(&status),
            Ok(mut caller) => {
                let response = self.answer(registry, &parts, target, &mut caller, body).await;
                record.iter_mut().for_each(|record| record.take(std::mem::take(&mut caller.noted)));
                response
            }
        }
    }

    /// The answer to somebody.
    async fn answer(
        &self,
        registry: &Arc<Registry>,
        parts: &http::request::Parts,
        target: Target<'_>,
        caller: &mut Caller,
        body: Body,
    ) -> Response<Body> {
        match target {
            Target::Other(segments) => {
                let result = self.path(registry, parts, &segments, caller).await;
                result.unwrap_or_else(|status| answer::status(&status))
            }
            Target::Resource(path) => {
                let result = self.resource(registry, parts, path, caller, body).await;
                result.unwrap_or_else(|status| refusal(parts, &status))
            }
        }
    }

    /// Whose credentials came with a request: the holder of a client certificate of our CA or of a token of ours. Without
    /// any of these it is somebody unknown.
    fn authenticated(&self, parts: &http::request::Parts) -> Result<Arc<User>, Box<Status>> {
        let (extensions, headers) = (&parts.extensions, &parts.headers);
        if extensions.get::<RefusedCertificate>().is_some() {
            return Err(Box::new(Status::unauthorized("Unauthorized")));
        }
        match (extensions.get::<Arc<User>>(), tokens::bearer(headers)) {
            (Some(user), _) if user.is_settled() => Ok(Arc::clone(user)),
            (Some(user), _) => Ok(Arc::new(User::clone(user).settled())),
            (None, Some(token)) => {
                tokens::holder(self, token).ok_or_else(|| Box::new(Status::unauthorized("Unauthorized")))
            }
            (None, None) => Ok(Arc::new(User::anonymous())),
        }
    }

    /// Who asks: whose credentials they are, or someone for whom they may act.
    fn caller(
        &self,
        parts: &http::request::Parts,
        target: &Target<'_>,
        user: Arc<User>,
        record: &mut Option<Record>,
    ) -> Result<Caller, Box<Status>> {
        let internal = parts.extensions.get::<InProcess>().is_some() && !self.has_roles.load(Ordering::Relaxed);
        let noted = record.as_ref().map(Record::notes).unwrap_or_default();
        Ok(match authorization::impersonated(self, &user, parts, target)? {
            Some(acting) => {
                record.iter_mut().for_each(|record| record.acts_as(&acting));
                Caller { user: Arc::new(acting.user), internal: false, noted }
            }
            None => Caller { user, internal, noted },
        })
    }

    /// The answer at a path that is none of a resource.
    async fn path(
        &self,
        registry: &Arc<Registry>,
        parts: &http::request::Parts,
        segments: &[&str],
        caller: &mut Caller,
    ) -> Answer {
        let verb = parts.method.as_str().to_ascii_lowercase();
        let asked = Asked::of_path(&verb, parts.uri.path());
        if !caller.internal
            && let Err(refusal) = self.check_access(caller, &asked)
        {
            return self.in_turn(parts, caller, &asked, answer::status(&refusal)).await;
        }
        if let Some(answer) = self.debug.get().filter(|_| segments.first() == Some(&"debug")) {
            // A profile takes as long as it was asked to: it would hold its place for nothing.
            return Ok(answer(parts.method.clone(), parts.uri.clone()).await);
        }
        let place = self.place(parts, caller, &asked, 1).await?;
        let mut response = match health::is_asked(segments) {
            true => health::answer(self, &parts.method, segments, parts.uri.query().unwrap_or("")),
            false => discovery::answer(self, registry, parts, segments),
        };
        place.tell(&mut response);
        Ok(response)
    }

    /// A refusal takes its turn like any answer: otherwise those who may do nothing could ask without limit.
    async fn in_turn(
        &self,
        parts: &http::request::Parts,
        caller: &Caller,
        asked: &Asked<'_>,
        mut refused: Response<Body>,
    ) -> Answer {
        self.place(parts, caller, asked, 1).await?.tell(&mut refused);
        Ok(refused)
    }

    /// A place among the requests that run. Parts of this process need none: their work is bounded where it begins.
    async fn place(
        &self,
        parts: &http::request::Parts,
        caller: &Caller,
        asked: &Asked<'_>,
        listed: usize,
    ) -> Result<Place, Box<Status>> {
        match parts.extensions.get::<InProcess>() {
            Some(_) => Ok(Place::default()),
            None => self.flow.enter(&self.store, &caller.user, asked, listed).await,
        }
    }

    /// Whether somebody may do something, and if not, the refusal. The reason is noted either way.
    fn check_access(&self, caller: &mut Caller, asked: &Asked<'_>) -> Result<(), Box<Status>> {
        if !caller.noted.is_kept() {
            return self.access.check(&self.store, &caller.user, asked);
        }
        let (is_allowed, reason) = self.access.judge(&self.store, &caller.user, asked);
        let checked = match is_allowed {
            true => Ok(()),
            false => Err(Box::new(authorization::refusal(&caller.user, asked, &reason))),
        };
        caller.noted.annotate("authorization.k8s.io/decision", if is_allowed { "allow" } else { "forbid" });
        caller.noted.annotate("authorization.k8s.io/reason", reason);
        checked
    }

    async fn resource(
        &self,
        registry: &Registry,
        parts: &http::request::Parts,
        path: ResourcePath<'_>,
        caller: &mut Caller,
        body: Body,
    ) -> Answer {
        let name = path.name.map(decoded).transpose()?;
        let namespace = path.namespace.map(decoded).transpose()?;
        let path = ResourcePath { name: name.as_deref(), namespace: namespace.as_deref(), ..path };
        let query = Query::parse(parts.uri.query().unwrap_or(""));
        let narrowed = Narrowed::of(&path, &query);
        let asked = Asked::of_resource(&parts.method, &path, &query, &narrowed);
        if !caller.internal {
            let checked = self.check_access(caller, &asked);
            if let (Err(refusal), Some(InProcess)) = (&checked, parts.extensions.get()) {
                tracing::warn!(%refusal, "a part of this process has no role for what it does");
            }
            if let Err(status) = checked {
                return self.in_turn(parts, caller, &asked, refusal(parts, &status)).await;
            }
        }
        let served = registry.find(path.group, path.version, path.resource);
        // Where nothing is built in, upstream's last handler knows no better.
        let is_known = served.is_some_and(|served| {
            let everywhere = path.namespace.is_none() && served.kind.namespaced && parts.method != Method::GET;
            served.custom.is_none() || is_addressed_rightly(&served.kind, &path) && !everywhere
        });
        let received = match parts.extensions.get::<InProcess>() {
            Some(_) => Received::at_hand(body),
            None => {
                self.event_rate.count(&caller.user, &asked)?;
                self.inbox.take(&parts.method, &path, body).await?
            }
        };
        let listed = match served {
            Some(served) if asked.verb == "list" => self.listed(served, &path, &query),
            _ => 1,
        };
        let mut place = self.place(parts, caller, &asked, listed).await?;
        let mut response = if !is_known && node_metrics::is_about(self, &path) {
            place.work(node_metrics::answer(self, registry, parts, &path, &caller.user)).await
        } else if !is_known && !registry.has_builtin_version(path.group, path.version) {
            Ok(answer::page_not_found())
        } else {
            let served = served.ok_or_else(unknown_resource)?;
            place.work(Box::pin(self.dispatch(served, parts, &path, query, caller, received.body))).await
        };
        if let Ok(response) = &mut response {
            place.tell(response);
        }
        response
    }

    /// How many objects a list may have to read.
    fn listed(&self, served: &Served, path: &ResourcePath<'_>, query: &Query<'_>) -> usize {
        let limit = query.get("limit").parse().ok().filter(|limit| *limit > 0).unwrap_or(usize::MAX);
        self.store.snapshot().count(&served.stored, path.namespace).min(limit)
    }

    async fn dispatch(
        &self,
        served: &Arc<Served>,
        parts: &http::request::Parts,
        path: &ResourcePath<'_>,
        query: Query<'_>,
        caller: &mut Caller,
        body: Body,
    ) -> Answer {
        if !is_addressed_rightly(&served.kind, path) {
            return Err(unknown_resource());
        }
        let mut call = Call {
            server: self,
            served,
            namespace: path.namespace,
            name: path.name,
            subresource: path.subresource,
            watch_path: path.watch,
            query,
            headers: &parts.headers,
            user: &caller.user,
            internal: caller.internal,
            fence: Fence::of(&parts.method, &parts.headers)?,
            warnings: Vec::new(),
            emptied: Vec::new(),
            audit_annotations: Vec::new(),
            noted: std::mem::take(&mut caller.noted),
            memo: served.converter().map(|_| Arc::default()),
        };
        if let Some(deprecation) = served.kind.behaviour.deprecation() {
            call.noted.annotate("k8s.io/deprecated", "true");
            call.warnings.push(deprecation.into());
        }
        let result = verbs::run(&mut call, &parts.method, body).await;
        if served.custom.is_none() && result.as_ref().is_err_and(|status| is_of_router(status)) {
            call.warnings.clear();
        }
        let mut response = result.unwrap_or_else(|status| refusal(parts, &status));
        if parts.method == Method::HEAD {
            *response.body_mut() = crate::body::full("");
        }
        if response.status() != http::StatusCode::METHOD_NOT_ALLOWED {
            answer::warn(&mut response, call.warnings);
        }
        call.audit_annotations.into_iter().for_each(|(key, value)| call.noted.annotate(&key, value));
        let response = call.noted.answer(response).await;
        caller.noted = call.noted;
        Ok(compression::compress(&parts.headers, response))
    }
}

/// Who asks.
struct Caller {
    user: Arc<User>,
    /// A part of this process, not somebody on the network.
    internal: bool,
    /// What the audit log is told.
    noted: Noted,
}

/// Whether nobody was asked yet who knows the kind, and what is to be warned of: such refusals have details that say nothing.
fn is_of_router(status: &Status) -> bool {
    let is_told_by_it = matches!(status.code, 404 | 405 | 406 | 415);
    is_told_by_it && status.details.as_ref().is_some_and(|details| *details == setpoint_api::StatusDetails::default())
}

/// A refusal in the format that the client reads.
fn refusal(parts: &http::request::Parts, status: &Status) -> Response<Body> {
    let mut response = answer::status(status);
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    if representation::wants_pretty(&parts.headers, &query) {
        *response.body_mut() = answer::pretty(response.status(), status).into_body();
    }
    if representation::media_of_refusal(&parts.headers) == Media::Yaml {
        let value = serde_json::to_value(status).unwrap_or_default();
        *response.body_mut() = crate::body::full(crate::yaml_out::write(&value));
        let media = http::HeaderValue::from_static("application/yaml");
        response.headers_mut().insert(http::header::CONTENT_TYPE, media);
    }
    response
}

/// Namespaced objects are only found under their namespace, others only outside of any.
fn is_addressed_rightly(kind: &setpoint_schema::Kind, path: &ResourcePath<'_>) -> bool {
    match (kind.namespaced, path.namespace, path.name) {
        (true, None, Some(_)) | (false, Some(_), _) => false,
        (true, None, None) => kind.allows("list"),
        (true, Some(_), _) | (false, None, _) => path.rest.is_empty() || path.subresource == Some("proxy"),
    }
}

pub(crate) fn unknown_resource() -> Box<Status> {
    let mut status = Status::not_found(&setpoint_api::GroupResource::new("", ""), "");
    status.message = "the server could not find the requested resource".to_owned();
    status.details = Some(setpoint_api::StatusDetails::default());
    Box::new(status)
}

/// A path segment with its escapes undone. One that hides a slash names nothing.
pub(crate) fn decoded(segment: &str) -> Result<String, Box<Status>> {
    if !segment.contains('%') {
        return Ok(segment.to_owned());
    }
    let text = String::from_utf8(percent::decoded(segment)).map_err(|_| unknown_resource())?;
    if text.contains(['/', '\0']) { Err(unknown_resource()) } else { Ok(text) }
}
