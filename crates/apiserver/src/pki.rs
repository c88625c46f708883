//! Our own certificate authority: made once, kept in a folder, renewed when the time comes.
//!
//! Each certificate lies with its key in one file, so that a crash can never leave a pair that doesn't match. Files are replaced whole and
//! in an order in which every prefix is a folder to start from; whoever runs looks at them again and again ([`Pki::renewed`]), so
//! that a command that changes them needs no line to the server. Start at [`Pki::prepare`]; how one authority follows another is in
//! `succession`.

mod certificate;
mod file;
mod kubeconfig;
mod requests;
mod secret_keys;
mod succession;

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rcgen::KeyPair;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

pub use file::replace as replace_private;
pub use secret_keys::{KeyFileError, SecretKeys};
pub use succession::{
    Certificate, Role, SuccessionError, can_retire, certificates, retire, settled, succeed, successor,
};

use crate::serve::Tls;
use crate::tokens::{LegacySigner, Signer};
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

/// The authority that signs, with its key.
pub const AUTHORITY: &str = "ca.pem";

/// Where the authorities before the present one are, whose certificates still count: without their keys.
pub const FORMER: &str = "ca-former.pem";

/// Where the present authority is certified by the one before it: who trusts only that one finds the way to the server with it.
pub const BRIDGE: &str = "ca-bridge.pem";

/// Whom the server that last looked trusts, and others should: certificates only, so that it can be handed out.
pub const TRUSTED: &str = "ca.crt";

const SERVER: &str = "server.pem";
const ADMIN: &str = "admin.pem";

/// The certificates of one control plane.
pub struct Pki {
    folder: PathBuf,
    /// What the server's certificate has to say.
    serves: Purpose,
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
        let serves = Purpose::server(addresses(listen), names(host_name));
        let server = issued(&folder.join(SERVER), &authority, &serves, SERVER_VALID, now)?;
        let admin = issued(&folder.join(ADMIN), &authority, &administrator(), ADMIN_VALID, now)?;
        let tokens = token_key(&folder.join("service-account.pem"))?;
        let (trusted, bridge) = succession::beside(folder, &authority)?;
        let authority = Arc::new(authority);
        Ok(Pki { folder: folder.to_owned(), serves, authority, trusted, bridge, server, admin, tokens })
    }

    /// The same as the folder is now, if it is another than it was; with new certificates in the place of those that are near their end,
    /// or that another authority signed than the present one.
    ///
    /// Those that are still good are kept even if there are others in the folder: servers that share one have each their own addresses.
    pub fn renewed(&self, now: SystemTime) -> Result<Option<Pki>, PkiError> {
        let folder = &self.folder;
        let path = folder.join(AUTHORITY);
        // Whom nobody trusts any more must not be replaced by somebody whom nobody knows.
        let text = read(&path)?.ok_or_else(|| PkiError::Io(path.clone(), io::ErrorKind::NotFound.into()))?;
        let authority = authority_of(&text, &path, now)?;
        let leaf = |own: &Issued, name: &str, purpose: &Purpose, valid: Duration| match authority.would_keep(
            own,
            purpose,
            now,
            RENEW_BEFORE,
        ) {
            true => Ok(own.clone()),
            false => issued(&folder.join(name), &authority, purpose, valid, now),
        };
        let server = leaf(&self.server, SERVER, &self.serves, SERVER_VALID)?;
        let admin = leaf(&self.admin, ADMIN, &administrator(), ADMIN_VALID)?;
        let (trusted, bridge) = succession::beside(folder, &authority)?;
        let is_same = (&server, &admin, &trusted, &bridge) == (&self.server, &self.admin, &self.trusted, &self.bridge);
        if is_same {
            return Ok(None);
        }
        let tokens = KeyPair::from_pem(&self.tokens.serialize_pem())?;
        let (folder, serves) = (folder.clone(), self.serves.clone());
        Ok(Some(Pki { folder, serves, authority: Arc::new(authority), trusted, bridge, server, admin, tokens }))
    }

    /// Writes down whom this server trusts: others take it from there, and who waits for a change knows that it is done.
    pub fn tell(&self) -> Result<(), PkiError> {
        let path = self.folder.join(TRUSTED);
        if read(&path)?.as_ref() == Some(&self.trusted) {
            return Ok(());
        }
        file::replace(&path, self.trusted.as_bytes()).map_err(|error| PkiError::Io(path, error))
    }

    /// The certificates of authorities in PEM, for others to trust: the present one's first.
    pub fn ca_pem(&self) -> &str {
        &self.trusted
    }

    /// The authority's certificate by the one before it, in PEM: it follows the certificates of servers, for who knows only that one.
    /// Empty if there is none before it.
    pub fn bridge_pem(&self) -> &str {
        self.bridge.as_deref().unwrap_or_default()
    }

    /// How to serve with these.
    pub fn tls(&self) -> Result<Tls, PkiError> {
        let (chain, key) = self.serving()?;
        Tls::new(chain, key, self.client_cas()?).map_err(|error| PkiError::Make(error.to_string()))
    }

    /// Serves with these from now on.
    pub fn renew(&self, tls: &Tls) -> Result<(), PkiError> {
        let (chain, key) = self.serving()?;
        tls.renew(chain, key, self.client_cas()?).map_err(|error| PkiError::Make(error.to_string()))
    }

    fn client_cas(&self) -> Result<Vec<CertificateDer<'static>>, PkiError> {
        let trusted: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(self.trusted.as_bytes()).collect();
        trusted.map_err(|error| PkiError::Make(error.to_string()))
    }

    fn serving(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), PkiError> {
        let unusable = |error: rustls::pki_types::pem::Error| PkiError::Make(error.to_string());
        let chain = format!("{}{}", self.server.certificate, self.bridge_pem());
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain.as_bytes()).collect();
        let key = PrivateKeyDer::from_pem_slice(self.server.key.as_bytes()).map_err(unusable)?;
        Ok((chain.map_err(unusable)?, key))
    }

    /// What signs service account tokens.
    pub fn signer(&self) -> Result<Signer, PkiError> {
        let public = rcgen::PublicKeyData::subject_public_key_info(&self.tokens);
        Signer::new(&self.tokens.serialize_der(), &public).map_err(|error| PkiError::Make(error.to_string()))
    }

    /// What signs the tokens that lie in Secrets, with the same key.
    pub fn legacy_signer(&self) -> Result<LegacySigner, PkiError> {
        let key = self.tokens.serialize_pem();
        LegacySigner::from_pem(key.as_bytes()).map_err(|error| PkiError::Make(error.to_string()))
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
    let path = folder.join(AUTHORITY);
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

/// To do everything, as the one whom the kubeconfig is for.
fn administrator() -> Purpose {
    Purpose::client("kubernetes-admin", "system:masters")
}

fn names(host_name: Option<&str>) -> Vec<String> {
    let mut names: Vec<String> = NAMES.iter().map(|name| (*name).to_owned()).collect();
    names.extend(host_name.filter(|name| !NAMES.contains(name)).map(str::to_owned));
    names
}

#[cfg(test)]
mod tests;
