//! Columns of text: each as wide as its widest cell, with three spaces between them, as kubectl sets them.

use std::fmt::Write;

/// Spaces after the widest cell of a column.
const PADDING: usize = 3;

/// A column is at least this wide.
const WIDTH_MIN: usize = 6;

/// Rows that wait to be set, and how wide columns have been.
#[derive(Debug, Default)]
pub struct Tabs {
    rows: Vec<Vec<String>>,
    widths: Vec<usize>,
}

impl Tabs {
    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// Sets the rows that wait. Columns never get narrower, so that what follows stands below what came before.
    pub fn flush(&mut self) -> String {
        for row in &self.rows {
            let inner = row.len().saturating_sub(1);
            self.widths.resize(self.widths.len().max(inner), WIDTH_MIN);
            for (width, cell) in self.widths.iter_mut().zip(&row[..inner]) {
                *width = (*width).max(shown(cell) + PADDING);
            }
        }
        let mut text = String::new();
        for row in self.rows.drain(..) {
            let last = row.len().saturating_sub(1);
            for (column, cell) in row.iter().enumerate() {
                text.push_str(cell);
                if column < last {
                    let missing = self.widths[column].saturating_sub(shown(cell));
                    text.extend(std::iter::repeat_n(' ', missing));
                }
            }
            text.push('\n');
        }
        text
    }

    /// Forgets how wide columns were: another table begins.
    pub fn reset(&mut self) {
        self.widths.clear();
    }
}

/// How many letters of a cell are seen: colours take no room.
fn shown(cell: &str) -> usize {
    cell.split('\x1b').enumerate().map(|(at, part)| after_colour(at, part).chars().count()).sum()
}

/// What is left of the text after the sign that begins a colour, which ends with `m`.
fn after_colour(at: usize, part: &str) -> &str {
    if at == 0 { part } else { part.split_once('m').map_or("", |(_, rest)| rest) }
}

/// Lines that are not wider than a terminal: what is cut off is told by `…`.
pub fn fitted(text: &str, width: usize) -> String {
    let mut fitted = String::new();
    for line in text.lines() {
        match line.char_indices().nth(width) {
            Some(_) if !line.contains('\x1b') => {
                let kept: String = line.chars().take(width.saturating_sub(1)).collect();
                writeln!(fitted, "{}…", kept.trim_end()).expect("a string takes any text");
            }
            _ => writeln!(fitted, "{line}").expect("a string takes any text"),
        }
    }
    fitted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_take_no_room() {
        let mut tabs = Tabs::default();
        tabs.row(["OBJECT", "HEALTH", "AGE"]);
        tabs.row(["a", "\x1b[32mwell\x1b[0m", "5s"]);
        assert_eq!(tabs.flush(), "OBJECT   HEALTH   AGE\na        \x1b[32mwell\x1b[0m     5s\n");
    }

    #[test]
    fn a_line_that_is_too_wide_is_cut_and_says_so() {
        let table = "NAME   IMAGE\nweb    nginx:1.27\na      b\n";
        assert_eq!(fitted(table, 12), "NAME   IMAGE\nweb    ngin…\na      b\n");
        assert_eq!(fitted(table, 200), table);
        assert_eq!(fitted("a      bc\n", 5), "a…\n");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut tabs = Tabs::default();
        tabs.row(["NAME", "AGE"]);
        tabs.row(["a-long-name", "5s"]);
        assert_eq!(tabs.flush(), "NAME          AGE\na-long-name   5s\n");
        tabs.row(["b", "6s"]);
        assert_eq!(tabs.flush(), "b             6s\n");
        tabs.reset();
        tabs.row(["é", "x", "y"]);
        assert_eq!(tabs.flush(), "é     x     y\n");
    }
}
