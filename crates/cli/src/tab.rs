//! Columns of text: each as wide as its widest cell, with three spaces between them, as kubectl sets them.

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
                *width = (*width).max(cell.chars().count() + PADDING);
            }
        }
        let mut text = String::new();
        for row in self.rows.drain(..) {
            let last = row.len().saturating_sub(1);
            for (column, cell) in row.iter().enumerate() {
                text.push_str(cell);
                if column < last {
                    let missing = self.widths[column].saturating_sub(cell.chars().count());
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

#[cfg(test)]
mod tests {
    use super::*;

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
