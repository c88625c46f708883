//! JSON merge patch (RFC 7386): objects are merged, null removes, anything else replaces.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::{PatchError, Strictness};
use crate::decode::{DecodeError, decode_untyped};
use crate::json::{self, Json};

/// What Kubernetes says of a patch that is no object.
const INVALID: &str = "Invalid JSON Patch";

/// A decoded merge patch.
#[derive(Debug, Clone)]
pub struct MergePatch<'a> {
    patch: Json<'a>,
    complaints: Vec<String>,
}

impl<'a> MergePatch<'a> {
    /// Reads the body of a request.
    pub fn decode(body: &'a [u8], strictness: Strictness) -> Result<Self, PatchError> {
        let (patch, complaints) = match strictness {
            Strictness::Checked => {
                checked(body).map_err(|error| PatchError::BadRequest(format!("error decoding patch: {error}")))?
            }
            Strictness::Lax => match json::parse(body) {
                Ok(patch) => (patch, Vec::new()),
                Err(_) => return Err(PatchError::BadRequest(INVALID.to_owned())),
            },
        };
        match patch {
            Json::Object(_) | Json::Array(_) => Ok(Self { patch, complaints }),
            _ => Err(PatchError::BadRequest(INVALID.to_owned())),
        }
    }

    /// What strict decoding would refuse: `duplicate field "data.a"`.
    pub fn complaints(&self) -> &[String] {
        &self.complaints
    }

    /// The fields of the object that it can change; None if it is no object.
    pub fn fields(&self) -> Option<Vec<&str>> {
        match &self.patch {
            Json::Object(fields) => Some(fields.iter().map(|(name, _)| &**name).collect()),
            _ => None,
        }
    }

    /// The patched document. Objects that the patch enters come out sorted, others as they were written.
    pub fn apply(&self, original: Json<'a>) -> Json<'a> {
        match (original, &self.patch) {
            (Json::Object(fields), Json::Object(patch)) => merge(fields, patch),
            (_, patch) => pruned(patch),
        }
    }
}

/// Reads a patch that must be an object or null, and what strict decoding has against it.
fn checked(body: &[u8]) -> Result<(Json<'_>, Vec<String>), String> {
    let patch = json::parse(body).map_err(|error| error.to_string())?;
    if !matches!(patch, Json::Object(_) | Json::Null) {
        let found = patch.kind().to_owned();
        let expected = "map[string]interface {}".to_owned();
        return Err(DecodeError::Type { found, owner: String::new(), field: String::new(), expected }.to_string());
    }
    let decoded = decode_untyped(patch.clone()).map_err(|error| error.to_string())?;
    Ok((patch, decoded.strict))
}

type Fields<'a> = Vec<(Cow<'a, str>, Json<'a>)>;

fn merge<'a>(original: Fields<'a>, patch: &Fields<'a>) -> Json<'a> {
    let mut merged: BTreeMap<Cow<'a, str>, Json<'a>> = original.into_iter().collect();
    for (key, change) in last_of_each(patch) {
        let changed = match (merged.remove(key), change) {
            (_, Json::Null) => continue,
            (Some(Json::Object(fields)), Json::Object(changes)) => merge(fields, changes),
            // Nulls inside stay: the library prunes only what doesn't take the place of an object.
            (Some(Json::Object(_)), other) => other.clone(),
            (_, other) => pruned(other),
        };
        merged.insert(key.clone(), changed);
    }
    Json::Object(merged.into_iter().collect())
}

/// The value without the nulls in its objects; items of arrays stay.
fn pruned<'a>(value: &Json<'a>) -> Json<'a> {
    match value {
        Json::Object(fields) => {
            let kept = last_of_each(fields).into_iter().filter(|(_, value)| **value != Json::Null);
            Json::Object(kept.map(|(key, value)| (key.clone(), pruned(value))).collect())
        }
        Json::Array(items) => Json::Array(items.iter().map(pruned).collect()),
        scalar => scalar.clone(),
    }
}

fn last_of_each<'p, 'a>(fields: &'p Fields<'a>) -> BTreeMap<&'p Cow<'a, str>, &'p Json<'a>> {
    fields.iter().map(|(key, value)| (key, value)).collect()
}

#[cfg(test)]
mod tests;
