//! Lease: who holds something, and until when.

use std::borrow::Cow;

use serde_json::Value;
use setpoint_api::name;

use crate::behaviour::{Behaviour, Context};
use crate::columns::{Column, field};
use crate::edit::Edit;
use crate::errors::Errors;
use crate::kind::Kind;
use crate::metadata;
use crate::node::Node;

/// The one strategy of coordinated leader election that needs no prefix.
pub(super) const STRATEGIES: [&str; 1] = ["OldestEmulationVersion"];

/// Fields of coordinated leader election, which is off: kept only where they were.
const GATED: [&str; 2] = ["strategy", "preferredHolder"];

const COLUMNS: &[Column<'static>] = &[
    Column::NAME,
    Column::new("Holder", "string", |object, _| field(object, &["spec", "holderIdentity"]))
        .about_field("io.k8s.api.coordination.v1.LeaseSpec", "holderIdentity"),
    Column::AGE,
];

/// The decisions of Lease.
#[derive(Debug)]
pub struct Lease;

impl Behaviour for Lease {
    fn prepare_create(&self, object: &mut Value, _context: &Context) {
        GATED.iter().for_each(|gated| drop(object.ensure("spec").remove(gated)));
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, _context: &Context) {
        for gated in GATED.iter().filter(|gated| old.find(&["spec", gated]).is_none()) {
            new.ensure("spec").remove(gated);
        }
    }

    fn validate(&self, object: &Node<'_>, errs: &mut Errors) {
        let spec = object.get("spec");
        if spec.int("leaseDurationSeconds").is_some_and(|seconds| seconds <= 0) {
            errs.invalid_here(&spec.get("leaseDurationSeconds"), "must be greater than 0");
        }
        if spec.int("leaseTransitions").is_some_and(|count| count < 0) {
            errs.invalid_here(&spec.get("leaseTransitions"), "must be greater than or equal to 0");
        }
        if spec.has("strategy") {
            validate_strategy(&spec.get("strategy"), errs);
        }
        if !spec.str("preferredHolder").is_empty() && spec.str("strategy").is_empty() {
            errs.forbidden(&spec.get("preferredHolder"), "may only be specified if `strategy` is defined");
        }
    }

    fn check_create(&self, kind: &Kind, object: &Node<'_>, errs: &mut Errors) {
        metadata::validate_generic(object, kind.namespaced, self.name_rule(), errs);
        self.validate(object, errs);
    }

    fn check_update(&self, _kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        metadata::validate_generic_update(new, old, errs);
        self.validate(new, errs);
    }

    fn allow_create_on_update(&self) -> bool {
        true
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }

    fn columns(&self) -> Cow<'_, [Column<'_>]> {
        COLUMNS.into()
    }
}

/// A strategy is a known word or a qualified name. Upstream names the field twice.
pub(super) fn validate_strategy(at: &Node<'_>, errs: &mut Errors) {
    let (strategy, at) = (at.as_str(), at.at_child("strategy"));
    if strategy.contains('/') {
        errs.invalid_each(&at, strategy, name::qualified_name(strategy));
    } else if !STRATEGIES.contains(&strategy) {
        errs.not_supported(&at, strategy, &STRATEGIES);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::testing::{columns, create, create_fails, update_fails};

    #[test]
    fn fields_of_coordinated_election_are_dropped() {
        let spec = json!({"holderIdentity": "me", "strategy": "Odd", "preferredHolder": "x"});
        let object = create("coordination.k8s.io/v1", "leases", json!({"metadata": {"name": "a"}, "spec": spec}));
        assert_eq!(object["spec"], json!({"holderIdentity": "me"}));
        assert_eq!(columns("coordination.k8s.io/v1", "leases", &object), json!(["a", "me", "<unknown>"]));
    }

    #[test]
    fn a_lease_lasts_and_counts_up() {
        create_fails(
            "coordination.k8s.io/v1",
            "leases",
            json!({"metadata": {"name": "a"}, "spec": {"leaseDurationSeconds": 0, "leaseTransitions": -1}}),
            "[spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0, \
             spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0]",
        );
        update_fails(
            "coordination.k8s.io/v1",
            "leases",
            json!({"metadata": {"name": "a"}}),
            json!({"metadata": {"name": "a"}, "spec": {"leaseDurationSeconds": 0}}),
            "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
        );
    }
}
