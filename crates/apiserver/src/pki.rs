//! Our own certificate authority: made once, kept in a folder, renewed when the time comes.
//!
//! Each certificate lies with its key in one file, so that a crash can never leave a pair that doesn't match. Start at
//! [`Pki::prepare`].

mod certificate;
mod file;
mod kubeconfig;
mod requests;
mod secret_keys;

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rcgen::KeyPair;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

pub use secret_keys::{KeyFileError, SecretKeys};

use crate::serve::Tls;
use crate::tokens::Signer;
use certificate::{Authority, Issued, Purpose};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// How long the authority lasts: once it is replaced and forgotten, every client needs a new kubeconfig.
const CA_VALID: Duration = Duration::from_secs(10 * 365 * DAY.as_secs());

/// How long the server's certificate lasts: below the 825 days that some TLS clients allow at most.
const SERVER_VALID: Duration = Duration::from_secs(800 * DAY.as_secs());

/// How long the administrator's certificate lasts.
const ADMIN_VALID: Duration = Duration::from_secs(365 * DAY.as_secs());

/// Certificates that expire sooner than this are renewed, at a start and while the server runs.
const RENEW_BEFORE: Duration = Duration::from_secs(30 * DAY.as_secs());

/// Names that pods and people reach the server by, whatever it listens on.
const NAMES: [&str; 5] =
    ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"];

/// The first address of the service network: the `kubernetes` service has it.
const SERVICE_ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

/// Where the authorities before the present one are, whose certificates still count: without their keys.
const FORMER: &str = "ca-former.pem";

/// Where the present authority is certified by the one before it: who trusts only that one finds the way to the server with it.
const BRIDGE: &str = "ca-bridge.pem";

/// The certificates of one control plane.
pub struct Pki {
    authority: Arc<Authority>,
    /// The certificates to trust: the authority's, then those of the ones before it.
    trusted: String,
    /// The authority's certificate by the one before it.
    bridge: Option<String>,
    server: Issued,
    admin: Issued,
    tokens: KeyPair,
}

impl Pki {
    /// Takes the certificates from a folder, making or renewing what is missing, near its end, or lacks a name.
    ///
    /// `listen` is the address to serve on and `host_name` this machine's name, if it has one that a certificate can hold.
    pub fn prepare(folder: &Path, listen: IpAddr, host_name: Option<&str>, now: SystemTime) -> Result<Pki, PkiError> {
        file::private_folder(folder).map_err(|error| PkiError::Io(folder.to_owned(), error))?;
        let authority = authority(folder, now)?;
        let server = Purpose::server(addresses(listen), names(host_name));
        let server = issued(&folder.join("server.pem"), &authority, &server, SERVER_VALID, now)?;
        let admin = Purpose::client("kubernetes-admin", "system:masters");
        let admin = issued(&folder.join("admin.pem"), &authority, &admin, ADMIN_VALID, now)?;
        let tokens = token_key(&folder.join("service-account.pem"))?;
        let trusted = format!("{}{}", authority.certificate_pem(), read(&folder.join(FORMER))?.unwrap_or_default());
        let bridge = read(&folder.join(BRIDGE))?.filter(|bridge| authority.is_certified_by(bridge));
        Ok(Pki { authority: Arc::new(authority), trusted, bridge, server, admin, tokens })
    }

    /// Makes a new authority. The one before it stays trusted, and certifies the new one, until [`Pki::forget_former`]; at the next
    /// start all certificates of the server are made by the new one.
    pub fn rotate(folder: &Path, now: SystemTime) -> Result<(), PkiError> {
        let present = authority(folder, now)?;
        let pair = Authority::make_successor(now, CA_VALID)?;
        let bridge = present.certify_successor(&pair, now).map_err(PkiError::Make)?;
        let former = folder.join(FORMER);
        let trusted = format!("{}{}", present.certificate_pem(), read(&former)?.unwrap_or_default());
        // The new authority comes last: until it is there, the others say nothing new.
        for (name, text) in [(FORMER, trusted), (BRIDGE, bridge)] {
            let path = folder.join(name);
            file::replace(&path, text.as_bytes()).map_err(|error| PkiError::Io(path, error))?;
        }
        write(&folder.join("ca.pem"), &pair)
    }

    /// Trusts the authorities before the present one no more; whether there were any.
    pub fn forget_former(folder: &Path) -> Result<bool, PkiError> {
        let mut found = false;
        for name in [BRIDGE, FORMER] {
            let path = folder.join(name);
            match std::fs::remove_file(&path) {
                Ok(()) => found = true,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(PkiError::Io(path, error)),
            }
        }
        Ok(found)
    }

    /// The certificates of authorities in PEM, for others to trust: the present one's first.
    pub fn ca_pem(&self) -> &str {
        &self.trusted
    }

    /// How to serve with these.
    pub fn tls(&self) -> Result<Tls, PkiError> {
        let unusable = |error: &dyn fmt::Display| PkiError::Make(error.to_string());
        let (chain, key) = self.serving()?;
        let trusted: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(self.trusted.as_bytes()).collect();
        Tls::new(chain, key, trusted.map_err(|e| unusable(&e))?).map_err(|error| unusable(&error))
    }

    /// Serves new connections with these, if they aren't those that it serves with.
    pub fn renew(&self, tls: &Tls) -> Result<(), PkiError> {
        let (chain, key) = self.serving()?;
        tls.renew(chain, key).map_err(|error| PkiError::Make(error.to_string()))
    }

    fn serving(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), PkiError> {
        let unusable = |error: rustls::pki_types::pem::Error| PkiError::Make(error.to_string());
        let chain = format!("{}{}", self.server.certificate, self.bridge.as_deref().unwrap_or_default());
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain.as_bytes()).collect();
        let key = PrivateKeyDer::from_pem_slice(self.server.key.as_bytes()).map_err(unusable)?;
        Ok((chain.map_err(unusable)?, key))
    }

    /// What signs service account tokens.
    pub fn signer(&self) -> Result<Signer, PkiError> {
        let public = rcgen::PublicKeyData::subject_public_key_info(&self.tokens);
        Signer::new(&self.tokens.serialize_der(), &public).map_err(|error| PkiError::Make(error.to_string()))
    }

    /// What answers requests for certificates.
    pub fn certifier(&self) -> Certifier {
        Certifier { authority: self.authority.clone() }
    }

    /// Writes a kubeconfig with which the administrator reaches the server at `url`.
    pub fn write_admin_kubeconfig(&self, path: &Path, url: &str) -> Result<(), PkiError> {
        let text = kubeconfig::render(url, self.ca_pem(), "kubernetes-admin", &self.admin);
        file::replace(path, text.as_bytes()).map_err(|error| PkiError::Io(path.to_owned(), error))
    }
}

/// Signs what others ask for with the authority's key. Whether they may have it is for others to decide.
#[derive(Clone)]
pub struct Certifier {
    authority: Arc<Authority>,
}

impl Certifier {
    /// An authority that somebody else keeps, from the file with its certificate and the one with its key, which may be the same.
    pub fn read(certificate: &Path, key: Option<&Path>, now: SystemTime) -> Result<Certifier, PkiError> {
        let text = |path: &Path| {
            read(path)?.ok_or_else(|| PkiError::Io(path.to_owned(), io::Error::from(io::ErrorKind::NotFound)))
        };
        let mut pair = text(certificate)?;
        if let Some(key) = key {
            // A key that is there already would be taken for the one that was asked for.
            pair.truncate(pair.find("-----BEGIN PRIVATE KEY-----").unwrap_or(pair.len()));
            pair += &text(key)?;
        }
        Ok(Certifier { authority: Arc::new(authority_of(&pair, certificate, now)?) })
    }

    /// A certificate in PEM for a request in PEM: its subject, names and key, for these usages in the words of the API (`client auth`).
    /// It never outlives the authority.
    pub fn certify(
        &self,
        request: &[u8],
        usages: &[String],
        life: Duration,
        now: SystemTime,
    ) -> Result<String, String> {
        self.authority.certify(request, usages, life, now)
    }
}

/// Why there are no certificates to serve with.
#[derive(Debug)]
pub enum PkiError {
    /// A file can't be read or written.
    Io(PathBuf, io::Error),
    /// A file holds no certificate and key of ours.
    Damaged(PathBuf, String),
    /// The authority's time is over, or has not begun by this machine's clock.
    NotValidNow(PathBuf),
    /// A certificate could not be made or used.
    Make(String),
}

impl fmt::Display for PkiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PkiError::Io(path, error) => write!(f, "{}: {error}", path.display()),
            PkiError::Damaged(path, why) => write!(f, "{} holds no certificate with its key: {why}", path.display()),
            PkiError::NotValidNow(path) => {
                write!(f, "the certificate authority in {} is not valid at this machine's time", path.display())
            }
            PkiError::Make(why) => write!(f, "a certificate can't be made or used: {why}"),
        }
    }
}

impl std::error::Error for PkiError {}

impl From<rcgen::Error> for PkiError {
    fn from(error: rcgen::Error) -> PkiError {
        PkiError::Make(error.to_string())
    }
}

fn authority(folder: &Path, now: SystemTime) -> Result<Authority, PkiError> {
    let path = folder.join("ca.pem");
    if let Some(text) = read(&path)? {
        return authority_of(&text, &path, now);
    }
    let pair = Authority::make(now, CA_VALID)?;
    write(&path, &pair)?;
    Authority::new(pair).map_err(|why| PkiError::Damaged(path, why))
}

/// The authority whose certificate and key are in the text of a file.
fn authority_of(text: &str, path: &Path, now: SystemTime) -> Result<Authority, PkiError> {
    let damaged = |why: String| PkiError::Damaged(path.to_owned(), why);
    let pair = Issued::parse(text).map_err(damaged)?;
    if !pair.facts().map_err(damaged)?.is_valid_at(now) {
        return Err(PkiError::NotValidNow(path.to_owned()));
    }
    Authority::new(pair).map_err(damaged)
}

/// The key in a file, made once: a new one would make every token that is out worthless.
fn token_key(path: &Path) -> Result<KeyPair, PkiError> {
    let unreadable = |error: io::Error| PkiError::Io(path.to_owned(), error);
    match std::fs::read_to_string(path) {
        Ok(text) => KeyPair::from_pem(&text).map_err(|error| PkiError::Damaged(path.to_owned(), error.to_string())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let key = KeyPair::generate()?;
            file::replace(path, key.serialize_pem().as_bytes()).map_err(unreadable)?;
            Ok(key)
        }
        Err(error) => Err(unreadable(error)),
    }
}

/// The certificate in a file if it serves the purpose for long enough, else a new one in its place.
fn issued(
    path: &Path,
    authority: &Authority,
    purpose: &Purpose,
    valid: Duration,
    now: SystemTime,
) -> Result<Issued, PkiError> {
    let found = read(path)?.and_then(|text| Issued::parse(&text).ok());
    if let Some(pair) = found.filter(|pair| authority.would_keep(pair, purpose, now, RENEW_BEFORE)) {
        return Ok(pair);
    }
    let pair = authority.issue(purpose, now, valid)?;
    write(path, &pair)?;
    Ok(pair)
}

fn read(path: &Path) -> Result<Option<String>, PkiError> {
    match std::fs::read(path) {
        Ok(bytes) => match String::from_utf8(bytes) {
            Ok(text) => Ok(Some(text)),
            Err(_) => Err(PkiError::Damaged(path.to_owned(), "it is not text".into())),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(PkiError::Io(path.to_owned(), error)),
    }
}

fn write(path: &Path, pair: &Issued) -> Result<(), PkiError> {
    let text = format!("{}{}", pair.certificate, pair.key);
    file::replace(path, text.as_bytes()).map_err(|error| PkiError::Io(path.to_owned(), error))
}

fn addresses(listen: IpAddr) -> Vec<IpAddr> {
    let mut addresses = vec![IpAddr::from([127, 0, 0, 1]), IpAddr::V6(std::net::Ipv6Addr::LOCALHOST), SERVICE_ADDRESS];
    if !listen.is_unspecified() && !addresses.contains(&listen) {
        addresses.push(listen);
    }
    addresses
}

fn names(host_name: Option<&str>) -> Vec<String> {
    let mut names: Vec<String> = NAMES.iter().map(|name| (*name).to_owned()).collect();
    names.extend(host_name.filter(|name| !NAMES.contains(name)).map(str::to_owned));
    names
}

#[cfg(test)]
mod tests;
