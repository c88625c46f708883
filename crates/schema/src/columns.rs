//! Tables: what `kubectl get` shows of an object.

use serde_json::{Value, json};

use crate::edit::Edit;
use crate::facts;
use crate::human;

/// One column of a kind's table.
#[derive(Clone, Copy)]
pub struct Column<'a> {
    /// Heading.
    pub name: &'a str,
    /// OpenAPI type: `string`, `integer`, `date` ...
    pub ty: &'a str,
    /// OpenAPI format; `name` marks the name of the object.
    pub format: &'a str,
    /// 0 is always shown, others in the wide view only.
    pub priority: i32,
    about: About<'a>,
    cell: Cell<'a>,
}

#[derive(Clone, Copy)]
enum About<'a> {
    Text(&'a str),
    /// The published description of a field of a type.
    Field(&'a str, &'a str),
}

/// Finds the cell of an object, given the time in seconds since 1970.
#[derive(Clone, Copy)]
enum Cell<'a> {
    Call(fn(&Value, i64) -> Value),
    Own(&'a (dyn Fn(&Value, i64) -> Value + Send + Sync)),
}

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// Columns of kinds that don't describe their own.
pub static DEFAULT: &[Column<'static>] =
    &[Column::NAME, Column::new("Created At", "date", created_at).about_field(OBJECT_META, "creationTimestamp")];

impl Column<'static> {
    /// The name of the object: nearly always the first column.
    pub const NAME: Self = Self::new("Name", "string", |object, _| field(object, &["metadata", "name"]))
        .format("name")
        .about_field(OBJECT_META, "name");

    /// How long ago the object was made: nearly always the last column that isn't wide.
    pub const AGE: Self = Self::new("Age", "string", |object, now| {
        json!(human::age(object.find(&["metadata", "creationTimestamp"]), now))
    })
    .about_field(OBJECT_META, "creationTimestamp");

    /// A column of a built-in kind.
    pub const fn new(name: &'static str, ty: &'static str, cell: fn(&Value, i64) -> Value) -> Self {
        Self { name, ty, format: "", priority: 0, about: About::Text(""), cell: Cell::Call(cell) }
    }
}

impl<'a> Column<'a> {
    /// A column made at run time.
    pub fn own(name: &'a str, ty: &'a str, cell: &'a (dyn Fn(&Value, i64) -> Value + Send + Sync)) -> Self {
        Self { name, ty, format: "", priority: 0, about: About::Text(""), cell: Cell::Own(cell) }
    }

    /// With this description.
    pub const fn about(mut self, text: &'a str) -> Self {
        self.about = About::Text(text);
        self
    }

    /// Described by the published text of a field: `about_field("io.k8s.api.core.v1.Secret", "type")`.
    pub const fn about_field(mut self, definition: &'a str, field: &'a str) -> Self {
        self.about = About::Field(definition, field);
        self
    }

    /// With this OpenAPI format.
    pub const fn format(mut self, format: &'a str) -> Self {
        self.format = format;
        self
    }

    /// Shown in the wide view only.
    pub const fn wide(self) -> Self {
        self.priority(1)
    }

    /// With this priority: 0 is always shown.
    pub const fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// What it tells.
    pub fn description(&self) -> &'a str {
        match self.about {
            About::Text(text) => text,
            About::Field(definition, field) => {
                facts::type_named(definition).and_then(|t| t.field(field)).map_or("", |f| f.published.description)
            }
        }
    }

    /// Its cell for an object.
    pub fn cell(&self, object: &Value, now: i64) -> Value {
        match self.cell {
            Cell::Call(cell) => cell(object, now),
            Cell::Own(cell) => cell(object, now),
        }
    }

    /// The `TableColumnDefinition` of it.
    pub fn definition(&self) -> Value {
        json!({
            "name": self.name, "type": self.ty, "format": self.format,
            "description": self.description(), "priority": self.priority,
        })
    }
}

impl std::fmt::Debug for Column<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Column").field("name", &self.name).field("type", &self.ty).finish_non_exhaustive()
    }
}

/// The text at the end of a way of fields; `""` if absent. A cell shows it as it is.
pub fn field(object: &Value, way: &[&str]) -> Value {
    object.find(way).cloned().unwrap_or_else(|| json!(""))
}

fn created_at(object: &Value, _now: i64) -> Value {
    // The zero time of Go, as upstream prints it for an object without a creation time.
    object.find(&["metadata", "creationTimestamp"]).cloned().unwrap_or_else(|| json!("0001-01-01T00:00:00Z"))
}
