//! YAML as Kubernetes' own tools print it, to the letter: the order of keys, which strings are quoted and how, where long
//! ones are folded. People compare such files with `diff`.

mod key_order;
mod number;
mod resolve;
mod scalar;

use serde_json::{Map, Value};

use scalar::Style;

/// Columns between a collection and what is inside it.
const INDENT: usize = 2;

/// Longest key that is written in the short form; longer ones begin with `?`.
const SIMPLE_KEY_BYTES_MAX: usize = 128;

/// A value as a YAML document.
pub fn write(value: &Value) -> String {
    let mut writer = Writer::default();
    writer.node(value, None, Place::Root);
    if !writer.out.ends_with('\n') {
        writer.out.push('\n');
    }
    writer.out
}

/// Where a node stands: what was written before it decides whether it goes on in the same line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Root,
    /// Behind a `-`, `?` or `:` that began a line.
    Marked,
    /// Behind `key:`.
    Keyed,
}

#[derive(Default)]
struct Writer {
    out: String,
    /// Characters in the last line.
    column: usize,
}

impl Writer {
    fn node(&mut self, value: &Value, outer: Option<usize>, place: Place) {
        match value {
            Value::Object(map) if !map.is_empty() => self.mapping(map, outer.map_or(0, |outer| outer + INDENT), place),
            Value::Array(items) if !items.is_empty() => {
                let indent = match (outer, place) {
                    (None, _) => 0,
                    (Some(outer), Place::Keyed) => outer,
                    (Some(outer), Place::Root | Place::Marked) => outer + INDENT,
                };
                self.sequence(items, indent, place);
            }
            scalar => {
                if place != Place::Root {
                    self.put(' ');
                }
                self.leaf(scalar, outer.map_or(0, |outer| outer) + INDENT);
            }
        }
    }

    fn mapping(&mut self, map: &Map<String, Value>, indent: usize, place: Place) {
        let mut entries: Vec<(&String, &Value)> = map.iter().collect();
        entries.sort_by(|a, b| key_order::compare(a.0, b.0));
        for (at, (key, value)) in entries.into_iter().enumerate() {
            self.begin_line(indent, at == 0 && place != Place::Keyed);
            if key.len() <= SIMPLE_KEY_BYTES_MAX && !scalar::has_breaks(key) {
                self.scalar(key, scalar::key_style(key), indent, Folding::Off);
                self.put(':');
                self.node(value, Some(indent), Place::Keyed);
            } else {
                self.put_str("? ");
                self.scalar(key, scalar::style(key), indent + INDENT, Folding::On);
                self.begin_line(indent, false);
                self.put(':');
                self.node(value, Some(indent), Place::Marked);
            }
        }
    }

    fn sequence(&mut self, items: &[Value], indent: usize, place: Place) {
        for (at, item) in items.iter().enumerate() {
            self.begin_line(indent, at == 0 && place != Place::Keyed);
            self.put('-');
            self.node(item, Some(indent), Place::Marked);
        }
    }

    fn leaf(&mut self, value: &Value, indent: usize) {
        match value {
            Value::Null => self.put_str("null"),
            Value::Bool(true) => self.put_str("true"),
            Value::Bool(false) => self.put_str("false"),
            Value::Number(number) => self.put_str(&number::print(number)),
            Value::Array(_) => self.put_str("[]"),
            Value::Object(_) => self.put_str("{}"),
            Value::String(text) => self.scalar(text, scalar::style(text), indent, Folding::On),
        }
    }

    fn scalar(&mut self, text: &str, style: Style, indent: usize, folding: Folding) {
        let mut pen = scalar::Pen { writer: self, indent, folding };
        match style {
            Style::Plain => pen.plain(text),
            Style::Single => pen.single(text),
            Style::Double => pen.double(text),
            Style::Literal => pen.literal(text),
        }
    }

    /// Goes to the column `indent`, in the same line where the line has only marks so far.
    fn begin_line(&mut self, indent: usize, same_line: bool) {
        if !same_line && self.column > 0 {
            self.line_break('\n');
        }
        while self.column < indent {
            self.put(' ');
        }
    }

    fn put(&mut self, character: char) {
        self.out.push(character);
        self.column += 1;
    }

    fn put_str(&mut self, text: &str) {
        text.chars().for_each(|character| self.put(character));
    }

    fn line_break(&mut self, character: char) {
        self.out.push(character);
        self.column = 0;
    }
}

/// Whether long text may go on in the next line: keys may not.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Folding {
    On,
    Off,
}

#[cfg(test)]
mod tests;
