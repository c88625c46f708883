//! CSIDriver: what a storage driver can do.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::behaviour::{Behaviour, Context};
use crate::columns::Column;
use crate::edit::Edit;
use crate::errors::Errors;
use crate::kind::Kind;
use crate::metadata;
use crate::node::Node;

/// Shortest life of a token.
const TOKEN_SECONDS_MIN: i64 = 600;
/// Longest life of a token.
const TOKEN_SECONDS_MAX: i64 = 1 << 32;
/// Shortest time between two looks at what a node can hold.
const UPDATE_PERIOD_SECONDS_MIN: i64 = 10;

const GROUP_POLICIES: [&str; 3] = ["File", "None", "ReadWriteOnceWithFSType"];
const LIFECYCLE_MODES: [&str; 2] = ["Persistent", "Ephemeral"];

const TOKENS_OUTSIDE_SECRETS: &str = "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set \
    to true to prevent possible logging of tokens in volume attributes";

const SPEC: &str = "io.k8s.api.storage.v1.CSIDriverSpec";

const COLUMNS: &[Column<'static>] = &[
    Column::NAME,
    Column::new("AttachRequired", "boolean", |object, _| {
        json!(object["spec"].get("attachRequired").and_then(Value::as_bool).unwrap_or(true))
    })
    .about_field(SPEC, "attachRequired"),
    Column::new("PodInfoOnMount", "boolean", |object, _| json!(object["spec"].flag("podInfoOnMount")))
        .about_field(SPEC, "podInfoOnMount"),
    Column::new("StorageCapacity", "boolean", |object, _| json!(object["spec"].flag("storageCapacity")))
        .about_field(SPEC, "storageCapacity"),
    Column::new("TokenRequests", "string", |object, _| json!(audiences(object))).about_field(SPEC, "tokenRequests"),
    Column::new("RequiresRepublish", "boolean", |object, _| json!(object["spec"].flag("requiresRepublish")))
        .about_field(SPEC, "requiresRepublish"),
    Column::new("Modes", "string", |object, _| json!(modes(object))).about_field(SPEC, "volumeLifecycleModes"),
    Column::AGE,
];

/// The decisions of CSIDriver.
#[derive(Debug)]
pub struct CsiDriver;

impl Behaviour for CsiDriver {
    fn default(&self, object: &mut Value) {
        let spec = object.ensure("spec");
        spec.fill("attachRequired", true);
        for flag in ["podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount"] {
            spec.fill(flag, false);
        }
        spec.fill("fsGroupPolicy", "ReadWriteOnceWithFSType");
        if spec.get("volumeLifecycleModes").and_then(Value::as_array).is_none_or(Vec::is_empty) {
            spec.set("volumeLifecycleModes", json!(["Persistent"]));
        }
    }

    fn prepare_create(&self, object: &mut Value, _context: &Context) {
        object.ensure("spec").remove("preventPodSchedulingIfMissing");
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, _context: &Context) {
        if !old["spec"].has("preventPodSchedulingIfMissing") {
            new.ensure("spec").remove("preventPodSchedulingIfMissing");
        }
        // A new driver has no generation: the first change makes it 1.
        if new["spec"] != old["spec"] {
            let before = old["metadata"].number("generation").unwrap_or(0);
            new.ensure("metadata").set("generation", before + 1);
        }
    }

    fn validate(&self, object: &Node<'_>, errs: &mut Errors) {
        let spec = object.get("spec");
        let policy = spec.get("fsGroupPolicy");
        if policy.is_set() && !GROUP_POLICIES.contains(&policy.as_str()) {
            errs.not_supported(&policy, policy.as_str(), &GROUP_POLICIES);
        }
        validate_token_requests(&spec, errs);
        let modes = spec.get("volumeLifecycleModes");
        for mode in spec.strings("volumeLifecycleModes").filter(|mode| !LIFECYCLE_MODES.contains(mode)) {
            errs.not_supported(&modes, mode, &LIFECYCLE_MODES);
        }
        let period = spec.get("nodeAllocatableUpdatePeriodSeconds");
        if period.as_int().is_some_and(|seconds| seconds < UPDATE_PERIOD_SECONDS_MIN) {
            errs.invalid_here(&period, "must be greater than or equal to 10 seconds");
        }
        let in_secrets = spec.get("serviceAccountTokenInSecrets");
        if in_secrets.is_set() && spec.count("tokenRequests") == 0 {
            errs.invalid_here(&in_secrets, "serviceAccountTokenInSecrets is set but no tokenRequests are specified");
        }
    }

    fn check_update(&self, _kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        metadata::validate_update(new, old, errs);
        self.validate(new, errs);
        let (new, old) = (new.get("spec"), old.get("spec"));
        // Upstream misspells the path.
        errs.immutable(&new.get("attachRequired").at("spec.attachedRequired"), &old.get("attachRequired"));
        errs.immutable(&new.get("volumeLifecycleModes"), &old.get("volumeLifecycleModes"));
    }

    fn warnings(&self, new: &Node<'_>, old: Option<&Node<'_>>) -> Vec<String> {
        let requests = |object: &Node<'_>| object.get("spec").get("tokenRequests").json().clone();
        let changed = old.is_none_or(|old| requests(old) != requests(new));
        let spec = new.get("spec");
        if changed && spec.count("tokenRequests") > 0 && !spec.has("serviceAccountTokenInSecrets") {
            return vec![TOKENS_OUTSIDE_SECRETS.to_owned()];
        }
        Vec::new()
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }

    fn columns(&self) -> Cow<'_, [Column<'_>]> {
        COLUMNS.into()
    }
}

fn validate_token_requests(spec: &Node<'_>, errs: &mut Errors) {
    let mut audiences = Vec::new();
    for request in spec.items("tokenRequests") {
        let audience = request.str("audience");
        if audiences.contains(&audience) {
            errs.duplicate(&request.get("audience"), audience);
            continue;
        }
        audiences.push(audience);
        let (at, seconds) = (request.get("expirationSeconds"), request.int("expirationSeconds"));
        if seconds.is_some_and(|seconds| seconds < TOKEN_SECONDS_MIN) {
            errs.invalid_here(&at, "may not specify a duration less than 10 minutes");
        }
        if seconds.is_some_and(|seconds| seconds > TOKEN_SECONDS_MAX) {
            errs.invalid_here(&at, "may not specify a duration larger than 2^32 seconds");
        }
    }
}

fn audiences(object: &Value) -> String {
    match object["spec"].get("tokenRequests").and_then(Value::as_array) {
        None => "<unset>".to_owned(),
        Some(requests) => requests.iter().map(|request| request.text("audience")).collect::<Vec<_>>().join(","),
    }
}

fn modes(object: &Value) -> String {
    let modes = object["spec"]["volumeLifecycleModes"].as_array().map_or(&[] as &[Value], Vec::as_slice);
    match modes.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(",") {
        none if none.is_empty() => "<none>".to_owned(),
        modes => modes,
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{columns, create, create_fails, update, update_fails, warnings};
    use super::*;

    const V1: &str = "storage.k8s.io/v1";

    fn driver(spec: Value) -> Value {
        json!({"metadata": {"name": "a"}, "spec": spec})
    }

    #[test]
    fn a_driver_attaches_and_is_persistent_by_default() {
        let object = create(V1, "csidrivers", driver(json!({})));
        assert_eq!(
            columns(V1, "csidrivers", &object),
            json!(["a", true, false, false, "<unset>", false, "Persistent", "<unknown>"])
        );
        assert!(object["metadata"].get("generation").is_none());
        let changed = update(V1, "csidrivers", driver(json!({})), driver(json!({"seLinuxMount": true})));
        assert_eq!(changed["metadata"]["generation"], 1);
    }

    #[test]
    fn tokens_are_distinct_and_live_long_enough() {
        for (spec, expected) in [
            (
                json!({"tokenRequests": [{"audience": ""}, {"audience": ""}]}),
                "spec.tokenRequests[1].audience: Duplicate value: \"\"",
            ),
            (
                json!({"tokenRequests": [{"audience": "", "expirationSeconds": 599}]}),
                "spec.tokenRequests[0].expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes",
            ),
            (
                json!({"serviceAccountTokenInSecrets": true}),
                "spec.serviceAccountTokenInSecrets: Invalid value: true: serviceAccountTokenInSecrets is set but no \
                 tokenRequests are specified",
            ),
        ] {
            create_fails(V1, "csidrivers", driver(spec), expected);
        }
        let requests = json!({"tokenRequests": [{"audience": ""}]});
        assert_eq!(warnings(V1, "csidrivers", driver(requests)), [TOKENS_OUTSIDE_SECRETS]);
    }

    #[test]
    fn how_volumes_are_attached_stays() {
        update_fails(
            V1,
            "csidrivers",
            driver(json!({})),
            driver(json!({"attachRequired": false, "volumeLifecycleModes": ["Ephemeral"]})),
            "[spec.attachedRequired: Invalid value: false: field is immutable, \
             spec.volumeLifecycleModes: Invalid value: [\"Ephemeral\"]: field is immutable]",
        );
    }
}
