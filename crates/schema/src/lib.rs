//! What each kind allows: built-in and custom ones.
//!
//! One description of each kind ([`Kind`]) drives discovery, decoding, defaults, validation, columns, selectors and
//! OpenAPI. Objects are JSON values ([`serde_json::Value`]) under a type ([`TypeRef`]) all the way from the request to
//! the store.
//!
//! Invariants
//! - This crate never does IO, never reads a clock and never draws a random number.
//! - Whatever the input, there is an answer: an error in Kubernetes' words, never a panic, never unbounded work.
//! - A value that left [`decode`](decode::decode) fits its type and is in the form in which Go would print it.
//!
//! Start at [`Kind`], then [`Behaviour`], then [`builtin`] for how a kind is added.

pub mod base64;
pub mod behaviour;
pub mod builtin;
pub mod cel;
pub mod columns;
pub mod custom;
pub mod decode;
pub mod edit;
pub mod emptied;
pub mod equality;
pub mod errors;
pub mod facts;
pub mod human;
pub mod internal_form;
pub mod json;
pub mod kind;
pub mod line_diff;
pub mod managed;
pub mod metadata;
pub mod name_rule;
pub mod node;
pub mod normal;
pub mod partial;
pub mod patch;
pub mod protobuf;
pub mod regexp;
pub mod selectable;
pub mod settled;
pub mod types;
pub mod yaml;

pub use behaviour::{Behaviour, Context, Generation};
pub use columns::Column;
pub use decode::{DecodeError, Decoded};
pub use edit::Edit;
pub use emptied::Emptied;
pub use errors::Errors;
pub use kind::Kind;
pub use name_rule::NameRule;
pub use node::Node;
pub use selectable::Selectable;
pub use types::{Schema, TypeRef};
