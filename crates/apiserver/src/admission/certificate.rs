//! Certificates of the API's clients never name the group that may do everything.

use serde_json::Value;
use setpoint_api::Status;
use setpoint_schema::{Edit, base64};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer;
use x509_parser::x509::X509Name;

use super::forbidden;
use crate::call::Call;

const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// Refuses a request for membership in `system:masters`.
pub(super) fn check(call: &Call<'_>, request: &Value) -> Result<(), Box<Status>> {
    if request["spec"].text("signerName") != CLIENT_SIGNER {
        return Ok(());
    }
    let groups = groups(request).map_err(|why| forbidden(call, request, format!("failed to parse CSR: {why}")))?;
    if !groups.iter().any(|group| group == "system:masters") {
        return Ok(());
    }
    Err(forbidden(call, request, format!("use of {CLIENT_SIGNER} signer with system:masters group is not allowed")))
}

/// The organizations that a certificate request names.
fn groups(request: &Value) -> Result<Vec<String>, String> {
    let named = |subject: &X509Name<'_>| {
        subject.iter_organization().filter_map(|name| name.as_str().ok()).map(str::to_owned).collect()
    };
    with_subject(request, named)
}

/// Whom a certificate request is for.
pub(super) fn common_name(request: &Value) -> Result<String, String> {
    let named = |subject: &X509Name<'_>| {
        subject.iter_common_name().filter_map(|name| name.as_str().ok()).last().unwrap_or_default().to_owned()
    };
    with_subject(request, named)
}

fn with_subject<T>(request: &Value, read: impl FnOnce(&X509Name<'_>) -> T) -> Result<T, String> {
    let text = request["spec"].text("request");
    let pem = base64::decode(text).map_err(|error| format!("{error:?}"))?;
    let (pem, _) = Pem::read(std::io::Cursor::new(pem)).map_err(|error| error.to_string())?;
    let (_, parsed) = X509CertificationRequest::from_der(&pem.contents).map_err(|error| error.to_string())?;
    Ok(read(&parsed.certification_request_info.subject))
}
