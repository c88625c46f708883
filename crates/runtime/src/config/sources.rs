//! Where settings come from: each source is turned into assignments of values to keys.

use std::collections::BTreeMap;

use serde_json::Value;

use super::settings::{Program, Settings};
use super::table::{PROGRAM, TABLE};

/// Largest configuration file: far more than there are settings.
pub const FILE_BYTES_MAX: usize = 1024 * 1024;

/// The texts to read settings from. Reading files and the environment is up to the program.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    file: Option<String>,
    prefix: String,
    environment: Vec<(String, String)>,
    flags: Vec<String>,
    settings: Vec<String>,
    parts: Vec<String>,
}

/// One value for one key.
pub(super) struct Assignment {
    pub(super) controller: Option<String>,
    key: String,
    value: Value,
    source: String,
}

impl Sources {
    /// Nothing: all settings are the built-in ones.
    pub fn new() -> Sources {
        Sources::default()
    }

    /// Reads this file's text, YAML or JSON.
    #[must_use]
    pub fn file(self, text: impl Into<String>) -> Sources {
        Sources { file: Some(text.into()), ..self }
    }

    /// Reads variables whose names begin with the prefix: with `SHOP`, `SHOP_QUEUE_MAX_RETRIES` is `queue.maxRetries`, and
    /// `SHOP_CONTROLLERS_WEB_APP_WORKERS` is `controllers.web-app.workers`. One that is almost a setting is a mistake; others
    /// are left alone, for a program has variables of its own, and in a cluster those of Services.
    #[must_use]
    pub fn environment(self, prefix: &str, variables: impl IntoIterator<Item = (String, String)>) -> Sources {
        Sources { prefix: format!("{prefix}_"), environment: variables.into_iter().collect(), ..self }
    }

    /// Reads flags, each `--key=value` with the key as in the file: `--controllers.web.queue.qps=5`. A program with flags of its own
    /// has one for them all, `--set key=value`: give what stands behind it to [`set`](Self::set).
    #[must_use]
    pub fn flags(self, flags: impl IntoIterator<Item = String>) -> Sources {
        Sources { flags: flags.into_iter().collect(), ..self }
    }

    /// Reads settings, each `key=value`, as they stand behind a flag `--set`. They count like flags.
    #[must_use]
    pub fn set(mut self, settings: impl IntoIterator<Item = String>) -> Sources {
        self.settings.extend(settings);
        self
    }

    /// What the file has under this key is read by a part of the program: [`Config::part`](super::Config::part).
    #[must_use]
    pub fn part(mut self, key: &str) -> Sources {
        self.parts.push(key.to_owned());
        self
    }

    /// What the file has for parts of the program; a file that can't be read has nothing.
    pub(super) fn parts(&self) -> BTreeMap<String, Value> {
        let text = self.file.as_deref().filter(|text| !self.parts.is_empty() && text.len() <= FILE_BYTES_MAX);
        match text.map(serde_saphyr::from_str::<Value>) {
            Some(Ok(Value::Object(fields))) => fields.into_iter().filter(|(key, _)| self.parts.contains(key)).collect(),
            _ => BTreeMap::new(),
        }
    }

    pub(super) fn assignments(&self) -> (Vec<Assignment>, Vec<String>) {
        let (mut found, mut errors) = (Vec::new(), Vec::new());
        self.read_file(&mut found, &mut errors);
        self.read_environment(&mut found, &mut errors);
        self.read_flags(&mut found, &mut errors);
        (found, errors)
    }

    fn read_file(&self, found: &mut Vec<Assignment>, errors: &mut Vec<String>) {
        let Some(text) = &self.file else { return };
        if text.len() > FILE_BYTES_MAX {
            errors.push(format!("the file is larger than {FILE_BYTES_MAX} bytes"));
            return;
        }
        match serde_saphyr::from_str::<Value>(text) {
            Ok(Value::Null) => (),
            Ok(Value::Object(fields)) => {
                for (key, value) in fields.into_iter().filter(|(key, _)| !self.parts.contains(key)) {
                    flatten(key, value, found);
                }
            }
            Ok(_) => errors.push("the file must hold a map of settings".to_owned()),
            Err(error) => errors.push(format!("the file can't be read: {error}")),
        }
    }

    fn read_environment(&self, found: &mut Vec<Assignment>, errors: &mut Vec<String>) {
        for (name, text) in &self.environment {
            let Some(rest) = name.strip_prefix(&self.prefix) else { continue };
            let (controller, variable) = match rest.strip_prefix("CONTROLLERS_") {
                Some(rest) => (Some(rest), rest),
                None => (None, rest),
            };
            // A controller's name may hold any word, so the key is what the variable ends with.
            let ends_with = |key: &str| match controller {
                Some(rest) => rest.strip_suffix(&variable_of(key)).and_then(|rest| rest.strip_suffix('_')),
                None => (variable == variable_of(key)).then_some(""),
            };
            let hit = keys().find_map(|key| ends_with(key).map(|name| (key, name)));
            let Some((key, controller_name)) = hit else {
                let meant = meant_by(variable, controller.is_some());
                errors.extend(meant.map(|meant| format!("{name}: unknown setting{meant} (from the environment)")));
                continue;
            };
            found.push(Assignment {
                controller: controller.map(|_| controller_name.to_ascii_lowercase().replace('_', "-")),
                key: key.to_owned(),
                value: Value::from(text.as_str()),
                source: name.clone(),
            });
        }
    }

    fn read_flags(&self, found: &mut Vec<Assignment>, errors: &mut Vec<String>) {
        for flag in &self.flags {
            match flag.strip_prefix("--").and_then(|rest| rest.split_once('=')) {
                Some((key, value)) => found.push(assignment(key, Value::from(value), &format!("--{key}"))),
                None => errors.push(format!("{flag}: must look like --key=value")),
            }
        }
        for setting in &self.settings {
            match setting.split_once('=') {
                Some((key, value)) => found.push(assignment(key, Value::from(value), "--set")),
                None => errors.push(format!("{setting}: must look like key=value (from --set)")),
            }
        }
    }
}

impl Assignment {
    pub(super) fn apply(self, settings: &mut Settings, errors: &mut Vec<String>) {
        let name = match &self.controller {
            Some(controller) => format!("controllers.{controller}.{}", self.key),
            None => self.key.clone(),
        };
        let read = TABLE.iter().find(|(key, _)| *key == self.key).map(|(_, read)| read);
        let outcome = match read {
            Some(read) => read(settings, &self.value),
            None if self.is_of_program() => Err("is for the whole program, not for one controller".to_owned()),
            None => Err("unknown setting".to_owned()),
        };
        if let Err(why) = outcome {
            errors.push(format!("{name}: {why} (from {})", self.source));
        }
    }

    /// Whether it is about the program and not about its controllers.
    pub(super) fn is_of_program(&self) -> bool {
        PROGRAM.iter().any(|(key, _)| *key == self.key)
    }

    pub(super) fn apply_to_program(self, program: &mut Program, errors: &mut Vec<String>) {
        for (key, read) in PROGRAM.iter().filter(|(key, _)| *key == self.key) {
            if let Err(why) = read(program, &self.value) {
                errors.push(format!("{key}: {why} (from {})", self.source));
            }
        }
    }
}

/// Every key there is.
pub(super) fn keys() -> impl Iterator<Item = &'static str> {
    TABLE.iter().map(|(key, _)| *key).chain(PROGRAM.iter().map(|(key, _)| *key))
}

/// Names of controllers have no dots, so the third part and what follows is the key.
fn assignment(key: &str, value: Value, source: &str) -> Assignment {
    let own = key.strip_prefix("controllers.").and_then(|rest| rest.split_once('.'));
    let (controller, key) = own.map_or((None, key), |(name, key)| (Some(name.to_owned()), key));
    Assignment { controller, key: key.to_owned(), value, source: source.to_owned() }
}

fn flatten(key: String, value: Value, found: &mut Vec<Assignment>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                flatten(format!("{key}.{name}"), value, found);
            }
        }
        Value::Null if !keys().any(|known| key.ends_with(known)) => (), // `queue:` with nothing below it
        value => found.push(assignment(&key, value, "the file")),
    }
}

/// Letters that may be wrong in a variable that was meant to be a setting.
const TYPOS_MAX: usize = 2;

/// What to say of a variable that names no setting: none if it wasn't meant to.
fn meant_by(variable: &str, of_controller: bool) -> Option<String> {
    // The name of a controller has any number of words, so only ends are compared.
    let typos_of = |known: &str| match of_controller {
        false => typos(variable, known),
        true => {
            let lengths = known.len().saturating_sub(TYPOS_MAX)..=known.len() + TYPOS_MAX;
            let ends = lengths.filter_map(|length| variable.get(variable.len().checked_sub(length)?..));
            ends.map(|end| typos(end, known)).min().unwrap_or(usize::MAX)
        }
    };
    let near = keys().map(variable_of).map(|known| (typos_of(&known), known)).min()?;
    match near {
        (typos, known) if typos <= TYPOS_MAX => Some(format!(", did you mean {known}?")),
        _ => (of_controller && !is_of_service(variable)).then(String::new),
    }
}

/// Whether a variable is one of those that a cluster gives to every pod for a Service: one may be called `shop-controllers`.
fn is_of_service(variable: &str) -> bool {
    variable.starts_with("SERVICE_") || variable == "PORT" || variable.starts_with("PORT_")
}

/// How many letters have to be put in, left out or replaced to make one word of another; two that changed places count as
/// two.
fn typos(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in other.bytes().enumerate() {
            let cost = (diagonal + usize::from(a != b)).min(row[j] + 1).min(row[j + 1] + 1);
            diagonal = std::mem::replace(&mut row[j + 1], cost);
        }
    }
    row[other.len()]
}

/// `queue.maxRetries` is `QUEUE_MAX_RETRIES`.
pub(super) fn variable_of(key: &str) -> String {
    let mut variable = String::new();
    for letter in key.chars() {
        match letter {
            '.' => variable.push('_'),
            _ if letter.is_ascii_uppercase() => variable.extend(['_', letter]),
            _ => variable.push(letter.to_ascii_uppercase()),
        }
    }
    variable
}
