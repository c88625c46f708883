//! `setpoint get`: objects as tables, JSON, YAML, names or what a template makes of them.

mod watch;

use clap::Args;
use serde_json::{Value, json};

use crate::absent;
use crate::connection::ConnectionArguments;
use crate::discovery::{Discovery, Kind};
use crate::failure::{Failure, note, print, say};
use crate::manifest::{self, FileArguments};
use crate::output::{self, Output};
use crate::request::{Ask, JSON, Server, TABLE, Trouble};
use crate::selection::{self, Selection};
use crate::tab::Tabs;
use crate::table::{self, Options, Printer};
use crate::terminal::{fitting, with_progress};

/// The command line.
#[derive(Args, Debug)]
pub struct GetArguments {
    /// Kinds and names: `pods`, `pods a b`, `deploy/web`, `pods,services`, `all`
    #[arg(value_name = "KIND[/NAME]")]
    pub words: Vec<String>,
    /// Form of the output: json, yaml, name, wide, jsonpath=…, jsonpath-file=…, custom-columns=…, custom-columns-file=…
    #[arg(long, short, value_name = "FORM", help_heading = "Output")]
    pub output: Option<String>,
    /// No header above the table
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true",
          action = clap::ArgAction::Set, hide_default_value = true, hide_possible_values = true, help_heading = "Output")]
    pub no_headers: bool,
    /// Labels in the last column
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true",
          action = clap::ArgAction::Set, hide_default_value = true, hide_possible_values = true, help_heading = "Output")]
    pub show_labels: bool,
    /// The kind before each name
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true",
          action = clap::ArgAction::Set, hide_default_value = true, hide_possible_values = true, help_heading = "Output")]
    pub show_kind: bool,
    /// Who wrote which field, in JSON and YAML
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true",
          action = clap::ArgAction::Set, hide_default_value = true, hide_possible_values = true, help_heading = "Output")]
    pub show_managed_fields: bool,
    /// Labels that get a column each
    #[arg(long, short = 'L', value_name = "LABEL", value_delimiter = ',', help_heading = "Output")]
    pub label_columns: Vec<String>,
    /// Sort by what this path leads to, such as .metadata.creationTimestamp
    #[arg(long, value_name = "PATH", help_heading = "Output")]
    pub sort_by: Option<String>,
    /// Let the server make the table
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "true", default_missing_value = "true",
          action = clap::ArgAction::Set, hide_default_value = true, hide_possible_values = true, help_heading = "Output")]
    pub server_print: bool,
    /// Of all namespaces
    #[arg(long, short = 'A', num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true",
          action = clap::ArgAction::Set, hide_default_value = true, hide_possible_values = true)]
    pub all_namespaces: bool,
    /// Only objects with these labels, such as app=web,tier!=db
    #[arg(long, short = 'l', value_name = "SELECTOR")]
    pub selector: Option<String>,
    /// Only objects with these fields, such as status.phase=Running
    #[arg(long, value_name = "SELECTOR")]
    pub field_selector: Option<String>,
    /// Go on with changes as they come
    #[arg(long, short, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true",
          action = clap::ArgAction::Set, hide_default_value = true, hide_possible_values = true)]
    pub watch: bool,
    /// Only changes as they come
    #[arg(long)]
    pub watch_only: bool,
    /// Say of each change whether something was added, modified or deleted
    #[arg(long)]
    pub output_watch_events: bool,
    /// What is not there is no failure
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true",
          action = clap::ArgAction::Set, hide_default_value = true, hide_possible_values = true)]
    pub ignore_not_found: bool,
    /// A part of the object that has a path of its own, such as status
    #[arg(long, value_name = "NAME")]
    pub subresource: Option<String>,
    /// A path of the server, as it answers
    #[arg(long, value_name = "PATH")]
    pub raw: Option<String>,
    /// How many objects are asked for at once
    #[arg(long, value_name = "N", default_value_t = 500, hide_default_value = true)]
    pub chunk_size: u32,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub files: FileArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub connection: ConnectionArguments,
}

/// One answer: a table, a list or an object.
struct Found {
    kind: Kind,
    value: Value,
}

/// Everything that was found, and what was not.
#[derive(Default)]
struct Gathered {
    found: Vec<Found>,
    failures: Vec<Failure>,
    /// One object was asked for, and is printed as itself, not as a list of one.
    single: bool,
}

/// Runs it.
pub async fn run(arguments: &GetArguments) -> Result<(), Failure> {
    let form = Output::parse(arguments.output.as_deref())?;
    check(arguments, &form)?;
    let server = arguments.connection.connect().await?;
    if let Some(path) = &arguments.raw {
        return raw(&server, path).await;
    }
    let discovery = Discovery::read(&server).await?;
    if arguments.watch || arguments.watch_only {
        return watch::run(arguments, &form, &server, &discovery).await;
    }
    let gathered = with_progress("reading", gather(arguments, &form, &server, &discovery)).await?;
    match form {
        Output::Table { wide } => tables(arguments, gathered, wide, &server),
        form => objects(arguments, gathered, &form),
    }
}

fn check(arguments: &GetArguments, form: &Output) -> Result<(), Failure> {
    let is_table = matches!(form, Output::Table { .. });
    if arguments.raw.is_none() && arguments.words.is_empty() && arguments.files.files.is_empty() {
        return Err(Failure::error("Required resource not specified.").hint(
            "name a kind: `setpoint get pods`, an object: `setpoint get pod/web`, or all: `setpoint get all -A`",
        ));
    }
    if arguments.show_labels && !is_table {
        let form = arguments.output.as_deref().unwrap_or_default();
        return Err(Failure::error(format!("--show-labels option cannot be used with {form} printer"))
            .hint("labels are in there already; leave out `--show-labels`"));
    }
    if arguments.output_watch_events && !arguments.watch && !arguments.watch_only {
        return Err(Failure::error("--output-watch-events option can only be used with --watch or --watch-only")
            .hint("add `-w`"));
    }
    Ok(())
}

async fn raw(server: &Server, path: &str) -> Result<(), Failure> {
    let (code, text) = server.text(path).await?;
    if code.is_success() {
        print(&text);
        return Ok(());
    }
    let status = serde_json::from_str(&text).unwrap_or_else(|_| json!({"message": text.trim()}));
    Err(Trouble::Refused(status).into())
}

async fn gather(
    arguments: &GetArguments,
    form: &Output,
    server: &Server,
    discovery: &Discovery,
) -> Result<Gathered, Failure> {
    let mut gathered = Gathered::default();
    if !arguments.files.files.is_empty() {
        if !arguments.words.is_empty() {
            return Err(Failure::error(
                "when paths, URLs, or stdin is provided as input, you may not specify resource arguments as well",
            )
            .hint(selection::FILES_OR_WORDS));
        }
        let (known, failures) = manifest::know(arguments.files.read()?, discovery, server);
        gathered.failures = failures;
        gathered.single = arguments.files.is_single();
        for object in known {
            let got = get(arguments, form, server, &object.kind, &object.namespace, &object.name).await;
            gathered.add(arguments, object.kind, got);
        }
        return Ok(gathered);
    }
    match selection::read(&arguments.words, discovery)? {
        Selection::Kinds(kinds) => {
            if arguments.subresource.is_some() {
                return Err(Failure::error("subresource cannot be used when bulk resources are specified")
                    .hint("name one object: `setpoint get deploy/web --subresource=scale`"));
            }
            for kind in kinds {
                list(arguments, form, server, &kind, &mut gathered).await;
            }
        }
        Selection::Named(named) => {
            let selects = arguments.selector.is_some() || arguments.field_selector.is_some();
            if arguments.all_namespaces {
                return Err(Failure::error("a resource cannot be retrieved by name across all namespaces")
                    .hint(selection::NAME_OR_NAMESPACES));
            }
            if selects && arguments.words.iter().any(|word| word.contains('/')) {
                return Err(Failure::error(
                    "selectors and the all flag cannot be used when passing resource/name arguments",
                )
                .hint(selection::NAME_OR_CHOICE));
            }
            if selects {
                return Err(Failure::error("name cannot be provided when a selector is specified")
                    .hint(selection::NAME_OR_CHOICE));
            }
            gathered.single = named.len() == 1;
            for (kind, name) in named {
                let got = get(arguments, form, server, &kind, &server.namespace, &name).await;
                match got {
                    Err(trouble) if trouble.is("NotFound") && !arguments.ignore_not_found => {
                        gathered.failures.push(absent::told(server, &kind, &server.namespace, &name, trouble).await);
                    }
                    got => gathered.add(arguments, kind, got),
                }
            }
        }
    }
    Ok(gathered)
}

impl Gathered {
    fn add(&mut self, arguments: &GetArguments, kind: Kind, got: Result<Value, Trouble>) {
        match got {
            Ok(value) => self.found.push(Found { kind, value }),
            Err(trouble) if arguments.ignore_not_found && trouble.is("NotFound") => {}
            Err(trouble) => self.failures.push(trouble.into()),
        }
    }
}

fn accept(arguments: &GetArguments, form: &Output) -> &'static str {
    if matches!(form, Output::Table { .. }) && arguments.server_print { TABLE } else { JSON }
}

async fn get(
    arguments: &GetArguments,
    form: &Output,
    server: &Server,
    kind: &Kind,
    namespace: &str,
    name: &str,
) -> Result<Value, Trouble> {
    let mut path = kind.path_of(namespace, name);
    if let Some(part) = &arguments.subresource {
        path = format!("{path}/{}", crate::request::segment(part));
    }
    let mut ask = Ask::get(path).accept(accept(arguments, form));
    if arguments.sort_by.is_some() {
        ask = ask.with("includeObject", "Object");
    }
    server.get(ask).await
}

fn ask_list<'a>(arguments: &'a GetArguments, form: &Output, server: &Server, kind: &Kind) -> Ask<'a> {
    let namespace = (!arguments.all_namespaces).then_some(server.namespace.as_str());
    let ask = Ask::get(kind.path(namespace)).accept(accept(arguments, form));
    let ask = ask.with_some("labelSelector", arguments.selector.as_deref());
    let ask = ask.with_some("fieldSelector", arguments.field_selector.as_deref());
    if arguments.sort_by.is_some() { ask.with("includeObject", "Object") } else { ask }
}

/// All pages of a list.
async fn list(arguments: &GetArguments, form: &Output, server: &Server, kind: &Kind, gathered: &mut Gathered) {
    let mut next = String::new();
    loop {
        let mut ask = ask_list(arguments, form, server, kind);
        if arguments.sort_by.is_none() && arguments.chunk_size > 0 {
            ask = ask.with("limit", arguments.chunk_size.to_string());
        }
        match server.get(ask.with_some("continue", Some(&next))).await {
            Ok(value) => {
                next = value["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
                gathered.found.push(Found { kind: kind.clone(), value });
            }
            Err(trouble) => return gathered.failures.push(trouble.into()),
        }
        if next.is_empty() {
            return;
        }
    }
}

fn options(arguments: &GetArguments, kind: &Kind, wide: bool, with_kind: bool) -> Options {
    Options {
        wide,
        no_headers: arguments.no_headers,
        with_namespace: arguments.all_namespaces && kind.namespaced,
        kind: (with_kind || arguments.show_kind).then(|| kind.word()),
        show_labels: arguments.show_labels,
        label_columns: arguments.label_columns.clone(),
    }
}

/// What was found as a table, whichever form the server chose.
fn as_table(value: Value) -> Value {
    if value["kind"] == "Table" { value } else { table::plain(&value, now()) }
}

/// Seconds since 1970.
pub(crate) fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

fn tables(arguments: &GetArguments, gathered: Gathered, wide: bool, server: &Server) -> Result<(), Failure> {
    let Gathered { found, failures, .. } = gathered;
    let with_kind = found.iter().any(|one| one.kind != found[0].kind);
    let all_namespaced = !arguments.all_namespaces && found.iter().all(|one| one.kind.namespaced);
    let mut tabs = Tabs::default();
    let mut text = String::new();
    let mut last: Option<(Kind, Printer)> = None;
    let mut flush = |tabs: &mut Tabs, last: bool| {
        let block = tabs.flush();
        tabs.reset();
        if !block.is_empty() && !text.is_empty() && !arguments.no_headers {
            text.push('\n');
        }
        text.push_str(&block);
        if last { std::mem::take(&mut text) } else { String::new() }
    };
    for one in found {
        if last.as_ref().is_none_or(|(kind, _)| *kind != one.kind) {
            flush(&mut tabs, false);
            let printer = Printer::new(options(arguments, &one.kind, wide, with_kind));
            last = Some((one.kind.clone(), printer));
        }
        let mut table = as_table(one.value);
        if let (Some(path), Some(rows)) = (&arguments.sort_by, table["rows"].as_array_mut()) {
            output::sort(rows, path, |row| &row["object"])?;
        }
        if let Some((_, printer)) = &mut last {
            printer.print(&table, None, &mut tabs);
        }
    }
    let text = flush(&mut tabs, true);
    print(&fitting(text.clone()));
    if text.is_empty() && !arguments.ignore_not_found && failures.is_empty() {
        match all_namespaced {
            true => note(&format!("No resources found in {} namespace.", server.namespace)),
            false => note("No resources found"),
        }
    }
    Failure::all(failures)
}

/// The objects themselves: one, or a list of all.
fn objects(arguments: &GetArguments, gathered: Gathered, form: &Output) -> Result<(), Failure> {
    let Gathered { found, failures, single } = gathered;
    let mut items: Vec<Value> = found.into_iter().flat_map(|one| flatten(&one.kind, one.value)).collect();
    if (items.is_empty() && arguments.ignore_not_found) || (single && items.is_empty()) {
        return Failure::all(failures);
    }
    let object = match (single, items.len()) {
        (true, 1) => items.remove(0),
        _ => {
            if let Some(path) = &arguments.sort_by {
                output::sort(&mut items, path, |item| item)?;
            }
            json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": items})
        }
    };
    let whole = if arguments.show_managed_fields { form.print_whole(&object) } else { None };
    print(&whole.map_or_else(|| form.print(&object, arguments.no_headers), Ok)?);
    Failure::all(failures)
}

/// The objects of a list, each with its kind, which lists don't repeat.
fn flatten(kind: &Kind, mut value: Value) -> Vec<Value> {
    match value.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) => {
            let named = |mut item: Value| {
                if let Some(fields) = item.as_object_mut() {
                    fields.entry("apiVersion").or_insert_with(|| kind.api_version().into());
                    fields.entry("kind").or_insert_with(|| kind.kind.clone().into());
                }
                item
            };
            items.into_iter().map(named).collect()
        }
        _ => vec![value],
    }
}

/// Prints one answer of a watch.
fn print_one(form: &Output, object: &Value, arguments: &GetArguments, first: bool) -> Result<(), Failure> {
    if *form == Output::Yaml && !first {
        say("---");
    }
    print(&form.print(object, arguments.no_headers || !first)?);
    Ok(())
}
