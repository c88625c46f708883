//! Objects in files: `-f FILE`, `-f DIR`, `-f -`, in JSON or YAML, one or many.

use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::Value;

use crate::discovery::{Discovery, Kind};
use crate::failure::Failure;
use crate::request::Server;
use crate::slip;

/// Most bytes that are read from one file.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// Flags of commands that read files.
#[derive(Args, Clone, Debug, Default)]
pub struct FileArguments {
    /// A file or directory with manifests, or - for standard input; may be given more than once
    #[arg(long = "filename", short = 'f', value_name = "FILE", value_delimiter = ',')]
    pub files: Vec<String>,
    /// Look into directories in directories
    #[arg(long, short = 'R')]
    pub recursive: bool,
}

/// One object and where it was read.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// The object.
    pub object: Value,
    /// The file, or `STDIN`.
    pub source: String,
}

/// One object whose kind the server has.
#[derive(Clone, Debug)]
pub struct Known {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace; empty if it is in none.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The object.
    pub object: Value,
    /// Where it was read.
    pub source: String,
}

impl FileArguments {
    /// Reads everything.
    pub fn read(&self) -> Result<Vec<Manifest>, Failure> {
        let mut all = Vec::new();
        for name in &self.files {
            if name == "-" {
                let mut text = Vec::new();
                let read = std::io::stdin().lock().take(FILE_BYTES_MAX).read_to_end(&mut text);
                read.map_err(|error| Failure::error(format!("can't read standard input: {error}")).hint(READABLE))?;
                add(&text, "STDIN", &mut all)?;
                continue;
            }
            if name.starts_with("http://") || name.starts_with("https://") {
                return Err(Failure::error(format!("the URL {name:?} is not read"))
                    .hint(format!("fetch it: `curl -fsSL {name} | setpoint apply -f -`")));
            }
            for file in self.files_of(Path::new(name))? {
                let shown = file.display().to_string();
                let text = std::fs::read(&file)
                    .map_err(|error| Failure::error(format!("can't read {shown}: {error}")).hint(READABLE))?;
                add(&text, &shown, &mut all)?;
            }
        }
        Ok(all)
    }

    /// Whether exactly one object is meant.
    pub fn is_single(&self) -> bool {
        matches!(&self.files[..], [file] if file != "-" && !Path::new(file).is_dir())
    }

    fn files_of(&self, path: &Path) -> Result<Vec<PathBuf>, Failure> {
        let shown = path.display();
        if !path.exists() {
            return Err(Failure::error(format!("the path {:?} does not exist", shown.to_string())).hint(near(path)));
        }
        if !path.is_dir() {
            return Ok(vec![path.to_owned()]);
        }
        let mut files = Vec::new();
        self.walk(path, &mut files)
            .map_err(|error| Failure::error(format!("error reading {shown}: {error}")).hint(READABLE))?;
        if files.is_empty() {
            return Err(Failure::error(format!(
                "error reading [{shown}]: recognized file extensions are [.json .yaml .yml]"
            ))
            .hint("files with other names are named one by one; `-R` looks into folders in it"));
        }
        Ok(files)
    }

    fn walk(&self, folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
        let mut entries = std::fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let path = entry.path();
            let extension = path.extension().and_then(|extension| extension.to_str());
            if path.is_dir() {
                if self.recursive && !entry.file_type()?.is_symlink() {
                    self.walk(&path, files)?;
                }
            } else if matches!(extension, Some("json" | "yaml" | "yml")) {
                files.push(path);
            }
        }
        Ok(())
    }
}

/// The manifests whose kinds the server has; the others are failures, and don't hold up the rest.
pub fn know(manifests: Vec<Manifest>, discovery: &Discovery, server: &Server) -> (Vec<Known>, Vec<Failure>) {
    let (mut known, mut failures) = (Vec::new(), Vec::new());
    for manifest in manifests {
        match one(manifest, discovery, server) {
            Ok(object) => known.push(object),
            Err(failure) => failures.push(failure),
        }
    }
    (known, failures)
}

fn one(manifest: Manifest, discovery: &Discovery, server: &Server) -> Result<Known, Failure> {
    let Manifest { object, source } = manifest;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let (name, namespace) = (text(&object["metadata"]["name"]), text(&object["metadata"]["namespace"]));
    let found = discovery.of_manifest(&version, &kind).ok_or_else(|| {
        let near = discovery.kinds.iter().find(|known| known.kind.eq_ignore_ascii_case(&kind));
        let failure = Failure::error(format!(
            "resource mapping not found for name: {name:?} namespace: {namespace:?} from {source:?}: \
             no matches for kind {kind:?} in version {version:?}\nensure CRDs are installed first"
        ));
        match near {
            Some(near) => failure.hint(format!("there is `apiVersion: {}`, `kind: {}`", near.api_version(), near.kind)),
            None => failure.hint(match slip::nearest(&kind, discovery.kinds.iter().map(|one| one.kind.as_str())) {
                Some(near) => format!("did you mean `kind: {near}`?"),
                None => "`setpoint get crd` lists the kinds that were added; apply the definition of this one first"
                    .to_owned(),
            }),
        }
    })?;
    let namespace = match (found.namespaced, namespace.as_str()) {
        (false, _) => String::new(),
        (true, "") => server.namespace.clone(),
        (true, own) if server.explicit_namespace && own != server.namespace => {
            let said = &server.namespace;
            return Err(Failure::error(format!(
                "the namespace from the provided object {own:?} does not match the namespace {said:?}. \
                 You must pass '--namespace={own}' to perform this operation."
            ))
            .hint(format!("leave out `-n`, or the `metadata.namespace` of {name} in {source}")));
        }
        (true, own) => own.to_owned(),
    };
    Ok(Known { kind: found.clone(), namespace, name, object, source })
}

fn add(text: &[u8], source: &str, all: &mut Vec<Manifest>) -> Result<(), Failure> {
    for document in documents(text) {
        let parsed = setpoint_schema::yaml::parse(document.as_bytes()).map_err(|error| {
            let said = error.to_string();
            let failure = Failure::error(format!("error parsing {source}: error converting YAML to JSON: {said}"));
            failure.hint(shown(&document, &said))
        })?;
        let object = parsed.json.into_value();
        match object {
            Value::Null => {}
            object
                if object["kind"].as_str().is_some_and(|kind| kind.ends_with("List")) && object["items"].is_array() =>
            {
                let items = object["items"].as_array().cloned().unwrap_or_default();
                all.extend(items.into_iter().map(|object| Manifest { object, source: source.to_owned() }));
            }
            object => {
                check(&object, source)?;
                all.push(Manifest { object, source: source.to_owned() });
            }
        }
    }
    Ok(())
}

fn check(object: &Value, source: &str) -> Result<(), Failure> {
    let set = |name: &str| object[name].as_str().is_some_and(|text| !text.is_empty());
    if !object.is_object() {
        return Err(Failure::error(format!("error parsing {source}: a manifest is an object, this is not"))
            .hint("begin with `apiVersion:` and `kind:`"));
    }
    let missing: Vec<&str> = ["apiVersion", "kind"].into_iter().filter(|name| !set(name)).collect();
    match missing[..] {
        [] => Ok(()),
        ["kind"] => Err(Failure::error(format!(
            "unable to decode {source:?}: Object 'Kind' is missing in '{}'",
            crate::go::json(object)
        ))
        .hint("a manifest says what it is: `kind: ConfigMap`, for example")),
        _ => Err(Failure::error(format!("error validating {source:?}: {} not set", missing.join(", ")))
            .hint("a manifest says what it is: `apiVersion: v1` and `kind: ConfigMap`, for example")),
    }
}

/// What to do about a file that can't be read.
const READABLE: &str = "check that it is there and that you may read it: `ls -l`";

/// What to do about a path that leads nowhere: the file beside it that is named nearly so.
fn near(path: &Path) -> String {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Ok(entries) = std::fs::read_dir(folder) else {
        return format!("{} is not there either", folder.display());
    };
    let names: Vec<String> = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    let wanted = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    match slip::nearest(&wanted, names.iter().map(String::as_str)) {
        Some(name) => format!("did you mean `{}`?", path.with_file_name(name).display()),
        None => format!("`ls {}` shows which files there are; `-f -` reads standard input", folder.display()),
    }
}

/// The line of a document that an error names, for whoever has to mend it.
fn shown(document: &str, error: &str) -> String {
    let number = error.split_once("line ").and_then(|(_, rest)| {
        rest.split(|letter: char| !letter.is_ascii_digit()).next().and_then(|digits| digits.parse::<usize>().ok())
    });
    let line = number.and_then(|number| document.lines().nth(number.checked_sub(1)?));
    if let Some(line) = line.filter(|line| has_tab(line)) {
        return format!(
            "YAML takes spaces to move lines in, and no tab (`\\t`): mend this line: {}",
            line.replace('\t', "\\t")
        );
    }
    match line.map(str::trim).filter(|line| !line.is_empty()) {
        Some(line) => format!("mend this line: {line}"),
        None => "mend it so that it is YAML or JSON: quotes, brackets and how far lines are moved in".to_owned(),
    }
}

/// Whether a tab moves a line in.
fn has_tab(line: &str) -> bool {
    line.chars().take_while(|letter| letter.is_whitespace()).any(|letter| letter == '\t')
}

/// The documents of a file, which lines of three dashes part.
fn documents(text: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(text);
    let mut documents = vec![String::new()];
    for line in text.lines() {
        if line == "---" || line.starts_with("--- ") {
            documents.push(String::new());
        } else if let Some(document) = documents.last_mut() {
            document.push_str(line);
            document.push('\n');
        }
    }
    documents
        .retain(|document| document.lines().any(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#')));
    documents
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let mut all = Vec::new();
        let said = match add(text.as_bytes(), "a.yaml", &mut all) {
            Ok(()) => all.iter().map(|one| crate::output::name(&one.object)).collect::<Vec<_>>().join(" "),
            Err(failure) => failure.to_string(),
        };
        assert!(said.starts_with(expected), "{text}\n{said}");
    }

    #[test]
    fn a_file_has_any_number_of_objects() {
        check("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n", "pod/a");
        check(
            "# nothing\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\n\n---\n{\"apiVersion\":\"apps/v1\",\"kind\":\"X\",\"metadata\":{\"name\":\"b\"}}",
            "pod/a x.apps/b",
        );
        check(
            "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Pod, metadata: {name: a}}\n- {apiVersion: v1, kind: Pod, metadata: {name: b}}\n",
            "pod/a pod/b",
        );
        check("", "");
    }

    #[test]
    fn what_is_no_manifest_is_told() {
        check("a: b: c", "error: error parsing a.yaml: error converting YAML to JSON: yaml: ");
        check("metadata: {}\n", "error: error validating \"a.yaml\": apiVersion, kind not set");
        check(
            "apiVersion: v1\n",
            "error: unable to decode \"a.yaml\": Object 'Kind' is missing in '{\"apiVersion\":\"v1\"}'",
        );
        check(
            "kind: Pod\nmetadata:\n\tname: x\n",
            "error: error parsing a.yaml: error converting YAML to JSON: yaml: line 3: found character that cannot start any token\n  hint: \
             YAML takes spaces to move lines in, and no tab (`\\t`): mend this line: \\tname: x",
        );
        check("just text", "error: error parsing a.yaml: a manifest is an object, this is not");
    }
}
