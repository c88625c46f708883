//! CertificateSigningRequest: somebody asks a signer for a certificate, somebody else approves it.

use std::borrow::Cow;

use serde_json::{Value, json};
use setpoint_api::name::{self, DNS_SUBDOMAIN_BYTES_MAX};
use setpoint_api::quote::quote;

use super::super::cells;
use super::conditions::{self, Leniency};
use super::request;
use crate::behaviour::{Behaviour, Context, keep};
use crate::columns::{Column, field};
use crate::edit::Edit;
use crate::errors::Errors;
use crate::human;
use crate::kind::Kind;
use crate::metadata;
use crate::name_rule::NameRule;
use crate::node::Node;
use crate::selectable::{Selectable, as_text};

/// The signer of requests from before signers had names.
const LEGACY_SIGNER: &str = "kubernetes.io/legacy-unknown";
const EXPIRATION_SECONDS_MIN: i64 = 600;

const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

const SPEC: &str = "io.k8s.api.certificates.v1.CertificateSigningRequestSpec";

/// Upstream describes these columns with the words of an older version.
const ABOUT_SIGNER: &str = "Requested signer for the request. It is a qualified name in the form: \
    `scope-hostname.io/name`. If empty, it will be defaulted:\n 1. If it's a kubelet client certificate, it is assigned\n    \
    \"kubernetes.io/kube-apiserver-client-kubelet\".\n 2. If it's a kubelet serving certificate, it is assigned\n    \
    \"kubernetes.io/kubelet-serving\".\n 3. Otherwise, it is assigned \"kubernetes.io/legacy-unknown\".\nDistribution of \
    trust for signers happens out of band. You can select on this field using `spec.signerName`.";

const COLUMNS: &[Column<'static>] = &[
    Column::NAME,
    Column::AGE,
    Column::new("SignerName", "string", |object, _| cells::text_or_none(object, &["spec", "signerName"]))
        .about(ABOUT_SIGNER),
    Column::new("Requestor", "string", |object, _| field(object, &["spec", "username"]))
        .about("Base64-encoded PKCS#10 CSR data"),
    Column::new("RequestedDuration", "string", |object, _| duration(object)).about_field(SPEC, "expirationSeconds"),
    Column::new("Condition", "string", |object, _| json!(conditions::words(object)))
        .about("Conditions applied to the request, such as approval or denial."),
];

static SELECTABLE: [Selectable; 1] =
    [Selectable::new("spec.signerName", |object| as_text(object.find(&["spec", "signerName"])))];

/// The decisions of CertificateSigningRequest.
#[derive(Debug)]
pub struct CertificateSigningRequest;

impl Behaviour for CertificateSigningRequest {
    /// Who asks is not the user's to say.
    fn prepare_create(&self, object: &mut Value, context: &Context) {
        let (spec, user) = (object.ensure("spec"), &context.user);
        spec.set("username", user.name.as_str());
        spec.set("uid", user.uid.as_str());
        spec.set("groups", user.groups.clone());
        let extra: serde_json::Map<String, Value> =
            user.extra.iter().map(|(key, values)| (key.clone(), values.clone().into())).collect();
        spec.set("extra", extra);
        object.remove("status");
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, _context: &Context) {
        keep(new, old, &["spec", "status"]);
    }

    fn prepare_status_update(&self, new: &mut Value, old: &Value, context: &Context) {
        keep(new, old, &["spec"]);
        conditions::keep_verdicts(new, old);
        conditions::fill_in_times(new, old, context);
    }

    fn prepare_subresource_update(&self, _approval: &str, new: &mut Value, old: &Value, context: &Context) {
        conditions::fill_in_times(new, old, context);
        let list = new.find(&["status", "conditions"]).cloned();
        keep(new, old, &["spec", "status"]);
        new.ensure("status").set_or_remove("conditions", list);
    }

    fn check_create(&self, kind: &Kind, object: &Node<'_>, errs: &mut Errors) {
        check(self, kind, object, None, errs);
    }

    fn check_update(&self, kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        check_change(self, kind, new, old, Way::Main, errs);
    }

    fn check_status_update(&self, kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        check_change(self, kind, new, old, Way::Status, errs);
    }

    fn check_subresource_update(
        &self,
        _approval: &str,
        kind: &Kind,
        new: &Node<'_>,
        old: &Node<'_>,
        errs: &mut Errors,
    ) {
        check_change(self, kind, new, old, Way::Approval, errs);
    }

    fn name_rule(&self) -> NameRule {
        NameRule { name: |_| Vec::new(), prefix: |_| Vec::new() }
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        match subresource {
            "status" => &["spec", "status.conditions"],
            "approval" => &["spec", "status.certificate"],
            _ => &["spec", "status"],
        }
    }

    fn selectable(&self) -> &[Selectable] {
        &SELECTABLE
    }

    fn columns(&self) -> Cow<'_, [Column<'_>]> {
        COLUMNS.into()
    }
}

/// Which way a write came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Main,
    Status,
    Approval,
}

fn check(of: &CertificateSigningRequest, kind: &Kind, object: &Node<'_>, old: Option<&Node<'_>>, errs: &mut Errors) {
    metadata::validate(object, kind.namespaced, of.name_rule(), errs);
    let (spec, old_spec) = (object.get("spec"), old.map(|old| old.get("spec")));
    let request = spec.get("request");
    if let Some(complaint) = request::complaint(request.as_str()) {
        errs.invalid(&request, request.json(), complaint);
    }
    validate_usages(&spec, old_spec.as_ref(), errs);
    let signer = spec.get("signerName");
    let legacy_before = old_spec.as_ref().is_some_and(|old| old.str("signerName") == LEGACY_SIGNER);
    if signer.as_str() == LEGACY_SIGNER && !legacy_before {
        errs.invalid(&signer, signer.as_str(), "the legacy signerName is not allowed via this API version");
    } else {
        validate_signer(&signer, errs);
    }
    if let Some(seconds) = spec.int("expirationSeconds").filter(|seconds| *seconds < EXPIRATION_SECONDS_MIN) {
        let detail = "may not specify a duration less than 600 seconds (10 minutes)";
        errs.invalid(&spec.get("expirationSeconds"), seconds, detail);
    }
    conditions::validate(object, &old.map(Leniency::of).unwrap_or_default(), errs);
    validate_certificate(object, old, errs);
}

fn check_change(
    of: &CertificateSigningRequest,
    kind: &Kind,
    new: &Node<'_>,
    old: &Node<'_>,
    way: Way,
    errs: &mut Errors,
) {
    check(of, kind, new, Some(old), errs);
    conditions::validate_change(new, old, way == Way::Approval, errs);
    let (certificate, before) = (new.get("status").get("certificate"), old.get("status").get("certificate"));
    if certificate.as_str() != before.as_str() {
        if way != Way::Status {
            errs.forbidden(&certificate, "updates may not set certificate content");
        } else if !before.as_str().is_empty() {
            errs.forbidden(&certificate, "updates may not modify existing certificate content");
        }
    }
    metadata::validate_update(new, old, errs);
}

fn validate_usages(spec: &Node<'_>, old: Option<&Node<'_>>, errs: &mut Errors) {
    if spec.count("usages") == 0 {
        errs.required(&spec.get("usages"), "");
    }
    let before: Vec<&str> = old.map(|old| old.strings("usages").collect()).unwrap_or_default();
    if before.iter().all(|usage| USAGES.contains(usage)) {
        for usage in spec.items("usages").filter(|usage| !USAGES.contains(&usage.as_str())) {
            errs.not_supported(&usage, usage.as_str(), &USAGES);
        }
    }
    if before.iter().enumerate().all(|(at, usage)| !before[..at].contains(usage)) {
        let mut seen: Vec<&str> = Vec::new();
        for usage in spec.items("usages") {
            if seen.contains(&usage.as_str()) {
                errs.duplicate(&usage, usage.as_str());
            }
            seen.push(usage.as_str());
        }
    }
}

/// A domain with at least two labels, and a path in it.
fn validate_signer(at: &Node<'_>, errs: &mut Errors) {
    let signer = at.as_str();
    if signer.is_empty() {
        return errs.required(at, "");
    }
    let [domain, path] = signer.split('/').collect::<Vec<_>>()[..] else {
        let detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        return errs.invalid(at, signer, detail);
    };
    if domain.len() > DNS_SUBDOMAIN_BYTES_MAX {
        errs.too_long(at, DNS_SUBDOMAIN_BYTES_MAX);
    }
    validate_labels(at, domain, name::dns1123_label, errs);
    if !domain.contains('.') {
        errs.invalid(at, domain, "should be a domain with at least two segments separated by dots");
    }
    validate_labels(at, path, name::dns1123_subdomain, errs);
}

/// The first label of a segment that breaks the rule.
fn validate_labels(at: &Node<'_>, segment: &str, rule: fn(&str) -> Vec<String>, errs: &mut Errors) {
    let bad = segment.split('.').map(|label| (label, rule(label))).find(|(_, complaints)| !complaints.is_empty());
    for (label, complaint) in
        bad.into_iter().flat_map(|(label, complaints)| complaints.into_iter().map(move |it| (label, it)))
    {
        errs.invalid(at, segment, format!("validating label {}: {complaint}", quote(label)));
    }
}

/// A certificate that nobody touched is taken as it is, and so is any after a bad one.
fn validate_certificate(object: &Node<'_>, old: Option<&Node<'_>>, errs: &mut Errors) {
    let certificate = object.get("status").get("certificate");
    let lenient = old.is_some_and(|old| {
        let before = old.get("status").str("certificate").to_owned();
        before == certificate.as_str() || request::certificate_complaint(&before).is_some()
    });
    if let Some(complaint) = request::certificate_complaint(certificate.as_str()).filter(|_| !lenient) {
        errs.invalid(&certificate, "<certificate data>", complaint);
    }
}

fn duration(object: &Value) -> Value {
    let seconds = object.find(&["spec", "expirationSeconds"]).and_then(Value::as_i64);
    json!(seconds.map_or_else(|| cells::NONE.to_owned(), human::duration))
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{create, create_fails, selected, try_update};
    use super::super::request::OF_ALICE;
    use super::*;

    const API: &str = "certificates.k8s.io/v1";
    const PLURAL: &str = "certificatesigningrequests";

    fn request(signer: &str) -> Value {
        let spec =
            json!({"request": OF_ALICE, "signerName": signer, "usages": ["client auth"], "username": "somebody"});
        json!({"metadata": {"name": "Any:Name"}, "spec": spec})
    }

    fn with_conditions(kinds: &[&str]) -> Value {
        let mut object = request("a.b/c");
        let conditions = kinds.iter().map(|kind| json!({"type": kind, "status": "True"}));
        object["status"] = json!({"conditions": conditions.collect::<Vec<_>>()});
        object
    }

    #[test]
    fn who_asks_is_who_is_logged_in() {
        let object = create(API, PLURAL, request("a.b/c"));
        assert_eq!(object["spec"].get("username"), None);
        assert_eq!(selected(API, PLURAL, &object, "spec.signerName"), "a.b/c");
        assert_eq!(conditions::words(&object), "Pending");
    }

    #[test]
    fn a_signer_has_a_domain_and_a_path() {
        for (signer, expected) in [
            ("", "Required value"),
            (
                "x",
                "Invalid value: \"x\": must be a fully qualified domain and path of the form 'example.com/signer-name'",
            ),
            ("x/y", "Invalid value: \"x\": should be a domain with at least two segments separated by dots"),
            (
                LEGACY_SIGNER,
                "Invalid value: \"kubernetes.io/legacy-unknown\": the legacy signerName is not allowed via this API version",
            ),
        ] {
            create_fails(API, PLURAL, request(signer), &format!("spec.signerName: {expected}"));
        }
    }

    #[test]
    fn only_approval_approves() {
        let (approved, errors) = try_update(API, PLURAL, "approval", request("a.b/c"), with_conditions(&["Approved"]));
        assert_eq!(errors, None);
        assert_eq!(approved["status"]["conditions"][0]["lastUpdateTime"], "2023-11-14T22:13:20Z");
        for (way, kinds, expected) in [
            (
                "status",
                &["Approved"][..],
                "status.conditions: Forbidden: updates may not add a condition of type \"Approved\"",
            ),
            (
                "approval",
                &["Approved", "Denied"],
                "status.conditions: Invalid value: \"Denied\": Approved and Denied conditions are mutually exclusive",
            ),
        ] {
            let (_, errors) = try_update(API, PLURAL, way, request("a.b/c"), with_conditions(kinds));
            assert_eq!(errors.as_deref(), Some(expected));
        }
    }
}
