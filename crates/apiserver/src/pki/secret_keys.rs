//! Keys that seal chosen objects on the disk (AES-256-GCM): one file, of which the first key seals and all open.
//!
//! A sealed object is a version, the name of its key, a random nonce, and the ciphertext with its tag. Where the object belongs
//! is bound to it as associated data. A key is good for 2^32 nonces that are drawn at random (NIST SP 800-38D), which is far more
//! writes than a cluster makes between two rotations.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use setpoint_api::GroupResource;
use setpoint_store::Seal;

use super::file;

/// Largest file of keys that is read: some hundred rotations.
const FILE_BYTES_MAX: u64 = 16 * 1024;

const KEY_BYTES: usize = 32;
const NAME_BYTES: usize = 8;

/// The form that is written.
const VERSION: u8 = 1;

const HEADING: &str = "# Keys of secrets at rest, in base64. The first one seals, all of them open what they have sealed.\n\
                       # Without them secrets are lost: keep a copy, but not beside the backups.\n";

/// The keys of one data directory, and what they are for.
pub struct SecretKeys {
    file: PathBuf,
    keys: Vec<Key>,
    covered: Vec<GroupResource>,
}

struct Key {
    /// Tells keys apart: the beginning of the key's digest.
    name: [u8; NAME_BYTES],
    key: LessSafeKey,
}

impl SecretKeys {
    /// The keys in a file, for objects of these resources. None if there is no such file.
    pub fn read(file: &Path, covered: Vec<GroupResource>) -> Result<Option<SecretKeys>, KeyFileError> {
        let failed = |why: String| KeyFileError { file: file.to_owned(), why };
        match fs::metadata(file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error.to_string())),
            Ok(found) if found.len() > FILE_BYTES_MAX => return Err(failed("it is too large".to_owned())),
            Ok(_) => {}
        }
        let text = fs::read_to_string(file).map_err(|error| failed(error.to_string()))?;
        let lines = text.lines().map(str::trim).enumerate();
        let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let mut keys = Vec::new();
        for (index, line) in lines {
            let bytes = STANDARD.decode(line).ok().filter(|bytes| bytes.len() == KEY_BYTES);
            let bytes = bytes.ok_or_else(|| failed(format!("line {} is not 32 bytes in base64", index + 1)))?;
            keys.push(Key::new(&bytes).ok_or_else(|| failed(format!("line {} is no key", index + 1)))?);
        }
        match keys.is_empty() {
            true => Err(failed("there is no key in it".to_owned())),
            false => Ok(Some(SecretKeys { file: file.to_owned(), keys, covered })),
        }
    }

    /// Puts a new key first in a file, making the file if there is none.
    pub fn add(file: &Path) -> Result<(), KeyFileError> {
        let failed = |error: io::Error| KeyFileError { file: file.to_owned(), why: error.to_string() };
        let others = match fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(failed(error)),
        };
        let mut key = [0; KEY_BYTES];
        let drawn = SystemRandom::new().fill(&mut key);
        drawn.map_err(|_| failed(io::Error::other("the system gives no random numbers")))?;
        let mut text = format!("{HEADING}{}\n", STANDARD.encode(key));
        for line in others.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            text.push_str(line);
            text.push('\n');
        }
        file::private_folder(file.parent().unwrap_or(Path::new("."))).map_err(failed)?;
        file::replace(file, text.as_bytes()).map_err(failed)
    }

    /// Keeps only the first key of a file: for when nothing is left that another one has sealed.
    pub fn drop_old(file: &Path) -> Result<(), KeyFileError> {
        let failed = |error: io::Error| KeyFileError { file: file.to_owned(), why: error.to_string() };
        let text = fs::read_to_string(file).map_err(failed)?;
        let first = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
        let text = format!("{HEADING}{}\n", first.unwrap_or_default());
        file::replace(file, text.as_bytes()).map_err(failed)
    }

    /// How many keys there are.
    pub fn count(&self) -> usize {
        self.keys.len()
    }
}

impl Key {
    fn new(bytes: &[u8]) -> Option<Key> {
        let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
        let name = digest.as_ref()[..NAME_BYTES].try_into().ok()?;
        Some(Key { name, key: LessSafeKey::new(UnboundKey::new(&AES_256_GCM, bytes).ok()?) })
    }
}

impl Seal for SecretKeys {
    fn covers(&self, resource: &GroupResource) -> bool {
        self.covered.contains(resource)
    }

    fn seal(&self, place: &[u8], plain: &[u8]) -> Vec<u8> {
        let Key { name, key } = &self.keys[0];
        let mut nonce = [0; NONCE_LEN];
        // Certificates could not have been made without random numbers either.
        SystemRandom::new().fill(&mut nonce).expect("the system gives random numbers");
        let mut sealed = Vec::with_capacity(1 + NAME_BYTES + NONCE_LEN + plain.len() + AES_256_GCM.tag_len());
        sealed.push(VERSION);
        sealed.extend_from_slice(name);
        sealed.extend_from_slice(&nonce);
        let mut body = plain.to_vec();
        key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(place), &mut body)
            .expect("an object is far smaller than what one nonce is good for");
        sealed.extend_from_slice(&body);
        sealed
    }

    fn open(&self, place: &[u8], sealed: &[u8]) -> Result<Vec<u8>, String> {
        let form = "it is not in a form that this version knows";
        let (version, rest) = sealed.split_first().ok_or(form)?;
        if *version != VERSION || rest.len() < NAME_BYTES + NONCE_LEN {
            return Err(form.to_owned());
        }
        let (name, rest) = rest.split_at(NAME_BYTES);
        let (nonce, body) = rest.split_at(NONCE_LEN);
        let file = self.file.display();
        let Some(Key { key, .. }) = self.keys.iter().find(|key| key.name == name) else {
            return Err(format!("the key that it was sealed with is not in {file}"));
        };
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| form)?;
        let mut body = body.to_vec();
        let opened = key.open_in_place(nonce, Aad::from(place), &mut body);
        let length = opened.map_err(|_| format!("it was changed, or moved here, without the key in {file}"))?.len();
        body.truncate(length);
        Ok(body)
    }
}

/// Keys are secrets: only how many there are can be shown.
impl fmt::Debug for SecretKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretKeys").field("file", &self.file).field("keys", &self.keys.len()).finish_non_exhaustive()
    }
}

/// A file of keys that can't be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyFileError {
    file: PathBuf,
    why: String,
}

impl fmt::Display for KeyFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the keys in {} can't be used: {}", self.file.display(), self.why)
    }
}

impl std::error::Error for KeyFileError {}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn keys(file: &Path) -> SecretKeys {
        SecretKeys::read(file, vec![GroupResource::new("", "secrets")]).unwrap().unwrap()
    }

    #[test]
    fn what_one_key_has_sealed_opens_after_a_rotation_and_nowhere_else() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pki/secrets.keys");
        assert!(SecretKeys::read(&file, Vec::new()).unwrap().is_none());
        SecretKeys::add(&file).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let before = keys(&file);
        let sealed = before.seal(b"a", b"canary");
        assert_ne!(sealed, before.seal(b"a", b"canary"), "nonces differ");
        assert!(!sealed.windows(6).any(|bytes| bytes == b"canary"));

        SecretKeys::add(&file).unwrap();
        let after = keys(&file);
        assert_eq!((after.count(), after.open(b"a", &sealed)), (2, Ok(b"canary".to_vec())));
        let newer = after.seal(b"a", b"canary");
        assert!(before.open(b"a", &newer).unwrap_err().contains("secrets.keys"), "sealed with the new key");
        assert!(after.open(b"b", &sealed).unwrap_err().contains("moved"), "bound to its place");
        let mut changed = sealed.clone();
        *changed.last_mut().unwrap() ^= 1;
        assert!(after.open(b"a", &changed).is_err());
        for length in 0..sealed.len() {
            assert!(after.open(b"a", &sealed[..length]).is_err(), "cut to {length}");
        }

        SecretKeys::drop_old(&file).unwrap();
        let last = keys(&file);
        assert_eq!((last.count(), last.open(b"a", &newer)), (1, Ok(b"canary".to_vec())));
        assert!(last.open(b"a", &sealed).is_err());
    }

    #[test]
    fn a_file_that_is_no_file_of_keys_is_told_by_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secrets.keys");
        let check = |text: &str, expected: &str| {
            fs::write(&file, text).unwrap();
            let error = SecretKeys::read(&file, Vec::new()).unwrap_err().to_string();
            assert!(error.contains("secrets.keys") && error.contains(expected), "{error}");
        };
        check("# nothing\n", "there is no key in it");
        check("# a\nAAAA\n", "line 2 is not 32 bytes in base64");
        check(&"#".repeat(20_000), "too large");
    }
}
