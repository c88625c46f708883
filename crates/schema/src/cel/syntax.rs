//! What is wrong with expressions, in cel-go's words.

use cel::parser::Parser;

use super::Complaint;
use super::parse::{DEPTH_MAX, Refusal};

/// The generated parser needs much stack per level of nesting, so it gets a stack of its own. Enough for the longest
/// chain of operators that an expression may have; only what is used is ever touched.
const STACK_BYTES: usize = 128 * 1024 * 1024;

/// Why an expression could not be read.
pub(super) fn words(expression: &str, refusal: Refusal) -> String {
    match refusal {
        Refusal::Depth => format!("ERROR: <input>:-1:0: expression recursion limit exceeded: {DEPTH_MAX}"),
        Refusal::Macro(offset, message) => shown(expression, vec![Complaint { offset, message }]),
        Refusal::Syntax => {
            let found = stacker::grow(STACK_BYTES, || complaints(expression));
            match found.is_empty() {
                true => shown(expression, vec![Complaint { offset: 0, message: "Syntax error".to_owned() }]),
                false => placed(expression, found),
            }
        }
    }
}

/// Complaints in the order of their places, each with its line and a pointer below.
pub(super) fn shown(expression: &str, complaints: Vec<Complaint>) -> String {
    let places = complaints.into_iter().map(|complaint| {
        let before = expression.get(..complaint.offset).unwrap_or(expression);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        (line, column, complaint.message)
    });
    placed(expression, places.collect())
}

fn placed(expression: &str, mut complaints: Vec<(usize, usize, String)>) -> String {
    complaints.sort_by_key(|(line, column, _)| (*line, *column));
    let shown = complaints.into_iter().map(|(line, column, message)| {
        let text = expression.split('\n').nth(line - 1).unwrap_or("").replace('\t', " ");
        let pointer = pointer(&text, column - 1);
        format!("ERROR: <input>:{line}:{column}: {message}\n | {text}\n | {pointer}")
    });
    shown.collect::<Vec<_>>().join("\n")
}

/// What points at a column from below. What is no ASCII counts as wide, and so is what stands below it.
fn pointer(text: &str, column: usize) -> String {
    let mut letters = text.chars();
    let before = letters.by_ref().take(column).map(|letter| if letter.is_ascii() { '.' } else { '．' });
    let mut pointer: String = before.collect();
    pointer.push(if letters.next().is_none_or(|letter| letter.is_ascii()) { '^' } else { '＾' });
    pointer
}

/// What may stand between two operands, as the generated parser names it.
const OPERATORS: [&str; 17] = [
    "'=='", "'!='", "'in'", "'<'", "'<='", "'>='", "'>'", "'&&'", "'||'", "'['", "'.'", "'-'", "'?'", "'+'", "'*'",
    "'/'", "'%'",
];

/// Go's parser has left the operand when it finds that something doesn't fit, so it misses only what would end the whole.
fn as_in_go(message: &str) -> String {
    let parts = message.split_once(" expecting {").and_then(|(found, rest)| Some((found, rest.strip_suffix('}')?)));
    let Some((found, expected)) = parts.filter(|(_, expected)| expected.contains("'=='")) else {
        return message.to_owned();
    };
    let ends: Vec<&str> = expected.split(", ").filter(|token| !OPERATORS.contains(token)).collect();
    match &ends[..] {
        [] => message.to_owned(),
        [end] => format!("{found} expecting {end}"),
        ends => format!("{found} expecting {{{}}}", ends.join(", ")),
    }
}

/// Line, column (both from 1) and message of all that the generated parser complains about.
fn complaints(expression: &str) -> Vec<(usize, usize, String)> {
    let place = |at: isize| usize::try_from(at).unwrap_or(0).max(1);
    match Parser::new().enable_optional_syntax(true).parse(expression) {
        Ok(_) => Vec::new(),
        Err(errors) => errors
            .errors
            .into_iter()
            // A complaint of this parser alone, about what it could not finish for another reason.
            .filter(|error| !error.msg.starts_with("Incomplete `"))
            .map(|error| match error.msg.contains("Recursion limit") {
                true => (1, 1, format!("expression recursion limit exceeded: {DEPTH_MAX}")),
                false => (place(error.pos.0), place(error.pos.1), as_in_go(&error.msg)),
            })
            .collect(),
    }
}
