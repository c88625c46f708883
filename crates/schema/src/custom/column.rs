//! Printer columns: cells found by a path.

use serde_json::{Value, json};
use setpoint_api::time::Timestamp;

use super::json_path::JsonPath;
use crate::columns::Column;
use crate::edit::Edit;
use crate::facts;
use crate::human;

/// Finds the cell of an object, given the time in seconds since 1970.
type Cell = Box<dyn Fn(&Value, i64) -> Value + Send + Sync>;

/// A column that a definition describes.
pub(super) struct PrinterColumn {
    name: String,
    ty: String,
    format: String,
    description: String,
    priority: i32,
    cell: Cell,
}

impl PrinterColumn {
    /// The columns of a version; its age if it describes none. Those from a bad path on are left out.
    pub(super) fn read_all(version: &Value) -> Vec<Self> {
        match version["additionalPrinterColumns"].as_array().filter(|columns| !columns.is_empty()) {
            Some(columns) => columns.iter().map_while(Self::read).collect(),
            None => Self::read(&json!({
                "name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp",
                "description": facts::type_named("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")
                    .and_then(|meta| meta.field("creationTimestamp")).map_or("", |field| field.published.description),
            }))
            .into_iter()
            .collect(),
        }
    }

    /// As a column of the table.
    pub(super) fn column(&self) -> Column<'_> {
        Column::own(&self.name, &self.ty, &*self.cell)
            .format(&self.format)
            .about(&self.description)
            .priority(self.priority)
    }

    fn read(column: &Value) -> Option<Self> {
        let text = column.text("jsonPath");
        let path = JsonPath::parse(text)?;
        let ty = column.text("type").to_owned();
        let description = match column.text("description") {
            "" => format!("Custom resource definition column (in JSONPath format): {text}"),
            given => given.to_owned(),
        };
        let cell_type = ty.clone();
        Some(Self {
            name: column.text("name").to_owned(),
            ty,
            format: column.text("format").to_owned(),
            description,
            priority: column.number("priority").and_then(|priority| i32::try_from(priority).ok()).unwrap_or(0),
            cell: Box::new(move |object, now| {
                path.first(object).map_or(Value::Null, |found| cell(&cell_type, found, now))
            }),
        })
    }
}

impl std::fmt::Debug for PrinterColumn {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("PrinterColumn").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A value as a cell of this type; null where it doesn't fit.
fn cell(ty: &str, value: &Value, now: i64) -> Value {
    match (ty, value) {
        ("string", Value::String(text)) => json!(text),
        ("string", Value::Null) => Value::Null,
        ("string", other) => json!(other.to_string()),
        ("integer", Value::Number(number)) => {
            json!(number.as_i64().unwrap_or_else(|| number.as_f64().unwrap_or(0.0) as i64))
        }
        ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.clone(),
        ("date", Value::String(text)) if text.is_empty() || text == "null" => json!("<unknown>"),
        ("date", Value::String(text)) => match Timestamp::parse(text) {
            Ok(then) => json!(human::duration(now - then.seconds)),
            Err(_) => json!("<invalid>"),
        },
        _ => Value::Null,
    }
}
