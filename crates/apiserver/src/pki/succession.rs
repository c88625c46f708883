//! How one authority follows another while both are trusted, and how the one before is forgotten.
//!
//! 1. [`successor`] makes a new authority, and lets the present one vouch for it (the bridge). From the moment that the new one is in the folder it
//!    signs everything; servers show the bridge along with their certificates, so that clients that know only the authority before
//!    still find the way, and client certificates by it still count.
//! 2. Clients take the new kubeconfig, or the certificates of [`TRUSTED`](super::TRUSTED), whenever they come to it.
//! 3. [`retire`] forgets the authority before. Its key was gone with the first step: nobody can sign with it in between.

use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::Path;
use std::time::SystemTime;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::certificate::{Authority, Facts, Issued};
use super::{ADMIN, AUTHORITY, BRIDGE, CA_VALID, FORMER, PkiError, SERVER, TRUSTED};
use super::{authority_of, file, read};

/// Held while files of a succession are written, so that two commands can't mix theirs.
const LOCK: &str = "succession.lock";

/// What a certificate in the folder is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The authority that signs.
    Authority,
    /// One before it, which is still trusted.
    FormerAuthority,
    /// The server's own.
    Server,
    /// The administrator's.
    Administrator,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Authority => "authority",
            Role::FormerAuthority => "former authority",
            Role::Server => "server",
            Role::Administrator => "administrator",
        })
    }
}

/// A certificate in the folder, and what it says.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// What it is there for.
    pub role: Role,
    /// The file that it is in.
    pub file: &'static str,
    /// Whom it is for.
    pub name: String,
    /// Who signed it.
    pub issuer: String,
    /// When it ends.
    pub expires: SystemTime,
}

/// Why an authority can't follow another, or be forgotten.
#[derive(Debug)]
pub enum SuccessionError {
    /// There is no authority yet that another could follow.
    Nobody,
    /// The one before is still trusted: who knows only that one could not find the way to a third.
    Unfinished,
    /// No server has yet taken up the new one: who connects now knows only the one before.
    Unused,
    /// Somebody else is at it.
    Busy,
    /// A file can't be read or written, or is not what it should be.
    Pki(PkiError),
}

impl fmt::Display for SuccessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SuccessionError::Nobody => f.write_str("there is no certificate authority in it yet"),
            SuccessionError::Unfinished => f.write_str("the authority before the present one is still trusted"),
            SuccessionError::Unused => f.write_str("no server has used the new authority yet"),
            SuccessionError::Busy => f.write_str("another command is changing the authority"),
            SuccessionError::Pki(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for SuccessionError {}

impl From<PkiError> for SuccessionError {
    fn from(error: PkiError) -> SuccessionError {
        SuccessionError::Pki(error)
    }
}

/// The files of an authority after the present one, in the order in which they have to be written: until the last one is there, the
/// others say nothing new.
pub fn successor(folder: &Path, now: SystemTime) -> Result<[(&'static str, String); 3], SuccessionError> {
    let present = present(folder, now)?;
    if !former(folder, &present)?.is_empty() {
        return Err(SuccessionError::Unfinished);
    }
    let pair = Authority::make_successor(now, CA_VALID).map_err(PkiError::from)?;
    let bridge = present.certify_successor(&pair, now).map_err(PkiError::Make)?;
    let authority = format!("{}{}", pair.certificate, pair.key);
    Ok([(FORMER, present.certificate_pem().to_owned()), (BRIDGE, bridge), (AUTHORITY, authority)])
}

/// Makes a new authority in a folder.
pub fn succeed(folder: &Path, now: SystemTime) -> Result<(), SuccessionError> {
    let _lock = lock(folder)?;
    for (name, text) in successor(folder, now)? {
        let path = folder.join(name);
        file::replace(&path, text.as_bytes()).map_err(|error| PkiError::Io(path, error))?;
    }
    Ok(())
}

/// Whether every certificate is by the present authority, and it alone is trusted or all that are in the folder: what a server does that
/// has looked at the folder since it was changed.
pub fn settled(folder: &Path, now: SystemTime) -> Result<bool, SuccessionError> {
    let present = present(folder, now)?;
    let (trusted, _) = beside(folder, &present)?;
    Ok(is_used(folder, &present)? && read(&folder.join(TRUSTED))?.is_some_and(|told| told == trusted))
}

/// Whether there are authorities before the present one, which can be retired since a server has used the present one.
pub fn can_retire(folder: &Path, now: SystemTime) -> Result<bool, SuccessionError> {
    let present = present(folder, now)?;
    match former(folder, &present)?.is_empty() {
        true => Ok(false),
        false if is_used(folder, &present)? => Ok(true),
        false => Err(SuccessionError::Unused),
    }
}

/// Trusts the authorities before the present one no more; whether there were any.
pub fn retire(folder: &Path, now: SystemTime) -> Result<bool, SuccessionError> {
    let _lock = lock(folder)?;
    if !can_retire(folder, now)? {
        return Ok(false);
    }
    for name in [BRIDGE, FORMER] {
        let path = folder.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(PkiError::Io(path, error).into()),
            _ => {}
        }
    }
    Ok(true)
}

/// Every certificate in a folder, authorities first.
pub fn certificates(folder: &Path) -> Result<Vec<Certificate>, PkiError> {
    let mut found: Vec<Certificate> = Vec::new();
    let files = [
        (Role::Authority, AUTHORITY),
        (Role::FormerAuthority, FORMER),
        (Role::Server, SERVER),
        (Role::Administrator, ADMIN),
    ];
    for (role, file) in files {
        let path = folder.join(file);
        let damaged = |why: String| PkiError::Damaged(path.clone(), why);
        for der in CertificateDer::pem_slice_iter(read(&path)?.unwrap_or_default().as_bytes()) {
            let facts = Facts::of(&der.map_err(|error| damaged(error.to_string()))?).map_err(damaged)?;
            let (name, issuer) = (facts.subject, facts.issuer);
            // What a command left that was cut off before it had put a new authority into the place of this one.
            if role == Role::FormerAuthority && found.iter().any(|authority| authority.name == name) {
                continue;
            }
            found.push(Certificate { role, file, name, issuer, expires: facts.not_after });
        }
    }
    Ok(found)
}

/// What belongs to an authority in its folder: the certificates to trust, its own first, and its own by the one before.
pub(super) fn beside(folder: &Path, authority: &Authority) -> Result<(String, Option<String>), PkiError> {
    let trusted = format!("{}{}", authority.certificate_pem(), former(folder, authority)?);
    let bridge = read(&folder.join(BRIDGE))?.filter(|bridge| authority.is_certified_by(bridge));
    Ok((trusted, bridge))
}

/// The certificates of the authorities before the present one, in PEM.
fn former(folder: &Path, present: &Authority) -> Result<String, PkiError> {
    let text = read(&folder.join(FORMER))?.unwrap_or_default();
    // Before the present one was replaced it was its own.
    Ok(if present.is_certified_by(&text) { String::new() } else { text })
}

/// Whether a server has made its certificates with this authority.
fn is_used(folder: &Path, authority: &Authority) -> Result<bool, PkiError> {
    let by_it = |name: &str| -> Result<bool, PkiError> {
        let pair = read(&folder.join(name))?.and_then(|text| Issued::parse(&text).ok());
        Ok(pair.is_some_and(|pair| authority.has_signed(&pair)))
    };
    Ok(by_it(SERVER)? && by_it(ADMIN)?)
}

fn present(folder: &Path, now: SystemTime) -> Result<Authority, SuccessionError> {
    let path = folder.join(AUTHORITY);
    let text = read(&path)?.ok_or(SuccessionError::Nobody)?;
    Ok(authority_of(&text, &path, now)?)
}

/// The file is left where it is: removing it would let two hold it at once.
fn lock(folder: &Path) -> Result<File, SuccessionError> {
    let path = folder.join(LOCK);
    let failed = |error| SuccessionError::from(PkiError::Io(path.clone(), error));
    if !folder.join(AUTHORITY).exists() {
        return Err(SuccessionError::Nobody);
    }
    let file = file::open_private(&path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(SuccessionError::Busy),
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

#[cfg(test)]
mod tests;
