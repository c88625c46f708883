//! Expressions of the Common Expression Language: whether they can be understood, and what type they give.
//!
//! The grammar is that of the `cel` crate, whose complaints about syntax are those of cel-go. Types are checked as far as
//! they are known: what we can't tell is [`Type::Unknown`] and is never complained about. Evaluating is not done here.

use std::collections::BTreeMap;

use cel::parser::{ParseErrors, Parser};

mod check;
mod functions;
mod types;

pub use types::Type;

/// Longest expression, in characters. cel-go takes 100 000; nobody writes them, and every one costs stack.
pub const EXPRESSION_CHARS_MAX: usize = 16 * 1024;

/// The generated parser needs much stack per level of nesting, so it gets a stack of its own. Enough for the longest
/// chain of operators that [`EXPRESSION_CHARS_MAX`] allows; only what is used is ever touched.
const STACK_BYTES: usize = 128 * 1024 * 1024;

/// The variables that an expression sees.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    variables: BTreeMap<String, Type>,
    /// Types that may be built by name, such as `JSONPatch{...}`; `Object` stands for `Object.spec` and so on, too.
    structs: Vec<&'static str>,
}

impl Environment {
    /// Adds a variable; a dot in its name is allowed.
    pub fn declare(&mut self, name: &str, ty: Type) {
        self.variables.insert(name.to_owned(), ty);
    }

    /// Removes a variable.
    pub fn forget(&mut self, name: &str) {
        self.variables.remove(name);
    }

    /// Adds a field to a variable that is an object.
    pub fn add_field(&mut self, variable: &str, field: &str, ty: Type) {
        if let Some(Type::Object(_, fields)) = self.variables.get_mut(variable) {
            fields.push((field.to_owned(), ty));
        }
    }

    /// Lets values of this type be built by name.
    pub fn allow_struct(&mut self, name: &'static str) {
        self.structs.push(name);
    }
}

/// The type that an expression gives, or why it can't be compiled, in the words of Kubernetes.
pub fn compile(expression: &str, environment: &Environment) -> Result<Type, String> {
    let size = expression.chars().count();
    if size > EXPRESSION_CHARS_MAX {
        return Err(format!(
            "compilation failed: ERROR: <input>:-1:0: expression code point size exceeds limit: size: {size}, limit \
             {EXPRESSION_CHARS_MAX}"
        ));
    }
    let outcome = stacker::grow(STACK_BYTES, || {
        match Parser::new().enable_optional_syntax(true).parse_with_source_info(expression) {
            Ok((tree, source)) => check::check(&tree, &source, environment),
            Err(errors) => Err(complaints(errors)),
        }
    });
    outcome.map_err(|complaints| format!("compilation failed: {}", shown(expression, complaints)))
}

/// Whether an expression that compiles mentions this variable.
pub fn mentions(expression: &str, variable: &str) -> bool {
    if expression.chars().count() > EXPRESSION_CHARS_MAX {
        return false;
    }
    stacker::grow(STACK_BYTES, || {
        let tree = Parser::new().enable_optional_syntax(true).parse(expression);
        tree.is_ok_and(|tree| tree.references().has_variable(variable))
    })
}

/// Whether a text can name a variable.
pub fn is_identifier(text: &str) -> bool {
    const RESERVED: &[&str] = &[
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ];
    let first = text.bytes().next();
    first.is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && !RESERVED.contains(&text)
}

/// What is wrong at one place; both counts start at 1.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Complaint {
    line: usize,
    column: usize,
    message: String,
}

fn complaints(errors: ParseErrors) -> Vec<Complaint> {
    let place = |at: isize| usize::try_from(at).unwrap_or(0).max(1);
    errors
        .errors
        .into_iter()
        .map(|error| match error.msg.contains("Recursion limit") {
            true => Complaint { line: 1, column: 1, message: "expression recursion limit exceeded: 96".to_owned() },
            false => Complaint { line: place(error.pos.0), column: place(error.pos.1), message: error.msg },
        })
        .collect()
}

/// Complaints in the order of their places, each with its line and a pointer below.
fn shown(expression: &str, mut complaints: Vec<Complaint>) -> String {
    complaints.sort_by_key(|complaint| (complaint.line, complaint.column));
    let shown = complaints.into_iter().map(|Complaint { line, column, message }| {
        let text = expression.split('\n').nth(line - 1).unwrap_or("");
        format!("ERROR: <input>:{line}:{column}: {message}\n | {text}\n | {}^", ".".repeat(column - 1))
    });
    shown.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests;
