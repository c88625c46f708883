//! ComponentStatus: whether a part of the control plane is well. Made on the fly, never stored.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::behaviour::Behaviour;
use crate::columns::Column;
use crate::edit::Edit;

const COLUMNS: &[Column<'static>] = &[
    Column::NAME,
    Column::new("Status", "string", |object, _| json!(health(object))).about("Status of the component conditions"),
    Column::new("Message", "string", |object, _| {
        json!(healthy(object).map_or("", |condition| condition.text("message")))
    })
    .about("Message of the component conditions"),
    Column::new("Error", "string", |object, _| json!(healthy(object).map_or("", |condition| condition.text("error"))))
        .about("Error of the component conditions"),
];

/// The decisions of ComponentStatus.
#[derive(Debug)]
pub struct ComponentStatus;

impl Behaviour for ComponentStatus {
    fn deprecation(&self) -> Option<Cow<'_, str>> {
        Some("v1 ComponentStatus is deprecated in v1.19+".into())
    }

    fn columns(&self) -> Cow<'_, [Column<'_>]> {
        COLUMNS.into()
    }
}

fn healthy(object: &Value) -> Option<&Value> {
    object.get("conditions")?.as_array()?.iter().find(|condition| condition.text("type") == "Healthy")
}

fn health(object: &Value) -> &'static str {
    match healthy(object).map(|condition| condition.text("status")) {
        None => "Unknown",
        Some("True") => "Healthy",
        Some(_) => "Unhealthy",
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::columns;
    use super::*;

    #[test]
    fn health_is_told_by_one_condition() {
        let conditions = json!([{"type": "Healthy", "status": "True", "message": "ok"}]);
        let object = json!({"metadata": {"name": "etcd-0"}, "conditions": conditions});
        assert_eq!(columns("v1", "componentstatuses", &object), json!(["etcd-0", "Healthy", "ok", ""]));
        assert_eq!(columns("v1", "componentstatuses", &json!({"metadata": {"name": "x"}}))[1], "Unknown");
    }
}
