//! A running server, from the lock on its data to the last answer.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use futures_util::future::OptionFuture;
use http::{Request, StatusCode};
use setpoint_apiserver::ApiServer;
use setpoint_apiserver::Plugin;
use setpoint_apiserver::body::{Body, full};
use setpoint_apiserver::pki::{Pki, PkiError};
use setpoint_apiserver::serve::{Limits, serve};
use setpoint_apiserver::user::User;
use setpoint_store::{OpenError, Options, RealDisk, Seal, Store};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinError;
use tower::ServiceExt;

use crate::arguments::ServerArguments;
use crate::audit::Auditing;
use crate::beside::Beside;
use crate::failure::{Failure, say};
use crate::renewal::Renewal;
use crate::signals::Signals;
use crate::storage::Opened;
use crate::{files, logging, parts, service, storage};

/// How long the server may take until it answers that it is ready.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// How long its simulated nodes may take to be there before it says so all the same.
const NODES_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause between two questions whether it is ready.
const READY_PAUSE: Duration = Duration::from_millis(5);

/// How long running requests may go on after the disk failed: nothing that they write will be kept.
const FAILED_GRACE: Duration = Duration::from_millis(300);

/// Runs until it is asked to stop, or fails; with other parts in the same process, if there are any.
pub async fn run(arguments: &ServerArguments, beside: Option<Beside>) -> Result<(), Failure> {
    logging::start(arguments.log_level)?;
    let mut signals = Signals::listen()?;
    let folder = std::path::absolute(arguments.data.folder()?).map_err(|e| Failure::new("can't use --data-dir", e))?;
    let policy = arguments.audit.policy()?;
    let opened = storage::open(&arguments.store, &folder, &arguments.seal).await?;
    let auditing = arguments.audit.start(policy, &folder)?;
    let outcome = run_on(&opened, &folder, arguments, &auditing, beside, &mut signals).await;
    tokio::select! {
        ((), ()) = async { tokio::join!(auditing.end(), opened.store.close()) } => outcome,
        signal = signals.next() => Err(stopped_twice(signal)),
    }
}

/// Opens the store of a data folder, with the lock that keeps others out. What should be sealed and is not is written anew.
pub async fn open_with(folder: &Path, seal: Option<Arc<dyn Seal>>) -> Result<Store, OpenError> {
    let disk = RealDisk::new(folder.join("store"))?;
    let options = Options { identity: identity()?, seal, ..Options::default() };
    let (store, report) = Store::open(Arc::new(disk), service::fields(), options).await?;
    let (revision, objects, clean) = (report.revision.get(), report.objects, report.clean);
    tracing::info!(folder = %folder.display(), revision, objects, clean, "store opened");
    if report.unsealed > 0 {
        match store.rewrite().await {
            Ok(()) => tracing::info!(records = report.unsealed, "what was not encrypted yet is"),
            Err(error) => tracing::warn!(%error, "what is not encrypted yet stays so until there is space"),
        }
    }
    Ok(store)
}

/// Tells a new data directory from all others.
pub fn identity() -> io::Result<[u8; 16]> {
    let drawn = ring::rand::generate(&ring::rand::SystemRandom::new());
    drawn.map(ring::rand::Random::expose).map_err(|_| io::Error::other("the system gives no random numbers"))
}

/// The rules of admission that are left out. The API server alone takes what kube-apiserver takes by default.
fn left_out(arguments: &ServerArguments, is_whole: bool) -> Vec<Plugin> {
    let mut left_out = arguments.disable_admission_plugins.clone();
    let denies = Plugin::DenyServiceExternalIPs;
    if !is_whole && !arguments.enable_admission_plugins.contains(&denies) {
        left_out.push(denies);
    }
    left_out
}

async fn run_on(
    opened: &Opened,
    folder: &Path,
    arguments: &ServerArguments,
    auditing: &Auditing,
    mut beside: Option<Beside>,
    signals: &mut Signals,
) -> Result<(), Failure> {
    let listener = bind(arguments.listen).await?;
    let address = listener.local_addr().map_err(|error| Failure::new("can't listen", error))?;
    let store = &opened.store;
    let pki = prepare_pki(&opened.pki, address.ip())?;
    let url = url(address);
    let kubeconfig = arguments.kubeconfig.clone().unwrap_or_else(|| folder.join("admin.kubeconfig"));
    let kubeconfig = std::path::absolute(&kubeconfig).unwrap_or(kubeconfig);
    let signer = pki.signer().map_err(|error| Failure::new("can't sign tokens", error))?;
    let renewal = Renewal::new(pki, kubeconfig.clone(), url.clone(), opened)?;
    let (tls, standing) = (renewal.tls(), renewal.standing());

    let (stop, stopping) = watch::channel(false);
    let service = service::service(store.clone(), stopping.clone());
    auditing.follow(&service);
    service.leave_out(left_out(arguments, beside.is_some()));
    service.sign_with(signer);
    let unprepared = |status| match &*store.stopped().borrow() {
        Some(reason) => store_failed(opened, reason),
        None => Failure::new("can't prepare the store", status),
    };
    service.prepare(address).await.map_err(unprepared)?;
    service.prepare_roles().await.map_err(unprepared)?;
    if beside.is_some() {
        service.warn_of_risky_pods();
        service.prepare_own_roles().await.map_err(unprepared)?;
    }
    let tending = service.tend();
    let checking = OptionFuture::from(beside.is_some().then(|| service.check_policies()));
    let serving = serve(listener, tls, service.clone(), limits(beside.as_ref().is_some_and(Beside::has_hub)), stopping);
    let mut serving = tokio::spawn(async move {
        tokio::join!(serving, tending, checking);
    });
    if let Some(parts) = &mut beside {
        parts.prepare(&service).await?;
    }
    let last_node = beside.as_ref().filter(|_| !opened.is_shared).and_then(Beside::last_node);
    let (leave, leaving) = watch::channel(false);
    let mut beside = match beside {
        Some(parts) => {
            let parts = if opened.is_shared { parts.elected() } else { parts };
            tokio::spawn(parts.run(service.clone(), standing, leaving))
        }
        None => {
            show_profiles(&service, arguments.profiling);
            tokio::spawn(until(leaving).map(Ok))
        }
    };
    let mut failed = store.stopped();
    let failed = failed.wait_for(Option::is_some);
    let run = async {
        ready(service.clone()).await?;
        if let Some(node) = last_node {
            // The first thing that people do is to wait for them, which needs something to wait for.
            let path = format!("/api/v1/nodes/{node}");
            let _ = tokio::time::timeout(NODES_TIMEOUT, answered(service, &path)).await;
        }
        announce(&url, &kubeconfig);
        renewal.run().await;
        Ok(())
    };
    let outcome = tokio::select! {
        outcome = run => outcome,
        ended = &mut serving => return Err(serving_ended(ended)),
        ended = &mut beside => ended.unwrap_or_else(|error| Err(Failure::new("stopped: a part failed", error))),
        signal = signals.next() => {
            tracing::info!(signal, "stopping");
            leave.send_replace(true);
            let in_order = async {
                let left = beside.await;
                stop.send_replace(true);
                serving.await.and(left.map(drop))
            };
            return finish(in_order, signals).await;
        }
        reason = failed => {
            let reason = reason.ok().and_then(|reason| reason.clone()).unwrap_or_default();
            tracing::error!(reason, "the store has failed; stopping");
            Err(store_failed(opened, &reason))
        }
    };
    stop.send_replace(true);
    // The outcome is known already; what still runs gets a moment and is dropped with the runtime.
    let _ = tokio::time::timeout(FAILED_GRACE, serving).await;
    outcome
}

/// Waits for the server to end in order; a second signal ends the wait.
async fn finish(in_order: impl Future<Output = Result<(), JoinError>>, signals: &mut Signals) -> Result<(), Failure> {
    tokio::select! {
        ended = in_order => ended.map_err(|error| Failure::new("stopped out of order", error)),
        signal = signals.next() => Err(stopped_twice(signal)),
    }
}

/// Lets an API server that is alone tell where its time and memory go. Beside others it is told with their traces.
fn show_profiles(service: &ApiServer, wanted: bool) {
    let profiles = parts::profiles(wanted);
    service.show_debug(move |method, uri| {
        let profiles = profiles.clone();
        async move { profiles.answer(&method, &uri).await.map(full) }
    });
}

/// Waits until it is time to leave.
async fn until(mut leaving: watch::Receiver<bool>) {
    // An error means that nobody will say so any more.
    let _ = leaving.wait_for(|leaving| *leaving).await;
}

fn store_failed(opened: &Opened, reason: &str) -> Failure {
    let failure = Failure::new(format!("stopped: {} failed", opened.place), reason);
    match opened.is_shared {
        true => failure.hint("check etcd, then start again: every acknowledged write is kept"),
        false => failure.hint("check the disk, then start again: every acknowledged write is kept"),
    }
}

fn stopped_twice(signal: &str) -> Failure {
    Failure::new("stopped at once", format!("a second signal came ({signal}) before running requests were answered"))
}

fn serving_ended(ended: Result<(), JoinError>) -> Failure {
    let why = ended.err().map_or_else(|| "it ended by itself".to_owned(), |error| error.to_string());
    Failure::new("stopped: the server failed", why)
}

async fn bind(listen: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(listen).await.map_err(|error| {
        let failure = Failure::new(format!("can't listen on {listen}"), &error);
        match error.kind() {
            io::ErrorKind::AddrInUse => failure.hint("choose another port with `--listen`, or port 0 for a free one"),
            io::ErrorKind::PermissionDenied => failure.hint("choose a port above 1023 with `--listen`"),
            io::ErrorKind::AddrNotAvailable => failure
                .hint("`--listen` takes an address of this machine (`ip address` lists them), or 0.0.0.0 for all"),
            _ => failure.hint("`--listen` takes an address and a port of this machine, such as 127.0.0.1:6443"),
        }
    })
}

fn prepare_pki(folder: &Path, listen: IpAddr) -> Result<Pki, Failure> {
    let host = rustix::system::uname().nodename().to_str().ok().map(str::to_lowercase).filter(|name| is_dns_name(name));
    Pki::prepare(folder, listen, host.as_deref(), SystemTime::now()).map_err(|error| {
        let failure = Failure::new("can't prepare the certificates", &error);
        match error {
            PkiError::NotValidNow(path) | PkiError::Damaged(path, _) => failure.hint(format!(
                "check the clock; or move {} away for a new authority, which every client then needs the kubeconfig of",
                path.display()
            )),
            PkiError::Io(..) | PkiError::Make(_) => failure,
        }
    })
}

/// A host's name can be anything; a certificate takes only this.
fn is_dns_name(name: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    name.len() <= 253 && name.split('.').all(label)
}

/// As many connections as there can be files; where vehicles connect to the same process, half of them are theirs.
fn limits(has_hub: bool) -> Limits {
    let room = if has_hub { files::room() / 2 } else { files::room() };
    let default = Limits::default();
    Limits { connections: default.connections.min(room.max(1)), ..default }
}

/// Where clients on this machine reach the server.
fn url(address: SocketAddr) -> String {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    format!("https://{}", SocketAddr::new(ip, address.port()))
}

/// Waits until the server says that it is ready.
async fn ready<S>(service: S) -> Result<(), Failure>
where
    S: tower::Service<Request<Body>, Response = http::Response<Body>, Error = std::convert::Infallible> + Clone,
{
    tokio::time::timeout(READY_TIMEOUT, answered(service, "/readyz"))
        .await
        .map_err(|_| Failure::new("stopped: the server did not get ready", format!("it took over {READY_TIMEOUT:?}")))
}

/// Asks for a path until it is answered well.
async fn answered<S>(service: S, path: &str)
where
    S: tower::Service<Request<Body>, Response = http::Response<Body>, Error = std::convert::Infallible> + Clone,
{
    let user = User { name: "kubernetes-admin".into(), groups: vec!["system:masters".into()], ..User::default() };
    let user = Arc::new(user);
    loop {
        let mut request = Request::new(full(""));
        *request.uri_mut() = path.parse().unwrap_or_default();
        request.extensions_mut().insert(Arc::clone(&user));
        let Ok(response) = service.clone().oneshot(request).await;
        if response.status() == StatusCode::OK {
            return;
        }
        tokio::time::sleep(READY_PAUSE).await;
    }
}

fn announce(url: &str, kubeconfig: &Path) {
    let next = "setpoint get namespaces\n  setpoint status";
    say(&format!("ready {url}\n\n  export KUBECONFIG={}\n  {next}\n", kubeconfig.display()));
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use setpoint_api::{GroupResource, Revision};
    use setpoint_store::{Change, Expectation, Fault, Key, MemoryDisk, NoFields, Transaction};

    use super::*;

    /// Signals go to the whole process: tests that listen for them run one after another.
    static SIGNALS: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

    #[tokio::test]
    async fn a_second_signal_ends_the_wait_for_running_requests() {
        let _alone = SIGNALS.lock().await;
        let mut signals = Signals::listen().unwrap();
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM).unwrap();
        let endless = tokio::spawn(std::future::pending());
        let outcome = tokio::time::timeout(Duration::from_secs(10), finish(endless, &mut signals)).await;
        assert!(outcome.expect("it goes on").unwrap_err().to_string().contains("a second signal came (SIGTERM)"));
    }

    fn write() -> Transaction {
        let key = Key::namespaced(GroupResource::new("", "configmaps"), "default", "a");
        let json = br#"{"metadata":{"name":"a","namespace":"default","uid":"u"}}"#.to_vec();
        Transaction::of(Change::put(key, Expectation::Any, json, &NoFields).unwrap())
    }

    #[tokio::test]
    async fn a_failed_disk_ends_the_server_with_a_failure() {
        let _alone = SIGNALS.lock().await;
        let disk = MemoryDisk::new();
        let (store, _) = Store::open(Arc::new(disk.clone()), Arc::new(NoFields), Options::default()).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let arguments =
            crate::arguments::Arguments::parse_from(["setpoint", "server", "--listen", ":0", "--audit-log-path="]);
        let crate::arguments::Command::Server(arguments) = arguments.command else { panic!("not a server") };
        let mut signals = Signals::listen().unwrap();
        let auditing = arguments.audit.start(arguments.audit.policy().unwrap(), folder.path()).unwrap();
        let (pki, place) = (folder.path().join("pki"), "the store in memory".to_owned());
        let opened = Opened { store: store.clone(), pki, place, is_shared: false, sharing: None };
        let running = run_on(&opened, folder.path(), &arguments, &auditing, None, &mut signals);
        let failing = async {
            // Once the server has begun to write what must always be there, every operation fails.
            store.reached(Revision::new(1)).await;
            (1..=64).for_each(|n| disk.fail(n, Fault::Error(io::ErrorKind::Other)));
            while store.commit(write()).await.is_ok() {}
            std::future::pending::<()>().await
        };
        let outcome = tokio::select! {
            outcome = tokio::time::timeout(Duration::from_secs(10), running) => outcome.expect("it goes on"),
            () = failing => unreachable!(),
        };
        let failure = outcome.unwrap_err().to_string();
        assert!(failure.contains("the store in") && failure.contains("hint: check the disk"), "{failure}");
    }

    #[test]
    fn the_url_is_one_that_clients_on_this_machine_can_use() {
        let check = |address: &str, expected| assert_eq!(url(address.parse().unwrap()), expected);
        check("127.0.0.1:6443", "https://127.0.0.1:6443");
        check("0.0.0.0:6443", "https://127.0.0.1:6443");
        check("[::]:7000", "https://[::1]:7000");
        check("192.168.1.7:6443", "https://192.168.1.7:6443");
    }

    #[test]
    fn a_host_name_goes_into_a_certificate_only_if_it_is_a_dns_name() {
        let check = |name: &str, expected| assert_eq!(is_dns_name(name), expected, "{name}");
        check("edge-7.example", true);
        check("", false);
        check("a_b", false);
        check("-a", false);
        check("a..b", false);
    }
}
