//! Prints tables that the server made: adds columns, leaves out what is for wide output, prints the header once.

use serde_json::{Value, json};

use crate::go;
use crate::tab::Tabs;
use crate::terminal::escape;

/// What is shown beside the server's own columns.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Columns of lesser priority too.
    pub wide: bool,
    /// No header.
    pub no_headers: bool,
    /// The namespace first.
    pub with_namespace: bool,
    /// The kind before each name, such as `deployment.apps`.
    pub kind: Option<String>,
    /// All labels last.
    pub show_labels: bool,
    /// Labels that have a column each.
    pub label_columns: Vec<String>,
}

/// Prints tables of one kind.
#[derive(Debug, Default)]
pub struct Printer {
    /// What is shown.
    pub options: Options,
    columns: Vec<Value>,
    printed_header: bool,
}

impl Printer {
    /// A printer that has not printed yet.
    pub fn new(options: Options) -> Printer {
        Printer { options, ..Printer::default() }
    }

    /// Prints a table; with the type of an event before each row if there is one.
    pub fn print(&mut self, table: &Value, event: Option<&str>, out: &mut Tabs) {
        let columns = table["columnDefinitions"].as_array().cloned().unwrap_or_default();
        let mut header = !self.options.no_headers;
        if self.printed_header && (columns.is_empty() || columns == self.columns) {
            header = false;
        }
        if !columns.is_empty() && columns != self.columns {
            self.columns = columns;
            self.printed_header = false;
        }
        let rows: &[Value] = table["rows"].as_array().map_or(&[], |rows| rows);
        if rows.is_empty() {
            return;
        }
        self.printed_header = true;
        if header {
            out.row(self.header(event.is_some()));
        }
        for row in rows {
            out.row(self.row(row, event));
        }
    }

    fn header(&self, with_event: bool) -> Vec<String> {
        let mut cells = Vec::new();
        cells.extend(with_event.then(|| "EVENT".to_owned()));
        cells.extend(self.options.with_namespace.then(|| "NAMESPACE".to_owned()));
        let shown = self.columns.iter().filter(|column| self.shows(column));
        cells.extend(shown.map(|column| column["name"].as_str().unwrap_or_default().to_uppercase()));
        let labels = self.options.label_columns.iter();
        cells.extend(labels.map(|label| label.rsplit('/').next().unwrap_or(label).to_uppercase()));
        cells.extend(self.options.show_labels.then(|| "LABELS".to_owned()));
        cells
    }

    fn row(&self, row: &Value, event: Option<&str>) -> Vec<String> {
        let metadata = &row["object"]["metadata"];
        let mut cells = Vec::new();
        cells.extend(event.map(|event| format!("{event:<8}")));
        if self.options.with_namespace {
            cells.push(metadata["namespace"].as_str().unwrap_or_default().to_owned());
        }
        let named = self.columns.iter().position(|column| column["format"] == "name" && column["type"] == "string");
        let values = row["cells"].as_array().map_or(&[] as &[Value], |cells| cells);
        for (at, _) in self.columns.iter().enumerate().filter(|(_, column)| self.shows(column)) {
            let Some(value) = values.get(at) else { continue };
            let text = cell(value);
            cells.push(match &self.options.kind {
                Some(kind) if Some(at) == named => format!("{kind}/{text}"),
                _ => text,
            });
        }
        let labels = &metadata["labels"];
        let label = |name: &String| escape(labels[name].as_str().unwrap_or_default());
        cells.extend(self.options.label_columns.iter().map(label));
        if self.options.show_labels {
            cells.push(all_labels(labels));
        }
        cells
    }

    fn shows(&self, column: &Value) -> bool {
        self.options.wide || column["priority"].as_i64().unwrap_or(0) == 0
    }
}

/// A table with name and age, for a server that answered with plain objects.
pub fn plain(object: &Value, now: i64) -> Value {
    let items = object["items"].as_array().cloned().unwrap_or_else(|| vec![object.clone()]);
    let rows = items.into_iter().map(|item| {
        let age = setpoint_schema::human::age(item["metadata"].get("creationTimestamp"), now);
        json!({"cells": [item["metadata"]["name"], age], "object": item})
    });
    json!({
        "columnDefinitions": [
            {"name": "Name", "type": "string", "format": "name"}, {"name": "Age", "type": "string"},
        ],
        "rows": rows.collect::<Vec<_>>(),
    })
}

/// A cell ends at the first line break.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => match text.find(['\n', '\r', '\x0c']) {
            Some(end) => format!("{}...", escape(&text[..end])),
            None => escape(text),
        },
        other => escape(&go::text(other)),
    }
}

fn all_labels(labels: &Value) -> String {
    let pairs = labels.as_object().into_iter().flatten();
    let pairs: Vec<_> = pairs.map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default())).collect();
    if pairs.is_empty() { "<none>".to_owned() } else { escape(&pairs.join(",")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Value {
        json!({
            "columnDefinitions": [
                {"name": "Name", "type": "string", "format": "name", "priority": 0},
                {"name": "Ready", "type": "integer", "priority": 0},
                {"name": "Node", "type": "string", "priority": 1},
            ],
            "rows": [
                {"cells": ["a", 1, "n1"], "object": {"metadata": {"namespace": "x", "labels": {"k/app": "b", "c": "d"}}}},
                {"cells": ["b\nmore", 2.5, "n2"], "object": {"metadata": {"namespace": "y"}}},
            ],
        })
    }

    fn check(options: Options, expected: &str) {
        let mut tabs = Tabs::default();
        let mut printer = Printer::new(options);
        printer.print(&sample(), None, &mut tabs);
        assert_eq!(tabs.flush(), expected);
    }

    #[test]
    fn columns_are_those_that_were_asked_for() {
        check(Options::default(), "NAME   READY\na      1\nb...   2.5\n");
        check(Options { no_headers: true, ..Options::default() }, "a      1\nb...   2.5\n");
        check(
            Options { wide: true, with_namespace: true, ..Options::default() },
            "NAMESPACE   NAME   READY   NODE\nx           a      1       n1\ny           b...   2.5     n2\n",
        );
        check(
            Options {
                kind: Some("pod".into()),
                show_labels: true,
                label_columns: vec!["k/app".into()],
                ..Options::default()
            },
            "NAME       READY   APP   LABELS\npod/a      1       b     c=d,k/app=b\npod/b...   2.5           <none>\n",
        );
    }

    #[test]
    fn a_header_is_printed_once() {
        let (mut tabs, mut printer) = (Tabs::default(), Printer::default());
        printer.print(&sample(), Some("ADDED"), &mut tabs);
        printer.print(&json!({"rows": [{"cells": ["c", 3, "n"]}]}), Some("DELETED"), &mut tabs);
        assert_eq!(
            tabs.flush(),
            "EVENT      NAME   READY\nADDED      a      1\nADDED      b...   2.5\nDELETED    c      3\n"
        );
    }
}
