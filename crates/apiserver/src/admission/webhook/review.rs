//! What webhooks are sent, and what their answers mean.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use setpoint_api::Status;
use setpoint_schema::Edit;

/// What a webhook said.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    pub(super) allowed: bool,
    pub(super) patch: Vec<u8>,
    pub(super) patch_type: String,
    pub(super) result: Value,
    pub(super) warnings: Vec<String>,
    pub(super) annotations: BTreeMap<String, String>,
}

/// Whether a webhook may change objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    Mutating,
    Validating,
}

/// The first version of reviews that both sides know.
pub(super) fn version(accepted: &[String]) -> Option<&'static str> {
    let known = ["v1", "v1beta1"];
    accepted.iter().find_map(|version| known.into_iter().find(|known| known == version))
}

/// The document that a webhook is sent.
pub(super) fn document(version: &str, request: Value) -> Value {
    json!({"kind": "AdmissionReview", "apiVersion": format!("admission.k8s.io/{version}"), "request": request})
}

/// Reads an answer, or says what is wrong with it.
pub(super) fn read(version: &str, sort: Sort, uid: &str, answer: &Value) -> Result<Verdict, String> {
    let response = answer.get("response").filter(|response| response.is_object());
    let response = response.ok_or("webhook response was absent")?;
    let quoted = setpoint_api::quote::quote;
    let given = response.text("uid");
    if version == "v1" && given != uid {
        return Err(format!("expected response.uid={}, got {}", quoted(uid), quoted(given)));
    }
    let (api_version, kind) = (answer.text("apiVersion"), answer.text("kind"));
    if version == "v1" && (api_version != "admission.k8s.io/v1" || kind != "AdmissionReview") {
        let shown = if api_version.contains('/') { api_version.to_owned() } else { format!("/{api_version}") };
        return Err(format!(
            "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {shown}, Kind={kind}"
        ));
    }
    let patch = STANDARD.decode(response.text("patch")).map_err(|error| format!("illegal base64 data: {error}"))?;
    let patch_type = response.get("patchType").and_then(Value::as_str);
    let patch_type = match (sort, version) {
        (Sort::Mutating, "v1") => match (patch.is_empty(), patch_type) {
            (false, None) => return Err("webhook returned response.patch but not response.patchType".into()),
            (true, Some(_)) => return Err("webhook returned response.patchType but not response.patch".into()),
            (_, Some("")) => return Err("webhook returned invalid response.patchType of \"\"".into()),
            (_, given) => given.unwrap_or_default(),
        },
        (Sort::Mutating, _) => "JSONPatch",
        (Sort::Validating, "v1") if !patch.is_empty() => {
            return Err("validating webhook may not return response.patch".into());
        }
        (Sort::Validating, "v1") if patch_type.is_some() => {
            return Err("validating webhook may not return response.patchType".into());
        }
        (Sort::Validating, _) => "",
    };
    let texts = response["warnings"].as_array().into_iter().flatten();
    let annotations = response["auditAnnotations"].as_object().into_iter().flatten();
    Ok(Verdict {
        allowed: response.flag("allowed"),
        patch: if sort == Sort::Mutating { patch } else { Vec::new() },
        patch_type: patch_type.to_owned(),
        result: response["status"].clone(),
        warnings: texts.filter_map(Value::as_str).map(str::to_owned).collect(),
        annotations: annotations.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect(),
    })
}

/// The refusal of a webhook as an answer to the client. Webhooks don't say that a status is one, and clients don't read what doesn't.
pub(super) fn denied(webhook: &str, result: &Value) -> Box<Status> {
    let mut status: Status = serde_json::from_value(result.clone()).unwrap_or_else(|_| Status::success(0));
    if status.code < 400 {
        status.code = 400;
    }
    (status.kind, status.api_version) = ("Status".to_owned(), "v1".to_owned());
    status.status = "Failure".to_owned();
    let denied = format!("admission webhook {} denied the request", setpoint_api::quote::quote(webhook));
    status.message = match (&*status.message, &*status.reason) {
        ("", "") => format!("{denied} without explanation"),
        ("", reason) => format!("{denied}: {reason}"),
        (message, _) => format!("{denied}: {message}"),
    };
    Box::new(status)
}
