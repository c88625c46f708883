//! VolumeAttachment: that a volume shall be attached to a node.

use std::borrow::Cow;

use serde_json::{Value, json};
use setpoint_api::labels::ValueRules;
use setpoint_api::name;

use super::parameters::validate_driver_name;
use crate::behaviour::{Behaviour, Context, keep};
use crate::builtin::core::persistentvolume;
use crate::columns::{Column, field};
use crate::edit::Edit;
use crate::errors::Errors;
use crate::internal_form::shown;
use crate::kind::Kind;
use crate::node::Node;

/// Keys and values of all that a driver tells about an attachment.
const METADATA_BYTES_MAX: usize = 256 * 1024;
/// Longest message of an error.
const MESSAGE_BYTES_MAX: usize = 1024;

const ONE_SOURCE: &str = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";

const SPEC: &str = "io.k8s.api.storage.v1.VolumeAttachmentSpec";

const COLUMNS: &[Column<'static>] = &[
    Column::NAME,
    Column::new("Attacher", "string", |object, _| field(object, &["spec", "attacher"]))
        .format("name")
        .about_field(SPEC, "attacher"),
    Column::new("PV", "string", |object, _| field(object, &["spec", "source", "persistentVolumeName"]))
        .about_field("io.k8s.api.storage.v1.VolumeAttachmentSource", "persistentVolumeName"),
    Column::new("Node", "string", |object, _| field(object, &["spec", "nodeName"])).about_field(SPEC, "nodeName"),
    Column::new("Attached", "boolean", |object, _| json!(object["status"].flag("attached")))
        .about_field("io.k8s.api.storage.v1.VolumeAttachmentStatus", "attached"),
    Column::AGE,
];

/// The decisions of VolumeAttachment.
#[derive(Debug)]
pub struct VolumeAttachment;

impl Behaviour for VolumeAttachment {
    fn prepare_create(&self, object: &mut Value, _context: &Context) {
        object.remove("status");
    }

    fn default(&self, object: &mut Value) {
        if let Some(spec) = object.find_mut(&["spec", "source", "inlineVolumeSpec"]) {
            persistentvolume::default_inline(spec);
        }
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, _context: &Context) {
        keep(new, old, &["status"]);
    }

    fn prepare_status_update(&self, new: &mut Value, old: &Value, _context: &Context) {
        keep(new, old, &["spec"]);
        let metadata = new.ensure("metadata");
        keep(metadata, &old["metadata"], &["labels", "annotations", "finalizers", "ownerReferences"]);
    }

    fn validate(&self, object: &Node<'_>, errs: &mut Errors) {
        let (spec, status) = (object.get("spec"), object.get("status"));
        validate_driver_name(&spec.get("attacher"), errs);
        validate_source(&spec.get("source"), errs);
        let node = spec.get("nodeName");
        errs.invalid_each(&node, node.as_str(), name::dns1123_subdomain(node.as_str()));
        let told = status.get("attachmentMetadata");
        let bytes: usize = told.clone().into_entries().map(|(key, value)| key.len() + value.as_str().len()).sum();
        if bytes > METADATA_BYTES_MAX {
            errs.too_long(&told, METADATA_BYTES_MAX);
        }
        validate_error(&status.get("attachError"), errs);
        validate_error(&status.get("detachError"), errs);
        let volume = spec.get("source").get("persistentVolumeName");
        if volume.is_set() {
            errs.invalid_each(&volume, volume.as_str(), name::dns1123_subdomain(volume.as_str()));
        }
    }

    fn check_update(&self, kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        self.check_create(kind, new, errs);
        let spec = new.get("spec");
        if !spec.same(&old.get("spec")) {
            errs.invalid(&spec, shown(&spec), "field is immutable");
        }
    }

    fn check_status_update(&self, kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        self.check_update(kind, new, old, errs);
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static str] {
        if subresource.is_empty() { &["status"] } else { &["metadata", "spec"] }
    }

    fn columns(&self) -> Cow<'_, [Column<'_>]> {
        COLUMNS.into()
    }
}

fn validate_source(source: &Node<'_>, errs: &mut Errors) {
    let (inline, volume) = (source.get("inlineVolumeSpec"), source.get("persistentVolumeName"));
    match (inline.is_set(), volume.is_set()) {
        (false, false) => errs.required(source, ONE_SOURCE),
        (true, true) => errs.forbidden(source, ONE_SOURCE),
        (false, true) if volume.is_empty() => errs.required(&volume, "must specify non empty persistentVolumeName"),
        (false, true) => {}
        (true, false) => persistentvolume::validate_spec(&inline, None, ValueRules::Strict, errs),
    }
}

fn validate_error(error: &Node<'_>, errs: &mut Errors) {
    if error.str("message").len() > MESSAGE_BYTES_MAX {
        // Upstream names the wrong bound.
        errs.too_long(&error.get("message"), METADATA_BYTES_MAX);
    }
    let code = error.get("errorCode");
    if code.as_int().is_some_and(|code| code < 0) {
        errs.invalid_here(&code, format!("must be between 0 and {}, inclusive", i32::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{create, create_fails, status_update_fails, update_fails};
    use super::*;

    const V1: &str = "storage.k8s.io/v1";

    fn attachment(source: Value) -> Value {
        json!({"metadata": {"name": "a"}, "spec": {"attacher": "d", "nodeName": "n", "source": source}})
    }

    #[test]
    fn a_volume_inside_is_filled_in_like_one_of_its_own() {
        let csi = json!({"driver": "d", "volumeHandle": "h"});
        let inline = json!({"accessModes": ["ReadWriteOnce"], "csi": csi, "capacity": {"storage": "1500m"}});
        let body = attachment(json!({"inlineVolumeSpec": inline}));
        let expected =
            "spec.source.inlineVolumeSpec.capacity: Forbidden: may not be specified in the context of inline volumes";
        create_fails(V1, "volumeattachments", body, expected);
        let mut object = attachment(json!({"inlineVolumeSpec": {"iscsi": {"iqn": "i"}}}));
        VolumeAttachment.default(&mut object);
        let iscsi = &object["spec"]["source"]["inlineVolumeSpec"]["iscsi"];
        assert_eq!(iscsi, &json!({"iqn": "i", "iscsiInterface": "default"}));
    }

    #[test]
    fn an_attachment_has_one_source() {
        create(V1, "volumeattachments", attachment(json!({"persistentVolumeName": "pv"})));
        let absent =
            "spec.source: Required value: must specify exactly one of inlineVolumeSpec and persistentVolumeName";
        create_fails(V1, "volumeattachments", attachment(json!({})), absent);
        let inline = json!({"inlineVolumeSpec": {"accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}}});
        let expected =
            "spec.source.inlineVolumeSpec.csi: Required value: has to be specified in the context of inline volumes";
        create_fails(V1, "volumeattachments", attachment(inline), expected);
    }

    #[test]
    fn the_spec_stays_and_errors_are_short() {
        let body = || attachment(json!({"persistentVolumeName": "pv"}));
        update_fails(
            V1,
            "volumeattachments",
            body(),
            attachment(json!({"persistentVolumeName": "other"})),
            "spec: Invalid value: {\"Attacher\":\"d\",\"Source\":{\"PersistentVolumeName\":\"other\",\
             \"InlineVolumeSpec\":null},\"NodeName\":\"n\"}: field is immutable",
        );
        let mut failed = body();
        failed["status"] = json!({"attached": false, "attachError": {"message": "x".repeat(1025)}});
        let expected = "status.attachError.message: Too long: may not be more than 262144 bytes";
        status_update_fails(V1, "volumeattachments", body(), failed, expected);
    }
}
