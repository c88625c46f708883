//! What keeps chosen objects unreadable on the disk: in memory they are as they are, in the log, in checkpoints and in backups
//! sealed.

use std::fmt;

use setpoint_api::kind::GroupResource;

/// Seals objects of some resources on their way to the disk, and opens them on their way back.
///
/// `place` is where an object belongs. It goes into the seal, so that one record can't stand in for another.
pub trait Seal: fmt::Debug + Send + Sync + 'static {
    /// Whether objects of a resource are sealed.
    fn covers(&self, resource: &GroupResource) -> bool;

    /// The sealed form of an object.
    fn seal(&self, place: &[u8], plain: &[u8]) -> Vec<u8>;

    /// The object in a sealed form, or for the operator why it can't be opened.
    fn open(&self, place: &[u8], sealed: &[u8]) -> Result<Vec<u8>, String>;
}

/// Reads as far as one can without a key: a sealed object counts, and stays closed.
#[derive(Debug)]
pub(crate) struct Closed;

impl Seal for Closed {
    fn covers(&self, _: &GroupResource) -> bool {
        false
    }

    fn seal(&self, _: &[u8], plain: &[u8]) -> Vec<u8> {
        plain.to_vec()
    }

    fn open(&self, _: &[u8], _: &[u8]) -> Result<Vec<u8>, String> {
        Ok(br#"{"metadata":{"name":"sealed"}}"#.to_vec())
    }
}
