//! JSON patch (RFC 6902), with the habits of the library that Kubernetes uses.
//!
//! Where it differs from the RFC: negative array indices count from the end; `replace` of a key that an object doesn't
//! have adds it; `copy` of such a key puts null; `test` of such a key against null holds; what stands before the first
//! slash of a pointer is ignored; members besides `op`, `path`, `from` and `value` are ignored with a complaint.

use std::collections::HashSet;

use setpoint_api::quote::quote;

use super::document::{HolderError, Node};
use super::{PatchError, Strictness};
use crate::decode::{DecodeError, decode_untyped};
use crate::json::{self, Json};

/// Most operations in one patch, as in Kubernetes.
pub const OPERATIONS_MAX: usize = 10_000;

/// Most bytes that the `copy` operations of one patch may add in all, as in Kubernetes: without it a patch of a few
/// lines doubles a document until memory is full.
pub const COPY_BYTES_MAX: usize = 3 * 1024 * 1024;

/// Most complaints that are kept, as in Kubernetes.
const COMPLAINTS_MAX: usize = 100;

/// A decoded JSON patch.
#[derive(Debug, Clone)]
pub struct JsonPatch<'a> {
    operations: Vec<Json<'a>>,
    complaints: Vec<String>,
}

impl<'a> JsonPatch<'a> {
    /// Reads the body of a request.
    pub fn decode(body: &'a [u8], strictness: Strictness) -> Result<Self, PatchError> {
        let patch = match strictness {
            Strictness::Checked => Self::decode_checked(body).map_err(|error| format!("error decoding patch: {error}")),
            Strictness::Lax => Self::decode_lax(body),
        };
        let patch = patch.map_err(PatchError::BadRequest)?;
        match patch.operations.len() {
            count if count > OPERATIONS_MAX => Err(PatchError::TooManyOperations(count)),
            _ => Ok(patch),
        }
    }

    /// What strict decoding would refuse: `json patch unknown field "[0].x"`.
    pub fn complaints(&self) -> &[String] {
        &self.complaints
    }

    /// The document after all operations, or why one of them can't be done.
    pub fn apply(&self, original: Json<'a>) -> Result<Json<'a>, PatchError> {
        let mut run = Run { root: original.into(), copied: 0 };
        run.root.open();
        for operation in &self.operations {
            run.step(operation).map_err(PatchError::Unprocessable)?;
        }
        Ok(run.root.into())
    }

    fn decode_lax(body: &'a [u8]) -> Result<Self, String> {
        let operations = operations(json::parse(body).map_err(|error| error.to_string())?, "jsonpatch.Patch")?;
        match operations.iter().find(|operation| !matches!(operation, Json::Object(_) | Json::Null)) {
            Some(other) => Err(type_error(other, "jsonpatch.Operation")),
            None => Ok(Self { operations, complaints: Vec::new() }),
        }
    }

    fn decode_checked(body: &'a [u8]) -> Result<Self, String> {
        let operations = operations(json::parse(body).map_err(|error| error.to_string())?, "[]handlers.jsonPatchOp")?;
        let mut complaints = Complaints::default();
        for (index, operation) in operations.iter().enumerate() {
            match operation {
                Json::Object(members) => complaints.check(index, members)?,
                Json::Null => {}
                other => return Err(type_error(other, "handlers.jsonPatchOp")),
            }
        }
        Ok(Self { operations, complaints: complaints.found })
    }
}

fn operations<'a>(json: Json<'a>, expected: &str) -> Result<Vec<Json<'a>>, String> {
    match json {
        Json::Array(operations) => Ok(operations),
        Json::Null => Ok(Vec::new()),
        other => Err(type_error(&other, expected)),
    }
}

fn type_error(found: &Json<'_>, expected: &str) -> String {
    format!("json: cannot unmarshal {} into Go value of type {expected}", found.kind())
}

/// What strict decoding has against the members of operations.
#[derive(Default)]
struct Complaints {
    found: Vec<String>,
    seen: HashSet<String>,
}

impl Complaints {
    fn check(&mut self, index: usize, members: &[(std::borrow::Cow<'_, str>, Json<'_>)]) -> Result<(), String> {
        let mut seen = [false; 4];
        for (name, value) in members {
            let Some(known) = ["op", "path", "from", "value"].iter().position(|member| member == name) else {
                self.add(format!("unknown field {}", quote(&format!("[{index}].{name}"))));
                continue;
            };
            if std::mem::replace(&mut seen[known], true) {
                self.add(format!("duplicate field {}", quote(&format!("[{index}].{name}"))));
            }
            match value {
                _ if name == "value" => self.check_value(index, value.clone())?,
                Json::String(_) | Json::Null => {}
                other => {
                    let found = other.kind();
                    return Err(format!(
                        "json: cannot unmarshal {found} into Go struct field jsonPatchOp.{name} of type string"
                    ));
                }
            }
        }
        Ok(())
    }

    /// The key under which the value is decoded is the way to it, so that complaints name their place in the patch.
    fn check_value(&mut self, index: usize, value: Json<'_>) -> Result<(), String> {
        let placed = Json::Object(vec![(format!("[{index}].value").into(), value)]);
        let decoded = decode_untyped(placed).map_err(|error| match error {
            DecodeError::Type { found, expected, .. } => {
                format!("json: cannot unmarshal {found} into Go struct field jsonPatchOp.value of type {expected}")
            }
            DecodeError::Value(message) => message,
        })?;
        decoded.strict.into_iter().for_each(|complaint| self.add(complaint));
        Ok(())
    }

    fn add(&mut self, complaint: String) {
        if self.found.len() < COMPLAINTS_MAX && self.seen.insert(complaint.clone()) {
            self.found.push(format!("json patch {complaint}"));
        }
    }
}

/// A patch being applied.
struct Run<'a> {
    root: Node<'a>,
    /// Bytes that `copy` has added so far.
    copied: usize,
}

const MISSING: &str = "missing value";
const TEST_FAILED: &str = "test failed";

impl<'a> Run<'a> {
    fn step(&mut self, operation: &Json<'a>) -> Result<(), String> {
        match operation.get("op").and_then(Json::as_str).unwrap_or("unknown") {
            "add" => self.add(operation),
            "remove" => self.remove(operation),
            "replace" => self.replace(operation),
            "move" => self.relocate(operation),
            "test" => self.test(operation),
            "copy" => self.copy(operation),
            other => Err(format!("Unexpected kind: {other}")),
        }
    }

    fn add(&mut self, operation: &Json<'a>) -> Result<(), String> {
        let path = pointer(operation, "path").map_err(|_| format!("add operation failed to decode path: {MISSING}"))?;
        let value = value(operation);
        let missing = || format!("add operation does not apply: doc is missing path: \"{path}\": {MISSING}");
        let (holder, key) = self.root.holder(path, value.height()).map_err(|error| reason(error, missing))?;
        holder.add(&key, value).map_err(|error| format!("error in add for path: '{path}': {error}"))
    }

    fn remove(&mut self, operation: &Json<'a>) -> Result<(), String> {
        let path =
            pointer(operation, "path").map_err(|_| format!("remove operation failed to decode path: {MISSING}"))?;
        let missing = || format!("remove operation does not apply: doc is missing path: \"{path}\": {MISSING}");
        let (holder, key) = self.root.holder(path, 0).map_err(|error| reason(error, missing))?;
        holder.remove(&key).map_err(|error| format!("error in remove for path: '{path}': {error}"))?;
        Ok(())
    }

    fn replace(&mut self, operation: &Json<'a>) -> Result<(), String> {
        let path =
            pointer(operation, "path").map_err(|error| format!("replace operation failed to decode path: {error}"))?;
        let value = value(operation);
        if path.is_empty() {
            if !value.is_container() {
                return Err("replace operation value must be object or array".to_owned());
            }
            self.root = value;
            self.root.open();
            return Ok(());
        }
        let missing = || format!("replace operation does not apply: doc is missing path: {path}: {MISSING}");
        let (holder, key) = self.root.holder(path, value.height()).map_err(|error| reason(error, missing))?;
        holder
            .set(&key, value)
            .map_err(|_| format!("replace operation does not apply: doc is missing key: {path}: {MISSING}"))
    }

    /// `move`, a word that Rust keeps for itself.
    fn relocate(&mut self, operation: &Json<'a>) -> Result<(), String> {
        let from =
            pointer(operation, "from").map_err(|error| format!("move operation failed to decode from: {error}"))?;
        let missing = || format!("move operation does not apply: doc is missing from path: {from}: {MISSING}");
        let (holder, key) = self.root.holder(from, 0).map_err(|error| reason(error, missing))?;
        let value = holder.remove(&key).map_err(|error| format!("error in move for path: '{key}': {error}"))?;
        let path =
            pointer(operation, "path").map_err(|error| format!("move operation failed to decode path: {error}"))?;
        let missing = || format!("move operation does not apply: doc is missing destination path: {path}: {MISSING}");
        let (holder, key) = self.root.holder(path, value.height()).map_err(|error| reason(error, missing))?;
        holder.add(&key, value).map_err(|error| format!("error in move for path: '{path}': {error}"))
    }

    fn test(&mut self, operation: &Json<'a>) -> Result<(), String> {
        let path =
            pointer(operation, "path").map_err(|error| format!("test operation failed to decode path: {error}"))?;
        let failed = || format!("testing value {path} failed: {TEST_FAILED}");
        let mut wanted = value(operation);
        if path.is_empty() {
            return if self.root.equals(&mut wanted) { Ok(()) } else { Err(failed()) };
        }
        let missing = || format!("test operation does not apply: is missing path: {path}: {MISSING}");
        let (holder, key) = self.root.holder(path, 0).map_err(|error| reason(error, missing))?;
        let holds = match holder.get(&key).map_err(|error| format!("error in test for path: '{path}': {error}"))? {
            Some(actual) => actual.equals(&mut wanted),
            None => wanted.is_null(),
        };
        if holds { Ok(()) } else { Err(failed()) }
    }

    fn copy(&mut self, operation: &Json<'a>) -> Result<(), String> {
        let from =
            pointer(operation, "from").map_err(|error| format!("copy operation failed to decode from: {error}"))?;
        let missing = || format!("copy operation does not apply: doc is missing from path: {from}: {MISSING}");
        let (holder, key) = self.root.holder(from, 0).map_err(|error| reason(error, missing))?;
        holder.get(&key).map_err(|error| format!("error in copy for from: '{from}': {error}"))?;
        let path =
            pointer(operation, "path").map_err(|_| format!("copy operation failed to decode path: {MISSING}"))?;
        let missing = || format!("copy operation does not apply: doc is missing destination path: {path}: {MISSING}");
        // The way to the destination is entered before the value is copied: it may lead through the value.
        self.root.holder(path, 0).map_err(|error| reason(error, missing))?;
        let value = self.duplicate(from)?;
        let (holder, key) = self.root.holder(path, value.height()).map_err(|error| reason(error, missing))?;
        holder.add(&key, value).map_err(|error| format!("error while adding value during copy: {error}"))
    }

    /// A copy of what a pointer names, null if it names nothing, within the bound on all copies.
    fn duplicate(&mut self, from: &str) -> Result<Node<'a>, String> {
        let source = match self.root.holder(from, 0) {
            Ok((holder, key)) => holder.get(&key)?,
            Err(_) => None,
        };
        match source {
            Some(node) if !node.is_null() => {
                self.copied = copied_bytes(self.copied, node)?;
                Ok(node.clone())
            }
            _ => Ok(Node::null()),
        }
    }
}

fn copied_bytes(before: usize, node: &Node<'_>) -> Result<usize, String> {
    match before + node.json_bytes() {
        sum if sum > COPY_BYTES_MAX => Err(format!(
            "Unable to complete the copy, the accumulated size increase of copy is {sum}, exceeding the limit \
             {COPY_BYTES_MAX}"
        )),
        sum => Ok(sum),
    }
}

fn pointer<'p>(operation: &'p Json<'_>, member: &str) -> Result<&'p str, String> {
    match operation.get(member) {
        Some(Json::String(text)) => Ok(text),
        Some(Json::Null) | None => {
            let comma = if member == "from" { "," } else { "" };
            Err(format!("operation{comma} missing {member} field: {MISSING}"))
        }
        Some(other) => Err(type_error(other, "string")),
    }
}

fn value<'a>(operation: &Json<'a>) -> Node<'a> {
    operation.get("value").map_or_else(Node::null, |value| value.clone().into())
}

fn reason(error: HolderError, missing: impl FnOnce() -> String) -> String {
    match error {
        HolderError::Missing => missing(),
        HolderError::TooDeep => "exceeded max depth".to_owned(),
    }
}

#[cfg(test)]
mod tests;
