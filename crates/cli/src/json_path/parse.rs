//! Reads templates.

use serde_json::{Number, Value};

use super::{Filter, Part, Slice, Step};

/// How deep ranges and filters may stand in each other.
const DEPTH_MAX: usize = 32;

pub(super) fn template(text: &str) -> Result<Vec<Part>, String> {
    let mut open: Vec<(Vec<Step>, Vec<Part>)> = vec![(Vec::new(), Vec::new())];
    let mut rest = text;
    while let Some(start) = rest.find('{') {
        if start > 0 {
            last(&mut open).push(Part::Text(rest[..start].to_owned()));
        }
        let mut action = Action { rest: &rest[start + 1..], steps: Vec::new(), word: None, depth: 0 };
        action.read(Some('}'))?;
        rest = action.rest;
        match action.word.as_deref() {
            None => last(&mut open).push(Part::Steps(action.steps)),
            Some("range") if open.len() > DEPTH_MAX => return Err("too many ranges in each other".into()),
            Some("range") => open.push((action.steps, Vec::new())),
            Some("end") => {
                let (steps, parts) = open.pop().filter(|_| !open.is_empty()).ok_or("not in range, nothing to end")?;
                last(&mut open).push(Part::Range(steps, parts));
            }
            Some(word) => return Err(format!("unrecognized identifier {word}")),
        }
    }
    if !rest.is_empty() {
        last(&mut open).push(Part::Text(rest.to_owned()));
    }
    // A range that nobody ended goes to the end.
    while open.len() > 1 {
        if let Some((steps, parts)) = open.pop() {
            last(&mut open).push(Part::Range(steps, parts));
        }
    }
    Ok(open.pop().map(|(_, parts)| parts).unwrap_or_default())
}

fn last(open: &mut [(Vec<Step>, Vec<Part>)]) -> &mut Vec<Part> {
    &mut open.last_mut().expect("the outermost is never closed").1
}

/// What stands between braces, or an operand of a filter.
struct Action<'a> {
    rest: &'a str,
    steps: Vec<Step>,
    word: Option<String>,
    depth: usize,
}

impl Action<'_> {
    fn read(&mut self, end: Option<char>) -> Result<(), String> {
        loop {
            let Some(letter) = self.rest.chars().next() else {
                return if end.is_none() { Ok(()) } else { Err("unclosed action".into()) };
            };
            if Some(letter) == end {
                self.rest = &self.rest[1..];
                return Ok(());
            }
            if let Some(rest) = self.rest.strip_prefix("[?(") {
                self.filter(rest)?;
                continue;
            }
            if let Some(rest) = self.rest.strip_prefix("..") {
                if self.steps.last() == Some(&Step::Everything) {
                    return Err("invalid multiple recursive descent".into());
                }
                self.steps.push(Step::Everything);
                self.rest = rest;
                if rest.starts_with(|next: char| next == '_' || next.is_alphanumeric()) {
                    self.field();
                }
                continue;
            }
            match letter {
                '\n' | '\r' => return Err("unclosed action".into()),
                ' ' | '@' | '$' => self.rest = &self.rest[1..],
                '[' => self.array()?,
                '"' | '\'' => self.quoted(letter)?,
                '.' => {
                    self.rest = &self.rest[1..];
                    self.field();
                }
                '+' | '-' | '0'..='9' => self.number()?,
                letter if letter == '_' || letter.is_alphanumeric() => self.identifier(),
                letter => {
                    return Err(format!("unrecognized character in action: U+{:04X} '{letter}'", u32::from(letter)));
                }
            }
        }
    }

    /// The text up to a letter that ends a word, and what it means with its backslashes undone.
    fn field(&mut self) {
        let (mut name, mut end) = (String::new(), self.rest.len());
        let mut letters = self.rest.char_indices();
        while let Some((at, letter)) = letters.next() {
            match letter {
                '\\' => name.extend(letters.next().map(|(_, next)| next)),
                letter if ends_word(letter) => {
                    end = at;
                    break;
                }
                letter => name.push(letter),
            }
        }
        self.rest = &self.rest[end..];
        self.steps.push(if name == "*" { Step::All } else { Step::Field(name) });
    }

    fn identifier(&mut self) {
        let end = self.rest.find(ends_word).unwrap_or(self.rest.len());
        match &self.rest[..end] {
            "true" => self.steps.push(Step::Literal(true.into())),
            "false" => self.steps.push(Step::Literal(false.into())),
            word => self.word = Some(word.to_owned()),
        }
        self.rest = &self.rest[end..];
    }

    fn number(&mut self) -> Result<(), String> {
        let digits = |letter: char| !letter.is_ascii_digit() && letter != '.';
        let end = self.rest[1..].find(digits).map_or(self.rest.len(), |end| end + 1);
        let text = &self.rest[..end];
        let whole = text.parse::<i64>().ok().map(Number::from);
        let number = whole.or_else(|| Number::from_f64(text.parse().ok()?));
        self.steps.push(Step::Literal(Value::Number(number.ok_or_else(|| format!("cannot parse number {text}"))?)));
        self.rest = &self.rest[end..];
        Ok(())
    }

    fn quoted(&mut self, quote: char) -> Result<(), String> {
        let mut text = String::new();
        let mut letters = self.rest.char_indices().skip(1);
        while let Some((at, letter)) = letters.next() {
            match letter {
                '\n' => break,
                '\\' => match letters.next().map(|(_, next)| next) {
                    Some('n') => text.push('\n'),
                    Some('t') => text.push('\t'),
                    Some('r') => text.push('\r'),
                    Some(next @ ('\\' | '"' | '\'')) => text.push(next),
                    Some(next) => {
                        return Err(format!("unquote string {quote}{text}\\{next} error invalid syntax"));
                    }
                    None => break,
                },
                letter if letter == quote => {
                    self.rest = &self.rest[at + 1..];
                    self.steps.push(Step::Text(text));
                    return Ok(());
                }
                letter => text.push(letter),
            }
        }
        Err("unterminated quoted string".into())
    }

    fn array(&mut self) -> Result<(), String> {
        let end = self.rest.find([']', '\n']).filter(|end| self.rest[*end..].starts_with(']'));
        let end = end.ok_or("unterminated array")?;
        let text = &self.rest[1..end];
        self.rest = &self.rest[end + 1..];
        let items: Vec<&str> = text.split(',').map(str::trim).collect();
        let mut steps = items.iter().map(|item| subscript(item));
        match items.len() {
            1 => self.steps.extend(steps.next().transpose()?.unwrap_or_default()),
            _ => self.steps.push(Step::Union(steps.collect::<Result<_, _>>()?)),
        }
        Ok(())
    }

    fn filter(&mut self, rest: &str) -> Result<(), String> {
        if self.depth >= DEPTH_MAX {
            return Err("too many filters in each other".into());
        }
        let end = closing(rest).ok_or("unterminated filter")?;
        let text = &rest[..end];
        let after = &rest[end + 1..];
        let skipped = self.rest.len() - rest.len() + end + 1;
        if !after.starts_with(']') {
            return Err("unclosed array expect ]".into());
        }
        let operand = |text: &str| {
            let mut action = Action { rest: text, steps: Vec::new(), word: None, depth: self.depth + 1 };
            action.read(None)?;
            match action.word {
                Some(word) => Err(format!("unrecognized identifier {word}")),
                None => Ok(action.steps),
            }
        };
        let signs = |letter: char| "!<>=".contains(letter);
        let filter = match text.find(signs).filter(|at| *at > 0) {
            None => Filter { left: operand(text)?, test: None },
            Some(at) => {
                let length = text[at..].find(|letter: char| !signs(letter)).unwrap_or(text.len() - at);
                let (sign, right) = (&text[at..at + length], &text[at + length..]);
                if !["==", "!=", "<", ">", "<=", ">="].contains(&sign) {
                    return Err(format!("unrecognized filter operator {sign}"));
                }
                Filter { left: operand(&text[..at])?, test: Some((sign.to_owned(), operand(right)?)) }
            }
        };
        self.steps.push(Step::Filter(Box::new(filter)));
        self.rest = &self.rest[skipped + 1..];
        Ok(())
    }
}

fn ends_word(letter: char) -> bool {
    matches!(letter, ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}')
}

/// Where the parenthesis of a filter is closed, outside of quotes.
fn closing(text: &str) -> Option<usize> {
    let mut quote = None;
    for (at, letter) in text.char_indices() {
        match (quote, letter) {
            (_, '\n') => return None,
            (Some(open), letter) if letter == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(letter),
            (None, ')') => return Some(at),
            (None, _) => {}
        }
    }
    None
}

/// What one item between brackets means.
fn subscript(text: &str) -> Result<Vec<Step>, String> {
    let invalid = || format!("invalid array index {text}");
    if text == "*" {
        return Ok(vec![Step::Slice(Slice { from: None, to: None, step: None, single: false })]);
    }
    if let Some(key) = text.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')) {
        let mut action = Action { rest: key, steps: Vec::new(), word: None, depth: 0 };
        action.field();
        action.read(None)?;
        return Ok(action.steps);
    }
    let parts: Vec<&str> = text.split(':').collect();
    if text.is_empty() || parts.len() > 3 {
        return Err(invalid());
    }
    let bound = |at: usize| match parts.get(at) {
        None | Some(&"") => Ok(None),
        Some(digits) => digits.parse::<i64>().map(Some).map_err(|_| invalid()),
    };
    let slice = Slice { from: bound(0)?, to: bound(1)?, step: bound(2)?, single: parts.len() == 1 };
    Ok(vec![Step::Slice(slice)])
}
