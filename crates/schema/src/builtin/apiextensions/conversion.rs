//! How objects get from one version to another: not at all, or by a webhook.

use std::collections::HashSet;

use setpoint_api::{BadValue, name};

use super::super::webhook_client;
use crate::base64;
use crate::errors::Errors;
use crate::node::Node;

const REVIEW_VERSIONS: &[&str] = &["v1", "v1beta1"];

/// The rules for `spec.conversion`. Messages name the webhook's parts as upstream's older version did.
pub(super) fn validate_conversion(spec: &Node<'_>, check_certificates: bool, errs: &mut Errors) {
    let conversion = spec.get("conversion");
    if !conversion.is_set() {
        return;
    }
    let strategy = conversion.get("strategy");
    if !matches!(strategy.as_str(), "None" | "Webhook" | "") {
        errs.not_supported(&strategy, strategy.as_str(), &["None", "Webhook"]);
    } else if strategy.is_empty() {
        errs.required(&strategy, "");
    }
    let webhook = conversion.get("webhook");
    let client = webhook.get("clientConfig").at("spec.conversion.webhookClientConfig");
    let versions = webhook.get("conversionReviewVersions").at("spec.conversion.conversionReviewVersions");
    if strategy.as_str() != "Webhook" {
        let detail = "should not be set when strategy is not set to Webhook";
        for part in [&client, &versions].into_iter().filter(|part| part.is_set() && !is_empty_list(part)) {
            errs.forbidden(part, detail);
        }
        return;
    }
    if client.is_set() {
        validate_client(&client, check_certificates, errs);
    } else {
        errs.required(&client, "required when strategy is set to Webhook");
    }
    validate_review_versions(&versions, errs);
}

fn is_empty_list(part: &Node<'_>) -> bool {
    part.json().as_array().is_some_and(|items| items.is_empty())
}

fn validate_client(client: &Node<'_>, check_certificates: bool, errs: &mut Errors) {
    match (client.has("url"), client.has("service")) {
        (true, false) => webhook_client::validate_url(&client.get("url"), errs),
        (false, true) => webhook_client::validate_service(&client.get("service"), errs),
        _ => errs.required(client, "exactly one of url or service is required"),
    }
    let bundle = client.get("caBundle");
    let has_certificate = || {
        let bytes = base64::decode(bundle.as_str()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).contains("-----BEGIN CERTIFICATE-----")
    };
    if check_certificates && !bundle.is_empty() && !has_certificate() {
        let detail = "unable to load root certificates: unable to parse bytes as PEM block";
        errs.invalid(&bundle, BadValue::json(bundle.json()), detail);
    }
}

fn validate_review_versions(versions: &Node<'_>, errs: &mut Errors) {
    if versions.is_empty() {
        return errs.required(versions, "");
    }
    let mut seen = HashSet::new();
    for version in versions.clone().into_items() {
        if !seen.insert(version.as_str()) {
            errs.invalid_here(&version, "duplicate version");
            continue;
        }
        errs.invalid_each(&version, version.as_str(), name::dns1035_label(version.as_str()));
    }
    if !REVIEW_VERSIONS.iter().any(|version| seen.contains(version)) {
        errs.invalid_here(versions, format!("must include at least one of {}", REVIEW_VERSIONS.join(", ")));
    }
}
