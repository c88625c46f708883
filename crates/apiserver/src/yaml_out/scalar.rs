//! How one string is written: plain, quoted, or as a literal block.

use super::{Folding, INDENT, Writer, resolve};

/// Lines longer than this are folded at the next space.
const WIDTH: usize = 80;

/// The ways to write a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Single,
    Double,
    Literal,
}

/// The way for a value.
pub(super) fn style(text: &str) -> Style {
    let analysis = Analysis::of(text);
    if text.contains('\n') {
        return if analysis.block { Style::Literal } else { Style::Double };
    }
    if !resolve::is_string(text) {
        return Style::Double;
    }
    analysis.unbroken()
}

/// The way for a key in the short form. It has no line breaks.
pub(super) fn key_style(text: &str) -> Style {
    if resolve::is_string(text) { Analysis::of(text).unbroken() } else { Style::Double }
}

/// Whether YAML would see more than one line.
pub(super) fn has_breaks(text: &str) -> bool {
    text.contains(is_break)
}

fn is_break(character: char) -> bool {
    matches!(character, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

fn is_printable(character: char) -> bool {
    matches!(character, '\n' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}')
}

/// Which ways a string allows.
struct Analysis {
    plain: bool,
    single: bool,
    block: bool,
}

impl Analysis {
    fn of(text: &str) -> Analysis {
        let characters: Vec<char> = text.chars().collect();
        let (Some(first), Some(last)) = (characters.first(), characters.last()) else {
            return Analysis { plain: true, single: true, block: false };
        };
        let pair = |is_first: fn(char) -> bool, is_second: fn(char) -> bool| {
            characters.windows(2).any(|pair| is_first(pair[0]) && is_second(pair[1]))
        };
        let space: fn(char) -> bool = |character| character == ' ';
        let break_space = pair(is_break, space);
        let unwritable = pair(space, is_break) || !characters.iter().all(|character| is_printable(*character));
        let at_edge = |character: &char| *character == ' ' || is_break(*character);
        let broken = characters.iter().any(|character| is_break(*character));
        Analysis {
            plain: !(at_edge(first)
                || at_edge(last)
                || break_space
                || unwritable
                || broken
                || has_indicator(&characters)),
            single: !(break_space || unwritable),
            block: *last != ' ' && !unwritable,
        }
    }

    fn unbroken(&self) -> Style {
        match (self.plain, self.single) {
            (true, _) => Style::Plain,
            (false, true) => Style::Single,
            (false, false) => Style::Double,
        }
    }
}

/// Whether a plain string would begin something else: a list, a comment, a key.
fn has_indicator(characters: &[char]) -> bool {
    if matches!(characters, ['-', '-', '-', ..] | ['.', '.', '.', ..]) {
        return true;
    }
    let blank_at = |at: usize| characters.get(at).is_none_or(|character| matches!(character, ' ' | '\t'));
    let leading = match characters[0] {
        '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`' => true,
        '?' | ':' | '-' => blank_at(1),
        _ => false,
    };
    let inner = (1..characters.len()).any(|at| match characters[at] {
        ':' => blank_at(at + 1),
        '#' => matches!(characters[at - 1], ' ' | '\t' | '\0') || is_break(characters[at - 1]),
        _ => false,
    });
    leading || inner
}

/// Writes one string, going on at `indent` in further lines.
pub(super) struct Pen<'a> {
    pub(super) writer: &'a mut Writer,
    pub(super) indent: usize,
    pub(super) folding: Folding,
}

impl Pen<'_> {
    pub(super) fn plain(&mut self, text: &str) {
        self.folded(text, |pen, character| pen.writer.put(character), |_, _| true);
    }

    pub(super) fn single(&mut self, text: &str) {
        self.writer.put('\'');
        let put = |pen: &mut Self, character| {
            if character == '\'' {
                pen.writer.put('\'');
            }
            pen.writer.put(character);
        };
        self.folded(text, put, |at, length| at > 0 && at < length - 1);
        self.writer.put('\'');
    }

    /// Text without line breaks that is folded at single spaces. `inside` says whether a place is not at an edge.
    fn folded(&mut self, text: &str, put: impl Fn(&mut Self, char), inside: impl Fn(usize, usize) -> bool) {
        let mut after_space = false;
        let mut after_break = false;
        for (at, character) in text.char_indices() {
            if is_break(character) {
                if !after_break && character == '\n' {
                    self.writer.line_break('\n');
                }
                self.writer.line_break(character);
                after_break = true;
                continue;
            }
            if character == ' ' {
                let alone = !after_space && !text[at + 1..].starts_with(' ');
                if self.is_full() && alone && inside(at, text.len()) {
                    self.writer.begin_line(self.indent, false);
                } else {
                    self.writer.put(' ');
                }
                after_space = true;
                continue;
            }
            if after_break {
                self.writer.begin_line(self.indent, false);
            }
            put(self, character);
            (after_space, after_break) = (false, false);
        }
    }

    pub(super) fn double(&mut self, text: &str) {
        self.writer.put('"');
        let mut after_space = false;
        // Behind a byte order mark go-yaml escapes everything.
        let escapes_all = text.starts_with('\u{feff}');
        for (at, character) in text.char_indices() {
            if escapes_all || !is_printable(character) || is_break(character) || matches!(character, '"' | '\\') {
                self.writer.put_str(&escape(character));
                after_space = false;
            } else if character == ' ' {
                if self.is_full() && !after_space && at > 0 && at < text.len() - 1 {
                    self.writer.begin_line(self.indent, false);
                    if text[at + 1..].starts_with(' ') {
                        self.writer.put('\\');
                    }
                } else {
                    self.writer.put(' ');
                }
                after_space = true;
            } else {
                self.writer.put(character);
                after_space = false;
            }
        }
        self.writer.put('"');
    }

    pub(super) fn literal(&mut self, text: &str) {
        self.writer.put('|');
        if text.starts_with([' ', '\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']) {
            self.writer.put_str(&INDENT.to_string());
        }
        let mut from_end = text.chars().rev();
        match (from_end.next().is_some_and(is_break), from_end.next().is_none_or(is_break)) {
            (false, _) => self.writer.put('-'),
            (true, true) => self.writer.put('+'),
            (true, false) => {}
        }
        self.writer.line_break('\n');
        for character in text.chars() {
            if is_break(character) {
                self.writer.line_break(character);
            } else {
                self.writer.begin_line(if self.writer.column == 0 { self.indent } else { 0 }, true);
                self.writer.put(character);
            }
        }
    }

    fn is_full(&self) -> bool {
        self.folding == Folding::On && self.writer.column > WIDTH
    }
}

fn escape(character: char) -> String {
    let short = match character {
        '\0' => '0',
        '\u{7}' => 'a',
        '\u{8}' => 'b',
        '\t' => 't',
        '\n' => 'n',
        '\u{b}' => 'v',
        '\u{c}' => 'f',
        '\r' => 'r',
        '\u{1b}' => 'e',
        '"' => '"',
        '\\' => '\\',
        '\u{85}' => 'N',
        '\u{a0}' => '_',
        '\u{2028}' => 'L',
        '\u{2029}' => 'P',
        other => {
            return match u32::from(other) {
                code @ ..=0xff => format!("\\x{code:02X}"),
                code @ ..=0xffff => format!("\\u{code:04X}"),
                code => format!("\\U{code:08X}"),
            };
        }
    };
    format!("\\{short}")
}
