//! ServiceAccount: an identity for what runs in the cluster.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::behaviour::{Behaviour, Context};
use crate::columns::Column;
use crate::edit::Edit;
use crate::node::Node;

const MOUNTABLE_SECRETS: &str = "kubernetes.io/enforce-mountable-secrets";

const COLUMNS: &[Column<'static>] = &[Column::NAME, Column::AGE];

/// The decisions of ServiceAccount.
#[derive(Debug)]
pub struct ServiceAccount;

impl Behaviour for ServiceAccount {
    fn prepare_create(&self, object: &mut Value, _context: &Context) {
        keep_only_secret_names(object);
    }

    fn prepare_update(&self, new: &mut Value, _old: &Value, _context: &Context) {
        keep_only_secret_names(new);
    }

    fn warnings(&self, new: &Node<'_>, old: Option<&Node<'_>>) -> Vec<String> {
        let annotated = |object: &Node<'_>| object.get("metadata").get("annotations").has(MOUNTABLE_SECRETS);
        if !annotated(new) || old.is_some_and(annotated) {
            return Vec::new();
        }
        vec![format!(
            "metadata.annotations[{MOUNTABLE_SECRETS}]: deprecated in v1.32+; prefer separate namespaces to isolate \
             access to mounted secrets"
        )]
    }

    fn columns(&self) -> Cow<'_, [Column<'_>]> {
        COLUMNS.into()
    }
}

/// Secrets are named only: they live in the account's own namespace.
fn keep_only_secret_names(object: &mut Value) {
    for secret in object.items_mut("secrets") {
        *secret = match secret.text("name") {
            "" => json!({}),
            name => json!({"name": name}),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{create, warnings};
    use super::*;

    #[test]
    fn secrets_keep_their_name_only() {
        let body = json!({"metadata": {"name": "a"}, "secrets": [{"kind": "Secret", "name": "s", "uid": "1"}, {}]});
        let object = create("v1", "serviceaccounts", body);
        assert_eq!(object["secrets"], json!([{"name": "s"}, {}]));
    }

    #[test]
    fn the_old_way_to_bind_secrets_warns() {
        let body =
            json!({"metadata": {"name": "a", "annotations": {"kubernetes.io/enforce-mountable-secrets": "true"}}});
        assert_eq!(
            warnings("v1", "serviceaccounts", body),
            ["metadata.annotations[kubernetes.io/enforce-mountable-secrets]: deprecated in v1.32+; prefer separate \
              namespaces to isolate access to mounted secrets"]
        );
    }
}
