//! What a script would do if a shell ran it: a small part of a shell, whose commands are those that touch nothing but variables, time and
//! the files of the container's own empty volumes.
//!
//! Invariants
//! - What can't be known is not guessed: a command, a variable or a file that is not known makes the script run on.
//! - Nothing is run, read or written outside of this process.

mod sum;
mod syntax;

use std::collections::BTreeMap;
use std::time::Duration;

use super::command::{self, End};
use syntax::{Command, Joint, List, Piece, Target, Word};

/// Most commands that one run of a script takes; one that takes more runs on.
const STEPS_MAX: usize = 2_000;
/// Most lines that one run of a script prints.
const SAID_MAX: usize = 1_000;
/// Most pauses that are remembered of one run.
const PAUSES_MAX: usize = 64;
/// Longest text that a variable, a file or a line holds.
const TEXT_MAX: usize = 64 * 1024;

/// The variables of a container and where its files are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// By name; one without a value is set to something that is not known here.
    pub variables: BTreeMap<String, Option<String>>,
    /// Directories that begin empty and live as long as the pod.
    pub volumes: Vec<String>,
    /// Directories that begin empty at each start.
    pub scratch: Vec<String>,
    /// What `$RANDOM` is drawn from.
    pub seed: u64,
    /// How long after its start a script is looked at; what it does later is not gone through.
    pub until: Option<Duration>,
}

/// Files by path, with their texts as far as they are known.
pub type Files = BTreeMap<String, Option<String>>;

/// One run of a script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// When and how it ends; it runs on without.
    pub end: Option<End>,
    /// What it prints, and how long after its start.
    pub said: Vec<(Duration, String)>,
    /// Whether all that it did is known: it ended, or waits for nothing but time.
    pub is_known: bool,
    /// What it does when it is told to stop, as a script.
    pub trap: Option<String>,
    /// All its files as it left them.
    pub files: Files,
    /// When something of it may have changed: the ends of its pauses.
    pub pauses: Vec<Duration>,
}

/// Runs a script; its files stay for the next run. `strict` is the shell's option `-e`.
pub fn run(script: &str, strict: bool, environment: &Environment, files: &mut Files) -> Run {
    syntax::parse(script).map_or_else(Run::default, |list| run_list(&list, strict, environment, files))
}

/// Runs one command whose words are as they stand.
pub fn run_words(words: &[String], environment: &Environment, files: &mut Files) -> Run {
    let words = words.iter().map(|word| Word(vec![Piece::Text(word.clone())])).collect();
    run_list(&vec![(Joint::Then, Command::Simple { words, into: None })], false, environment, files)
}

fn run_list(list: &List, strict: bool, environment: &Environment, files: &mut Files) -> Run {
    let variables = environment.variables.clone();
    let mut shell = Shell {
        environment,
        variables,
        files,
        strict,
        steps: 0,
        draws: 0,
        after: Duration::ZERO,
        said: Vec::new(),
        is_told: true,
        is_line_open: false,
        is_waiting: false,
        trap: None,
        pauses: Vec::new(),
    };
    let code = match shell.list(list, false) {
        Flow::On(code) | Flow::Exit(code) => Some(code),
        Flow::Endless => None,
    };
    let (end, is_known) = (code.map(|code| End { after: shell.after, code }), code.is_some() || shell.is_waiting);
    let Shell { said, trap, pauses, files, .. } = shell;
    let left = files.clone();
    files.retain(|path, _| environment.volumes.iter().any(|volume| is_in(path, volume)));
    Run { end, said, is_known, trap, files: left, pauses }
}

/// The whole numbers of `seq`, but not many more than would be printed.
fn sequence(words: &[String]) -> Option<impl Iterator<Item = i64>> {
    let number = |word: &String| word.parse::<i64>().ok();
    let (first, step, last) = match words {
        [last] => (1, 1, number(last)?),
        [first, last] => (number(first)?, 1, number(last)?),
        [first, step, last] => (number(first)?, number(step).filter(|step| *step != 0)?, number(last)?),
        _ => return None,
    };
    let within = move |number: &i64| if step > 0 { *number <= last } else { *number >= last };
    Some(
        std::iter::successors(Some(first), move |number| number.checked_add(step))
            .take_while(within)
            .take(SAID_MAX + 1),
    )
}

fn is_in(path: &str, directory: &str) -> bool {
    path.strip_prefix(directory.trim_end_matches('/')).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// How a command left the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    On(i32),
    Exit(i32),
    Endless,
}

struct Shell<'a> {
    environment: &'a Environment,
    variables: BTreeMap<String, Option<String>>,
    files: &'a mut Files,
    strict: bool,
    steps: usize,
    draws: u64,
    after: Duration,
    said: Vec<(Duration, String)>,
    /// Whether all that was printed is known.
    is_told: bool,
    /// Whether the last line goes on.
    is_line_open: bool,
    /// Whether it runs on in something that is known to do nothing but wait.
    is_waiting: bool,
    trap: Option<String>,
    pauses: Vec<Duration>,
}

impl Shell<'_> {
    /// Runs commands in order. Where their failure is asked for, it ends nothing.
    fn list(&mut self, list: &List, asked: bool) -> Flow {
        let mut code = 0;
        for (index, (joint, command)) in list.iter().enumerate() {
            let runs = match joint {
                Joint::Then => true,
                Joint::And => code == 0,
                Joint::Or => code != 0,
            };
            if !runs {
                continue;
            }
            let is_asked = asked || list.get(index + 1).is_some_and(|(next, _)| *next != Joint::Then);
            match self.command(command, is_asked) {
                Flow::On(next) if next != 0 && self.strict && !is_asked => return Flow::Exit(next),
                Flow::On(next) => code = next,
                other => return other,
            }
        }
        Flow::On(code)
    }

    fn command(&mut self, command: &Command, asked: bool) -> Flow {
        self.steps += 1;
        if self.steps > STEPS_MAX {
            return self.waits();
        }
        match command {
            Command::Simple { words, into } => self.simple(words, into.as_ref()),
            Command::Group(list) => self.list(list, asked),
            Command::Not(command) => match self.command(command, true) {
                Flow::On(code) => Flow::On(i32::from(code == 0)),
                other => other,
            },
            Command::If { branches, otherwise } => {
                for (condition, body) in branches {
                    match self.list(condition, true) {
                        Flow::On(0) => return self.list(body, asked),
                        Flow::On(_) => {}
                        other => return other,
                    }
                }
                self.list(otherwise, asked)
            }
            Command::Loop { until, condition, body } => loop {
                match self.list(condition, true) {
                    Flow::On(code) if (code == 0) == *until => return Flow::On(0),
                    Flow::On(_) => {}
                    other => return other,
                }
                match self.list(body, asked) {
                    Flow::On(_) => self.steps += 1,
                    other => return other,
                }
                if self.steps > STEPS_MAX {
                    return self.waits();
                }
            },
            Command::For { name, words, body } => {
                let Some(values) = self.words(words) else { return Flow::Endless };
                let mut code = 0;
                for value in values {
                    self.variables.insert(name.clone(), Some(value));
                    match self.list(body, asked) {
                        Flow::On(next) => code = next,
                        other => return other,
                    }
                }
                Flow::On(code)
            }
        }
    }

    fn simple(&mut self, words: &[Word], into: Option<&Target>) -> Flow {
        let mut words = words;
        while let Some((name, value)) = words.first().and_then(assignment) {
            let value = self.text(&value);
            self.variables.insert(name, value);
            words = &words[1..];
        }
        let Some((program, arguments)) = words.split_first() else { return Flow::On(0) };
        let Some(program) = self.text(program) else { return Flow::Endless };
        let program = command::base(&program).to_owned();
        let values = self.words(arguments);
        let before = self.said.len();
        let was_open = self.is_line_open;
        self.is_line_open &= into.is_none();
        let flow = self.program(&program, values.as_deref());
        match (into, flow) {
            (Some(target), Flow::On(code)) => {
                let flow = self.written(target, before, code);
                self.is_line_open = was_open;
                flow
            }
            (_, flow) => flow,
        }
    }

    /// Moves what was printed since then to a file.
    fn written(&mut self, target: &Target, before: usize, code: i32) -> Flow {
        let Some(path) = self.text(&target.path) else { return Flow::Endless };
        let mut lines: String = self.said.drain(before..).map(|(_, line)| line + "\n").collect();
        if self.is_line_open {
            lines.pop();
        }
        let told = std::mem::replace(&mut self.is_told, true).then_some(lines);
        if path != "/dev/null" {
            let old = if target.append {
                self.files.remove(&path).unwrap_or_else(|| Some(String::new()))
            } else {
                Some(String::new())
            };
            let text = old.zip(told).map(|(old, new)| old + &new).filter(|text| text.len() <= TEXT_MAX);
            self.files.insert(path, text);
        }
        Flow::On(code)
    }

    /// Runs a program. Without arguments, they are not known.
    fn program(&mut self, program: &str, arguments: Option<&[String]>) -> Flow {
        match (program, arguments) {
            ("true" | ":" | "export" | "umask", _) => Flow::On(0),
            ("trap", words) => {
                self.trapped(words);
                Flow::On(0)
            }
            ("false", _) => Flow::On(1),
            ("printf", Some([text])) if !text.contains('%') => self.printed(text),
            ("echo", None) | ("date" | "uname" | "pwd" | "id" | "printf", _) => {
                self.is_told = false;
                Flow::On(0)
            }
            (_, None) => Flow::Endless,
            ("set", Some(options)) => {
                self.strict |= options.iter().any(|it| it.starts_with('-') && it.contains('e') && !it.contains('o'));
                Flow::On(0)
            }
            ("echo", Some(words)) => {
                let (words, ends) =
                    words.strip_prefix(&["-n".to_owned()]).map_or((words, true), |words| (words, false));
                self.say(words.join(" "));
                self.is_line_open = !ends;
                Flow::On(0)
            }
            ("env" | "printenv", Some([])) => {
                let lines: Vec<String> = self
                    .variables
                    .iter()
                    .filter_map(|(name, value)| Some(format!("{name}={}", value.as_ref()?)))
                    .collect();
                for line in lines {
                    self.say(line);
                }
                self.is_told = false;
                Flow::On(0)
            }
            ("hostname", Some(_)) => match self.variables.get("HOSTNAME").cloned().flatten() {
                Some(name) => self.say(name),
                None => self.program("date", None),
            },
            ("exit", Some([])) => Flow::Exit(0),
            ("exit", Some([code])) => code.parse().map_or(Flow::Endless, |code: i32| Flow::Exit(code & 0xff)),
            ("sleep", Some([time])) => match command::span(time) {
                Some(span) => self.pause(span),
                None => self.waits(),
            },
            ("tail", Some(words)) if words.iter().any(|it| it.starts_with('-') && it.to_lowercase().contains('f')) => {
                self.waits()
            }
            ("touch", Some(paths)) => {
                for path in paths {
                    self.files.entry(path.clone()).or_insert_with(|| Some(String::new()));
                }
                Flow::On(0)
            }
            ("rm", Some(paths)) => {
                for path in paths.iter().filter(|path| !path.starts_with('-')) {
                    self.files.retain(|file, _| !is_in(file, path));
                }
                Flow::On(0)
            }
            ("cat", Some([path])) => self.print(path),
            ("seq", Some(words)) => match sequence(words) {
                Some(numbers) => {
                    for number in numbers {
                        self.say(number.to_string());
                    }
                    Flow::On(0)
                }
                None => Flow::Endless,
            },
            ("expr", Some(words)) => match sum::value(&words.join(" "), &|_| None) {
                Some(value) => {
                    self.say(value.to_string());
                    Flow::On(i32::from(value == 0))
                }
                None => Flow::Endless,
            },
            ("[", Some([inside @ .., close])) if close == "]" => self.judged(inside),
            ("[[", Some([inside @ .., close])) if close == "]]" => self.judged(inside),
            ("test", Some(inside)) => self.judged(inside),
            _ => Flow::Endless,
        }
    }

    /// Runs on, and does nothing but wait.
    fn waits(&mut self) -> Flow {
        self.is_waiting = true;
        Flow::Endless
    }

    fn pause(&mut self, span: Duration) -> Flow {
        let after = self.after.saturating_add(span);
        if let Some(until) = self.environment.until.filter(|until| after > *until) {
            self.after = until;
            return self.waits();
        }
        self.after = after;
        if self.pauses.len() < PAUSES_MAX {
            self.pauses.push(after);
        }
        Flow::On(0)
    }

    /// What is done when it is told to stop.
    fn trapped(&mut self, words: Option<&[String]>) {
        let Some([action, signals @ ..]) = words else { return };
        if signals.iter().any(|it| matches!(it.as_str(), "TERM" | "SIGTERM" | "15")) {
            self.trap = (action != "-").then(|| action.clone());
        }
    }

    /// Prints a text that may have several lines, the last of them open.
    fn printed(&mut self, text: &str) -> Flow {
        let text = text.replace("\\n", "\n");
        for piece in text.split_inclusive('\n') {
            self.say(piece.trim_end_matches('\n').to_owned());
            self.is_line_open = !piece.ends_with('\n');
        }
        Flow::On(0)
    }

    fn say(&mut self, line: String) -> Flow {
        let open = std::mem::take(&mut self.is_line_open).then(|| self.said.last_mut()).flatten();
        if let Some((_, open)) = open.filter(|(_, open)| open.len() + line.len() <= TEXT_MAX) {
            open.push_str(&line);
            return Flow::On(0);
        }
        if self.said.len() < SAID_MAX && line.len() <= TEXT_MAX {
            self.said.push((self.after, line));
        } else {
            self.is_told = false;
        }
        Flow::On(0)
    }

    fn print(&mut self, path: &str) -> Flow {
        match self.files.get(path).cloned() {
            Some(Some(text)) => {
                for line in text.lines() {
                    self.say(line.to_owned());
                }
                Flow::On(0)
            }
            Some(None) => {
                self.is_told = false;
                Flow::On(0)
            }
            None if self.is_known(path) => Flow::On(1),
            None => Flow::Endless,
        }
    }

    /// Whether a file of this name would be known.
    fn is_known(&self, path: &str) -> bool {
        self.directories().any(|directory| is_in(path, directory))
    }

    fn judged(&self, words: &[String]) -> Flow {
        self.holds(words).map_or(Flow::Endless, |holds| Flow::On(i32::from(!holds)))
    }

    /// Whether a test holds; none if that can't be known.
    fn holds(&self, words: &[String]) -> Option<bool> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words.as_slice() {
            [] => Some(false),
            ["!", rest @ ..] => {
                let rest: Vec<String> = rest.iter().map(|it| (*it).to_owned()).collect();
                self.holds(&rest).map(|holds| !holds)
            }
            [text] => Some(!text.is_empty()),
            ["-n", text] => Some(!text.is_empty()),
            ["-z", text] => Some(text.is_empty()),
            ["-e" | "-f" | "-r" | "-w", path] if self.files.contains_key(*path) => Some(true),
            ["-s", path] if self.files.contains_key(*path) => self.files.get(*path)?.as_ref().map(|it| !it.is_empty()),
            ["-d" | "-e" | "-r" | "-w", path] if self.is_volume(path) => Some(true),
            ["-e" | "-f" | "-r" | "-w" | "-s" | "-d" | "-x", path] => self.is_known(path).then_some(false),
            [one, "=" | "==", other] => Some(one == other),
            [one, "!=", other] => Some(one != other),
            [one, sign, other] => {
                let (one, other): (i64, i64) = (one.parse().ok()?, other.parse().ok()?);
                match *sign {
                    "-eq" => Some(one == other),
                    "-ne" => Some(one != other),
                    "-lt" => Some(one < other),
                    "-le" => Some(one <= other),
                    "-gt" => Some(one > other),
                    "-ge" => Some(one >= other),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    fn is_volume(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        self.directories().any(|it| it.trim_end_matches('/') == path)
    }

    fn directories(&self) -> impl Iterator<Item = &str> {
        self.environment.volumes.iter().chain(&self.environment.scratch).map(String::as_str)
    }

    /// Words with their values; those of variables outside of quotes are cut at spaces.
    fn words(&mut self, words: &[Word]) -> Option<Vec<String>> {
        let mut values = Vec::new();
        for word in words {
            match word.0.as_slice() {
                [Piece::Variable { quoted: false, .. } | Piece::Output { quoted: false, .. }] => {
                    values.extend(self.text(word)?.split_whitespace().map(str::to_owned));
                }
                _ => values.push(self.text(word)?),
            }
        }
        Some(values)
    }

    /// The value of a word; none if it can't be known.
    fn text(&mut self, word: &Word) -> Option<String> {
        let mut text = String::new();
        for piece in &word.0 {
            match piece {
                Piece::Text(part) => text.push_str(part),
                Piece::Variable { name, fallback, .. } => {
                    let value = self.variable(name)?;
                    text.push_str(if value.is_empty() { fallback.as_deref().unwrap_or("") } else { &value });
                }
                Piece::Output { script, .. } => text.push_str(&self.output(script)?),
                Piece::Sum(sum) => {
                    // Variables are looked up first: drawing a number changes what the next draw gives.
                    let sum = self.text(&syntax::word(sum)?)?;
                    text.push_str(&sum::value(&sum, &|name| self.variables.get(name).cloned().flatten())?.to_string());
                }
            }
            if text.len() > TEXT_MAX {
                return None;
            }
        }
        Some(text)
    }

    /// A variable that nobody set may still be one of the image's.
    fn variable(&mut self, name: &str) -> Option<String> {
        match self.variables.get(name) {
            Some(value) => value.clone(),
            None if name == "RANDOM" => {
                self.draws += 1;
                let mixed = (self.environment.seed ^ self.draws).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                Some((mixed >> 49).to_string())
            }
            None => None,
        }
    }

    /// What a script inside of a word prints.
    fn output(&mut self, script: &str) -> Option<String> {
        let list = syntax::parse(script)?;
        let (said, is_told) = (std::mem::take(&mut self.said), std::mem::replace(&mut self.is_told, true));
        let is_line_open = std::mem::take(&mut self.is_line_open);
        let flow = self.list(&list, true);
        let lines: Vec<String> = std::mem::replace(&mut self.said, said).into_iter().map(|(_, line)| line).collect();
        self.is_line_open = is_line_open;
        let is_known = std::mem::replace(&mut self.is_told, is_told) && flow != Flow::Endless;
        is_known.then(|| lines.join("\n"))
    }
}

/// `NAME=value` before a command, or alone.
fn assignment(word: &Word) -> Option<(String, Word)> {
    let Some(Piece::Text(text)) = word.0.first() else { return None };
    let (name, rest) = text.split_once('=')?;
    let is_name = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
    let mut value = word.clone();
    value.0[0] = Piece::Text(rest.to_owned());
    is_name.then(|| (name.to_owned(), value))
}

#[cfg(test)]
mod tests;
