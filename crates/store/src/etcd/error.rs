//! Why etcd can't be used as a store.

use std::fmt;

/// Why a store on etcd can't be opened or filled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EtcdError {
    /// No member answers, or none with what is asked of it.
    Unreachable(String),
    /// The address, the certificates or the prefix can't be used.
    Settings(String),
    /// There is something under the prefix that is not ours.
    Foreign(String),
    /// An object can't be read.
    Unreadable {
        /// Its key.
        key: String,
        /// What is wrong with it.
        why: String,
    },
    /// Written by another version, or a migration to it has not come to its end.
    Format(String),
    /// There is something under the prefix already.
    NotEmpty,
    /// No server has ever used the prefix.
    Empty,
}

impl fmt::Display for EtcdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EtcdError::Unreachable(why) | EtcdError::Settings(why) | EtcdError::Format(why) => f.write_str(why),
            EtcdError::Foreign(key) => write!(f, "{key} in etcd is not ours: the prefix is used by something else"),
            EtcdError::Unreadable { key, why } => write!(f, "{key} in etcd can't be read: {why}"),
            EtcdError::Empty => f.write_str("nothing was ever stored under the prefix"),
            EtcdError::NotEmpty => f.write_str("there is something under the prefix already"),
        }
    }
}

impl std::error::Error for EtcdError {}
