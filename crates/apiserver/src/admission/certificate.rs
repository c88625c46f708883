//! Certificates: those of the API's clients never name the group that may do everything, and who approves or signs has to be
//! allowed to, signer by signer.

use serde_json::Value;
use setpoint_api::Status;
use setpoint_schema::{Edit, base64};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer;
use x509_parser::x509::X509Name;

use super::forbidden;
use crate::authorization::{Asked, What};
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

/// Refuses an approval by somebody who may not approve for the signer.
pub(super) fn check_approval(call: &Call<'_>, old: &Value) -> Result<(), Box<Status>> {
    check_may(call, old, "approve")
}

/// Refuses a certificate, or a verdict on one, of somebody who may not sign for the signer.
pub(super) fn check_signing(call: &Call<'_>, new: &Value, old: &Value) -> Result<(), Box<Status>> {
    let said = |request: &Value| (request["status"]["certificate"].clone(), request["status"]["conditions"].clone());
    if said(new) == said(old) { Ok(()) } else { check_may(call, old, "sign") }
}

fn check_may(call: &Call<'_>, request: &Value, verb: &str) -> Result<(), Box<Status>> {
    let signer = request["spec"].text("signerName");
    let domain = signer.split_once('/').map_or(signer, |(domain, _)| domain);
    let may = |name: &str| {
        let group = "certificates.k8s.io";
        let what = What::Resource { group, resource: "signers", subresource: "", namespace: "", name };
        call.server.access.judge(&call.server.store, call.user, &Asked::new(verb, what)).0
    };
    if call.internal || may(signer) || may(&format!("{domain}/*")) {
        return Ok(());
    }
    let signer = setpoint_api::quote::quote(signer);
    Err(forbidden(call, request, format!("user not permitted to {verb} requests with signerName {signer}")))
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
