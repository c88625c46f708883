//! Volumes made of files: keys of ConfigMaps and Secrets, facts about the pod, tokens.

use std::collections::BTreeSet;

use setpoint_api::labels::ValueRules;
use setpoint_api::name;

use super::env::{FILE_FIELDS, validate_field_ref, validate_resource_ref};
use super::options::Options;
use super::volumes::{validate_local_path, validate_mode};
use crate::builtin::label_selector;
use crate::errors::Errors;
use crate::node::Node;

/// Shortest life of a token.
const TOKEN_SECONDS_MIN: i64 = 600;
/// Longest life of a token.
const TOKEN_SECONDS_MAX: i64 = 1 << 32;
const DUPLICATE: &str = "conflicting duplicate paths";
const KEY_TYPES: [&str; 6] = ["RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"];

/// The rules for a key that becomes a file.
pub fn validate_key_to_path(item: &Node<'_>, errs: &mut Errors) {
    for field in ["key", "path"] {
        if item.str(field).is_empty() {
            errs.required(&item.get(field), "");
        }
    }
    validate_local_path(&item.get("path"), item.str("path"), errs);
    validate_mode(&item.get("mode"), errs);
}

/// The rules for a fact about the pod that becomes a file.
pub fn validate_downward_file(file: &Node<'_>, errs: &mut Errors) {
    if file.str("path").is_empty() {
        errs.required(&file.get("path"), "");
    }
    validate_local_path(&file.get("path"), file.str("path"), errs);
    match (file.has("fieldRef"), file.has("resourceFieldRef")) {
        (true, both) => {
            validate_field_ref(&file.get("fieldRef"), &FILE_FIELDS, errs);
            if both {
                errs.invalid(file, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously");
            }
        }
        (false, true) => validate_resource_ref(&file.get("resourceFieldRef"), true, errs),
        (false, false) => errs.required(file, "one of fieldRef and resourceFieldRef is required"),
    }
    validate_mode(&file.get("mode"), errs);
}

/// The rules for several sources in one volume.
pub fn validate_projected(volume: &Node<'_>, options: &Options, errs: &mut Errors) {
    validate_mode(&volume.get("defaultMode"), errs);
    let mut paths = Paths { volume, taken: BTreeSet::new() };
    for source in volume.items("sources") {
        let mut count = 0;
        for kind in
            ["secret", "configMap", "downwardAPI", "serviceAccountToken", "clusterTrustBundle", "podCertificate"]
        {
            let at = source.get(kind);
            if !at.is_set() {
                continue;
            }
            count += 1;
            match kind {
                "secret" | "configMap" => validate_keys(&at, &mut paths, errs),
                "downwardAPI" => validate_downward(&at, &mut paths, errs),
                "serviceAccountToken" => validate_token(&at, volume, options, errs),
                "clusterTrustBundle" => validate_trust_bundle(&at, &mut paths, errs),
                _ => validate_certificate(&at, &mut paths, errs),
            }
        }
        if count > 1 {
            errs.forbidden(&source, "may not specify more than 1 volume type per source");
        }
    }
}

/// The files of a volume, each once.
struct Paths<'a, 'v> {
    volume: &'v Node<'a>,
    taken: BTreeSet<&'a str>,
}

impl<'a> Paths<'a, '_> {
    fn take(&mut self, path: &'a str, shown: &str, errs: &mut Errors) {
        if !self.taken.insert(path) {
            errs.invalid(self.volume, shown, DUPLICATE);
        }
    }
}

fn validate_keys<'a>(at: &Node<'a>, paths: &mut Paths<'a, '_>, errs: &mut Errors) {
    let name = at.str("name");
    if name.is_empty() {
        errs.required(&at.get("name"), "");
    }
    for item in at.items("items") {
        validate_key_to_path(&item, errs);
        if !item.str("path").is_empty() {
            paths.take(item.str("path"), name, errs);
        }
    }
}

fn validate_downward<'a>(at: &Node<'a>, paths: &mut Paths<'a, '_>, errs: &mut Errors) {
    for file in at.items("items") {
        validate_downward_file(&file.at(at.path()), errs);
        let path = file.str("path");
        if !path.is_empty() {
            paths.take(path, path, errs);
        }
    }
}

fn validate_token(at: &Node<'_>, volume: &Node<'_>, options: &Options, errs: &mut Errors) {
    let expiration = at.get("expirationSeconds");
    let seconds = expiration.as_int().unwrap_or(0);
    if seconds < TOKEN_SECONDS_MIN {
        errs.invalid(&expiration, seconds, "may not specify a duration less than 10 minutes");
    }
    if seconds > TOKEN_SECONDS_MAX {
        errs.invalid(&expiration, seconds, "may not specify a duration larger than 2^32 seconds");
    }
    let (path, here) = (at.str("path"), volume.at_child("path"));
    if path.is_empty() {
        errs.required(&here, "");
    } else if !options.non_local_token_path {
        validate_local_path(&here, path, errs);
    }
}

fn validate_trust_bundle<'a>(at: &Node<'a>, paths: &mut Paths<'a, '_>, errs: &mut Errors) {
    match (at.has("name"), at.has("signerName")) {
        (true, true) => errs.invalid_here(at, "only one of name and signerName may be used"),
        (true, false) => {
            let name = at.str("name");
            if name.is_empty() {
                errs.required(&at.get("name"), "must be a valid object name");
            }
            if at.has("labelSelector") {
                errs.invalid_here(&at.get("labelSelector"), "labelSelector must be unset if name is specified");
            }
        }
        (false, true) => {
            if at.str("signerName").is_empty() {
                errs.required(&at.get("signerName"), "must be a valid signer name");
            }
            label_selector::validate(&at.get("labelSelector"), ValueRules::Strict, errs);
        }
        (false, false) => errs.required(at, "either name or signerName must be specified"),
    }
    let path = at.str("path");
    if path.is_empty() {
        errs.required(&at.get("path"), "");
    }
    validate_local_path(&at.get("path"), path, errs);
    paths.take(path, path, errs);
}

fn validate_certificate<'a>(at: &Node<'a>, paths: &mut Paths<'a, '_>, errs: &mut Errors) {
    let key_type = at.get("keyType");
    if !KEY_TYPES.contains(&key_type.as_str()) {
        errs.not_supported(&key_type, key_type.as_str(), &KEY_TYPES);
    }
    for (key, _) in at.entries("userAnnotations") {
        errs.invalid_each(&at.get("userAnnotations"), key, name::qualified_name(&key.to_lowercase()));
    }
    let mut count = 0;
    for field in ["credentialBundlePath", "keyPath", "certificateChainPath"] {
        let path = at.str(field);
        if path.is_empty() {
            continue;
        }
        count += 1;
        validate_local_path(&at.get(field), path, errs);
        paths.take(path, path, errs);
    }
    if count == 0 {
        errs.required(at, "specify at least one of credentialBundlePath, keyPath, and certificateChainPath");
    }
}
