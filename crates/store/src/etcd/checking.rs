//! Reading everything without following it: is it whole?

use std::sync::Arc;

use setpoint_api::Revision;

use super::format::Format;
use super::keys::Reader;
use super::{EtcdError, EtcdOptions, listing};
use crate::facts::Fields;

/// What was found under a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EtcdReport {
    /// The revision that all of it is of.
    pub revision: Revision,
    /// How many objects there are.
    pub objects: usize,
    /// How many of them should be sealed and are not.
    pub unsealed: usize,
}

/// Reads every object under the prefix as a server would that starts, and writes nothing: servers may run meanwhile.
pub async fn verify_etcd(fields: Arc<dyn Fields>, options: EtcdOptions) -> Result<EtcdReport, EtcdError> {
    let (channel, keys) = options.connect()?;
    let format = Format::read(&channel, &keys).await?;
    let mut reader = Reader::new(keys.clone(), fields, options.seal);
    let (head, _) = listing::read(&channel, &keys, &mut reader, format).await?;
    let objects = head.tables.iter().map(|(_, table)| table.len()).sum();
    Ok(EtcdReport { revision: head.revision, objects, unsealed: reader.unsealed })
}
