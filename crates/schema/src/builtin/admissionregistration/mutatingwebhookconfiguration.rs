//! MutatingWebhookConfiguration: webhooks that may change an object on its way.

use std::borrow::Cow;

use serde_json::Value;

use super::static_suffix_warnings;
use super::webhook::{COLUMNS, Role, default_webhooks, validate_webhooks, validate_webhooks_update};
use crate::behaviour::{Behaviour, Generation};
use crate::columns::Column;
use crate::errors::Errors;
use crate::kind::Kind;
use crate::metadata;
use crate::node::Node;

/// The decisions of MutatingWebhookConfiguration.
#[derive(Debug)]
pub struct MutatingWebhookConfiguration;

impl Behaviour for MutatingWebhookConfiguration {
    fn default(&self, object: &mut Value) {
        default_webhooks(object, Role::Mutating);
    }

    fn check_create(&self, kind: &Kind, object: &Node<'_>, errs: &mut Errors) {
        metadata::validate_generic(object, kind.namespaced, self.name_rule(), errs);
        validate_webhooks(object, Role::Mutating, errs);
    }

    fn check_update(&self, kind: &Kind, new: &Node<'_>, old: &Node<'_>, errs: &mut Errors) {
        metadata::validate_generic(new, kind.namespaced, self.name_rule(), errs);
        validate_webhooks_update(new, old, Role::Mutating, errs);
    }

    fn warnings(&self, new: &Node<'_>, _old: Option<&Node<'_>>) -> Vec<String> {
        static_suffix_warnings(new)
    }

    fn tells_empty_from_absent(&self) -> bool {
        true
    }

    fn generation(&self) -> Generation {
        Generation::On(&["webhooks"])
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }

    fn columns(&self) -> Cow<'_, [Column<'_>]> {
        COLUMNS.into()
    }
}
