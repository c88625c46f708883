//! Patches: the three ways in which a client describes a change instead of the whole object.
//!
//! Each kind is decoded once and may then be applied any number of times, as a conflicting write makes the server start
//! over on a newer object. What the patched document means is not judged here: it goes through
//! [`decode`](crate::decode::decode) like any other.
//!
//! Start at [`JsonPatch`], [`MergePatch`] and [`StrategicPatch`]; [`PatchError`] says how each failure is answered.

use std::fmt;

use setpoint_api::{GroupResource, Status};

mod conversion;
mod document;
mod go_print;
mod items;
mod json_patch;
mod merge_patch;
mod order;
mod strategic;

pub use conversion::{convert_numbers, misfit};
pub use go_print::{json_text, value_text};
pub use json_patch::{COPY_BYTES_MAX, JsonPatch, OPERATIONS_MAX};
pub use merge_patch::MergePatch;
pub use strategic::{Merged, StrategicPatch};

/// Whether decoding looks for doubled and unknown fields, as `fieldValidation` asks. It also decides how errors read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strictness {
    /// `Ignore`: nothing is looked for.
    Lax,
    /// `Warn` and `Strict`: complaints are collected.
    Checked,
}

/// Why a patch was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PatchError {
    /// 400: the patch itself is malformed. The client sees the message.
    BadRequest(String),
    /// 413: a JSON patch with this many operations.
    TooManyOperations(usize),
    /// 422: the patch doesn't fit the object. Kubernetes doesn't show the cause, so it is for the log.
    Unprocessable(String),
    /// 500 without a reason: what Kubernetes answers where it didn't foresee the mistake. The client sees the message.
    Unforeseen(String),
}

impl PatchError {
    /// The HTTP status code.
    pub fn code(&self) -> u16 {
        match self {
            PatchError::BadRequest(_) => 400,
            PatchError::TooManyOperations(_) => 413,
            PatchError::Unprocessable(_) => 422,
            PatchError::Unforeseen(_) => 500,
        }
    }

    /// The answer to the client.
    pub fn status(&self) -> Status {
        match self {
            PatchError::BadRequest(message) => Status::bad_request(message.as_str()),
            PatchError::TooManyOperations(_) => Status::request_entity_too_large(&self.to_string()),
            PatchError::Unprocessable(cause) => {
                Status::generic_server_response(422, "", &GroupResource::new("", ""), "", cause)
            }
            PatchError::Unforeseen(message) => {
                Status { code: 500, reason: String::new(), ..Status::bad_request(message.as_str()) }
            }
        }
    }
}

impl fmt::Display for PatchError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PatchError::BadRequest(text) | PatchError::Unprocessable(text) | PatchError::Unforeseen(text) => {
                formatter.write_str(text)
            }
            PatchError::TooManyOperations(count) => {
                write!(formatter, "The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {count}")
            }
        }
    }
}

impl std::error::Error for PatchError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_has_the_answer_of_kubernetes() {
        let shown = |error: PatchError| {
            let status = error.status();
            assert_eq!(status.code, error.code());
            format!("{} {:?} {}", status.code, status.reason, status.message)
        };
        assert_eq!(shown(PatchError::BadRequest("m".into())), r#"400 "BadRequest" m"#);
        assert_eq!(
            shown(PatchError::TooManyOperations(10_001)),
            "413 \"RequestEntityTooLarge\" Request entity too large: The allowed maximum operations in a JSON patch is \
             10000, got 10001"
        );
        assert_eq!(
            shown(PatchError::Unprocessable("test failed".into())),
            r#"422 "Invalid" the server rejected our request due to an error in our request"#
        );
        assert_eq!(shown(PatchError::Unforeseen("m".into())), r#"500 "" m"#);
    }
}
