//! Which objects the words of a command mean: `pods`, `pods a b`, `pods,services`, `deploy/web pod/a`.

use crate::discovery::{Discovery, Kind};
use crate::failure::Failure;

/// What is meant.
#[derive(Debug, PartialEq, Eq)]
pub enum Selection {
    /// All objects of these kinds.
    Kinds(Vec<Kind>),
    /// These objects.
    Named(Vec<(Kind, String)>),
}

/// Reads the words.
pub fn read(words: &[String], discovery: &Discovery) -> Result<Selection, Failure> {
    let words = spread(words);
    if words.is_empty() {
        return Err(nothing());
    }
    let slashes = words.iter().filter(|word| word.contains('/')).count();
    if slashes == words.len() {
        let named: Result<Vec<_>, Failure> = words.iter().map(|word| pair(word, discovery)).collect();
        return named.map(Selection::Named);
    }
    if slashes > 0 {
        return Err(Failure::error(
            "there is no need to specify a resource type as a separate argument when passing arguments in resource/name \
             form (e.g. 'setpoint get resource/<resource_name>' instead of 'setpoint get resource resource/<resource_name>'",
        )
        .hint(format!("leave out what has no slash: {}", slashed(&words))));
    }
    let (first, names) = words.split_first().ok_or_else(nothing)?;
    let mut kinds: Vec<Kind> = Vec::new();
    for word in first.split(',').filter(|word| !word.is_empty()) {
        let members = discovery.category(word);
        let found = match members.is_empty() {
            true => vec![discovery.find(word).map_err(|failure| lone(failure, first, names))?],
            false => members,
        };
        for kind in found {
            if !kinds.contains(kind) {
                kinds.push(kind.clone());
            }
        }
    }
    match (&kinds[..], names) {
        ([], _) => Err(nothing()),
        (_, []) => Ok(Selection::Kinds(kinds)),
        ([kind], names) => Ok(Selection::Named(names.iter().map(|name| (kind.clone(), name.clone())).collect())),
        (_, names) => {
            let each = kinds.iter().flat_map(|kind| names.iter().map(move |name| (kind.clone(), name.clone())));
            Ok(Selection::Named(each.collect()))
        }
    }
}

/// A word alone that is no kind, nor nearly one, is the name of an object more often than not.
fn lone(failure: Failure, word: &str, names: &[String]) -> Failure {
    if names.is_empty() && failure.advises("`kubectl api-resources` lists all kinds") {
        return failure.hint(format!(
            "if that is a name, say its kind too, such as `deploy/{word}`; `kubectl api-resources` lists all kinds"
        ));
    }
    failure
}

/// One object, named as `kind/name`.
pub fn pair(word: &str, discovery: &Discovery) -> Result<(Kind, String), Failure> {
    let parts: Vec<&str> = word.split('/').collect();
    match parts[..] {
        [kind, name] if !kind.is_empty() && !name.is_empty() && !kind.contains(',') => {
            Ok((discovery.find(kind)?.clone(), name.to_owned()))
        }
        [_, _] => Err(Failure::error("arguments in resource/name form must have a single resource and name")
            .hint("write the kind before the slash and the name after it: `pod/web-0`")),
        _ => Err(Failure::error("arguments in resource/name form may not have more than one slash")
            .hint("name the namespace with `-n`: `pod/web-0 -n shop`")),
    }
}

/// One object, named as `kind/name` or as two words.
pub fn one(words: &[String], discovery: &Discovery) -> Result<(Kind, String), Failure> {
    match words {
        [word] if word.contains('/') => pair(word, discovery),
        [kind, name] if !kind.contains('/') => Ok((discovery.find(kind)?.clone(), name.clone())),
        _ => Err(Failure::usage("can't tell which object is meant", "expected KIND/NAME")
            .hint("for example `deploy/web` or `pod web-0`")),
    }
}

/// The words that say a kind and a name, as one types them.
fn slashed(words: &[String]) -> String {
    let whole: Vec<_> = words.iter().filter(|word| word.contains('/')).map(|word| format!("`{word}`")).collect();
    whole.join(" ")
}

/// What to do where a name and a choice by labels were given.
pub const NAME_OR_CHOICE: &str = "take a name, or choose with `-l`, `--field-selector` or `--all`, not both";

/// What to do where a name and all namespaces were given.
pub const NAME_OR_NAMESPACES: &str =
    "name the namespace with `-n`, or find it in all: `--field-selector metadata.name=NAME -A`";

/// What to do where both files and words were given.
pub const FILES_OR_WORDS: &str = "take files with `-f`, or kinds and names, not both";

/// `pods,services a` means `pods/a services/a`.
fn spread(words: &[String]) -> Vec<String> {
    match words {
        [kinds, names @ ..] if !names.is_empty() && kinds.contains(',') && !kinds.contains('/') => kinds
            .split(',')
            .filter(|kind| !kind.is_empty())
            .flat_map(|kind| names.iter().map(move |name| format!("{kind}/{name}")))
            .collect(),
        _ => words.to_vec(),
    }
}

fn nothing() -> Failure {
    Failure::error("You must provide one or more resources by argument or filename.")
        .hint("name a kind, such as `pods`, an object, such as `pod/web`, or a file with `-f`")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discovery::tests::sample;

    fn check(words: &str, expected: &str) {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        let found = match read(&words, &sample()) {
            Ok(Selection::Kinds(kinds)) => kinds.iter().map(Kind::word).collect::<Vec<_>>().join(" "),
            Ok(Selection::Named(named)) => {
                named.iter().map(|(kind, name)| format!("{}/{name}", kind.word())).collect::<Vec<_>>().join(" ")
            }
            Err(failure) => failure.to_string().lines().next().unwrap_or_default().chars().take(48).collect(),
        };
        assert_eq!(found, expected, "{words:?}");
    }

    #[test]
    fn words_mean_kinds_or_objects() {
        check("pods", "pod");
        check("po,deploy", "pod deployment.apps");
        check("pods,pods", "pod");
        check("pod a b", "pod/a pod/b");
        check("pod/a deploy/b", "pod/a deployment.apps/b");
        check("pods,deploy a", "pod/a deployment.apps/a");
        check("all", "pod namespace deployment.apps podmetrics.metrics.k8s.io");
        check("pod pod/a", "error: there is no need to specify a resource ty");
        check("pod/a/b", "error: arguments in resource/name form may not h");
        check("pod/", "error: arguments in resource/name form must have");
        check("", "error: You must provide one or more resources by");
    }
}
