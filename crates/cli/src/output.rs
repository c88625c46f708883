//! Forms of output: `-o json`, `yaml`, `name`, `wide`, `jsonpath=…`, `custom-columns=…`.

use serde_json::Value;

use crate::failure::Failure;
use crate::json_path::{self, Template};
use crate::tab::Tabs;
use crate::terminal::escape;
use crate::{go, slip, yaml};

/// What a path looks like.
pub const PATH_EXAMPLE: &str = "a path stands in braces and quotes, such as '{.items[*].metadata.name}'";

/// `-o` of commands that have words of their own for people.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub struct FormArguments {
    /// For programs instead of people: json or yaml
    #[arg(long = "output", short = 'o', value_name = "FORM", value_enum)]
    pub form: Option<Form>,
}

/// A form that programs read.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

impl FormArguments {
    /// Prints the value if a form was asked for, and tells whether it was.
    pub fn print(self, value: impl FnOnce() -> Value) -> bool {
        match self.form {
            Some(Form::Json) => crate::failure::print(&(go::indented_json(&value()) + "\n")),
            Some(Form::Yaml) => crate::failure::print(&yaml::write(&value())),
            None => {}
        }
        self.form.is_some()
    }
}

/// What `-o` was asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// The server's table.
    Table {
        /// With columns of lesser priority.
        wide: bool,
    },
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// `kind.group/name`.
    Name,
    /// A template.
    JsonPath(Template),
    /// A template whose findings are printed as JSON.
    JsonPathAsJson(Template),
    /// Columns by header and path.
    Columns(Vec<(String, Template)>),
}

/// The words that `-o` knows, as kubectl lists them.
const KNOWN: &str = "custom-columns,custom-columns-file,json,jsonpath,jsonpath-as-json,jsonpath-file,name,wide,yaml";

impl Output {
    /// Reads what was asked for.
    pub fn parse(text: Option<&str>) -> Result<Output, Failure> {
        let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(Output::Table { wide: false }) };
        let (word, value) = match text.split_once('=') {
            Some((word, value)) => (word, Some(value)),
            None => (text, None),
        };
        let template = || value.filter(|value| !value.is_empty()).ok_or_else(|| no_template(word));
        let file = || read(template()?);
        match word {
            "wide" => Ok(Output::Table { wide: true }),
            "json" => Ok(Output::Json),
            "yaml" => Ok(Output::Yaml),
            "name" => Ok(Output::Name),
            "jsonpath" => path(template()?).map(Output::JsonPath),
            "jsonpath-as-json" => path(template()?).map(Output::JsonPathAsJson),
            "jsonpath-file" => path(&file()?).map(Output::JsonPath),
            "custom-columns" => columns(template()?).map(Output::Columns),
            "custom-columns-file" => columns_of_file(&file()?).map(Output::Columns),
            _ => Err(Failure::error(format!(
                "unable to match a printer suitable for the output format {text:?}, allowed formats are: {KNOWN}"
            ))
            .hint(match slip::nearest(word, KNOWN.split(',')) {
                Some(near) => format!("did you mean `-o {near}`?"),
                None => "`-o yaml` shows everything, `-o wide` more columns".to_owned(),
            })),
        }
    }

    /// Prints all of an object, with who wrote which field, in the forms that leave that out otherwise.
    pub fn print_whole(&self, object: &Value) -> Option<String> {
        match self {
            Output::Json => Some(go::indented_json(object) + "\n"),
            Output::Yaml => Some(yaml::write(object)),
            _ => None,
        }
    }

    /// Prints an object or a list of them.
    pub fn print(&self, object: &Value, no_headers: bool) -> Result<String, Failure> {
        let failed = |template: &Template, why: String| {
            Failure::error(format!("error executing jsonpath {:?}: {why}", template.source()))
                .hint("`-o json` shows what there is to choose from")
        };
        match self {
            Output::Json => Ok(go::indented_json(&without_managers(object)) + "\n"),
            Output::Yaml => Ok(yaml::write(&without_managers(object))),
            Output::Name => Ok(items(object).iter().map(|item| name(item) + "\n").collect()),
            Output::JsonPath(template) => template.print(object).map_err(|why| failed(template, why)),
            Output::JsonPathAsJson(template) => template.print_as_json(object).map_err(|why| failed(template, why)),
            Output::Columns(columns) => {
                let mut tabs = Tabs::default();
                if !no_headers {
                    tabs.row(columns.iter().map(|(header, _)| header.clone()));
                }
                for item in items(object) {
                    let cells = columns.iter().map(|(_, template)| cell(template, item));
                    tabs.row(cells.collect::<Result<Vec<_>, _>>().map_err(Failure::error)?);
                }
                Ok(tabs.flush())
            }
            Output::Table { .. } => Ok(String::new()),
        }
    }
}

/// How an object is named: `deployment.apps/web`.
pub fn name(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]).to_lowercase());
    let name = text(&object["metadata"]["name"]);
    match version.split_once('/') {
        Some((group, _)) => format!("{kind}.{group}/{name}"),
        None => format!("{kind}/{name}"),
    }
}

/// The objects of a list, or the object itself.
fn items(object: &Value) -> Vec<&Value> {
    match object["items"].as_array() {
        Some(items) => items.iter().collect(),
        None => vec![object],
    }
}

/// Objects without the long tale of who wrote which field.
fn without_managers(object: &Value) -> Value {
    let mut object = object.clone();
    let strip = |object: &mut Value| {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
    };
    strip(&mut object);
    if let Some(items) = object.get_mut("items").and_then(Value::as_array_mut) {
        items.iter_mut().for_each(strip);
    }
    object
}

fn cell(template: &Template, object: &Value) -> Result<String, String> {
    let found: Vec<Value> = template.find(object)?.into_iter().flatten().collect();
    if found.is_empty() {
        return Ok("<none>".to_owned());
    }
    Ok(found.iter().map(|value| escape(&go::text(value))).collect::<Vec<_>>().join(","))
}

fn path(text: &str) -> Result<Template, Failure> {
    Template::parse(text)
        .map_err(|why| Failure::error(format!("error parsing jsonpath {text}, {why}")).hint(PATH_EXAMPLE))
}

fn columns(text: &str) -> Result<Vec<(String, Template)>, Failure> {
    let column = |part: &str| match part.split_once(':') {
        Some((header, path)) => Ok((header.to_owned(), Template::relaxed(path).map_err(Failure::error)?)),
        None => {
            Err(Failure::error(format!("unexpected custom-columns spec: {part}, expected <header>:<json-path-expr>"))
                .hint("for example `-o custom-columns=NAME:.metadata.name,IMAGE:.spec.containers[*].image`"))
        }
    };
    text.split(',').map(column).collect()
}

fn columns_of_file(text: &str) -> Result<Vec<(String, Template)>, Failure> {
    let mut lines = text.lines();
    let form = "Expected format is one line of space separated headers, one line of space separated column specs.";
    let mut line = |name: &str| {
        let missing = || Failure::error(format!("invalid template, missing {name} line. {form}"));
        lines
            .next()
            .ok_or_else(|| missing().hint("for example a line `NAME NODE` and a line `.metadata.name .spec.nodeName`"))
    };
    let headers: Vec<&str> = line("header")?.split_whitespace().collect();
    let paths: Vec<&str> = line("spec")?.split_whitespace().collect();
    if headers.len() != paths.len() {
        let (headers, paths) = (headers.len(), paths.len());
        return Err(Failure::error(format!(
            "number of headers ({headers}) and field specifications ({paths}) don't match"
        ))
        .hint("each header needs one path, parted by spaces"));
    }
    let pairs = headers.into_iter().zip(paths);
    pairs.map(|(header, path)| Ok((header.to_owned(), Template::relaxed(path).map_err(Failure::error)?))).collect()
}

fn read(file: &str) -> Result<String, Failure> {
    std::fs::read_to_string(file).map_err(|error| {
        Failure::error(format!("error reading template {file}, {error}"))
            .hint("name a file that is there, relative to where you are")
    })
}

fn no_template(word: &str) -> Failure {
    if word.starts_with("custom-columns") {
        return Failure::error("custom-columns format specified but no custom columns given")
            .hint("for example `-o custom-columns=NAME:.metadata.name`");
    }
    Failure::error("template format specified but no template given")
        .hint("for example `-o jsonpath='{.items[*].metadata.name}'`")
}

/// Sorts by what a path leads to. Where it leads nowhere comes first.
pub fn sort(rows: &mut [Value], text: &str, at: impl Fn(&Value) -> &Value) -> Result<(), Failure> {
    let path = json_path::braced(text).unwrap_or_else(|_| text.to_owned());
    let template = Template::parse(&path).map_err(|why| {
        Failure::error(format!("sorting error: {why}")).hint("for example `--sort-by=.metadata.creationTimestamp`")
    })?;
    let mut keyed = Vec::new();
    for row in rows.iter() {
        let found = template.find(at(row)).map_err(Failure::error)?;
        keyed.push((found.into_iter().flatten().next(), row.clone()));
    }
    if !keyed.is_empty() && keyed.iter().all(|(key, _)| key.is_none()) {
        return Err(Failure::error(format!("couldn't find any field with path {path:?} in the list of objects"))
            .hint("`-o json` shows which fields there are; for example `--sort-by=.metadata.creationTimestamp`"));
    }
    keyed.sort_by(|(left, _), (right, _)| order(left.as_ref(), right.as_ref()));
    for (row, (_, sorted)) in rows.iter_mut().zip(keyed) {
        *row = sorted;
    }
    Ok(())
}

fn order(left: Option<&Value>, right: Option<&Value>) -> std::cmp::Ordering {
    use setpoint_api::Quantity;
    match (left, right) {
        (Some(Value::String(a)), Some(Value::String(b))) => match (Quantity::parse(a), Quantity::parse(b)) {
            (Ok(a), Ok(b)) => a.cmp(&b),
            _ => a.cmp(b),
        },
        (Some(Value::Number(a)), Some(Value::Number(b))) => {
            a.as_f64().partial_cmp(&b.as_f64()).unwrap_or(std::cmp::Ordering::Equal)
        }
        (left, right) => left.is_some().cmp(&right.is_some()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(output: &str, expected: &str) {
        let object = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "spec": {"n": 1},
            "metadata": {"name": "web", "managedFields": [{"manager": "x"}]},
        });
        let printed = Output::parse(Some(output)).and_then(|output| output.print(&object, false));
        let printed =
            printed.unwrap_or_else(|failure| failure.to_string().lines().next().unwrap_or_default().to_owned());
        assert_eq!(printed, expected, "{output}");
    }

    #[test]
    fn each_form_prints_its_own_way() {
        check("name", "deployment.apps/web\n");
        check("yaml", "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\nspec:\n  \"n\": 1\n");
        check("jsonpath={.spec}", "{\"n\":1}");
        check("custom-columns=NAME:.metadata.name,X:.spec.x,N:spec.n", "NAME   X        N\nweb    <none>   1\n");
        check("custom-columns=NAME", "error: unexpected custom-columns spec: NAME, expected <header>:<json-path-expr>");
        check("custom-columns", "error: custom-columns format specified but no custom columns given");
        check("jsonpath={.a", "error: error parsing jsonpath {.a, unclosed action");
        check(
            "xml",
            &format!(
                "error: unable to match a printer suitable for the output format \"xml\", allowed formats are: {KNOWN}"
            ),
        );
    }

    #[test]
    fn objects_are_sorted_by_what_a_path_leads_to() {
        let sorted = |values: &[&str]| {
            let mut rows: Vec<Value> = values.iter().map(|value| json!({"x": {"y": value}})).collect();
            rows.push(json!({}));
            sort(&mut rows, ".x.y", |row| row).map(|()| go::json(&Value::Array(rows)))
        };
        let text = sorted(&["2Gi", "100Mi", "1"]).unwrap();
        assert_eq!(text, r#"[{},{"x":{"y":"1"}},{"x":{"y":"100Mi"}},{"x":{"y":"2Gi"}}]"#);
        assert!(sorted(&[]).unwrap_err().to_string().contains("couldn't find any field with path \"{.x.y}\""));
    }
}
