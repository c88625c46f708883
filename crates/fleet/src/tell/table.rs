//! Columns of text, as wide as they have to be.

/// Between two columns.
const GAP: &str = "   ";

/// Rows under a head, each with as many cells.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let widths: Vec<usize> = (0..head.len())
        .map(|at| rows.iter().map(|row| row[at].chars().count()).chain([head[at].len()]).max().unwrap_or_default())
        .collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded: Vec<String> =
            cells.zip(&widths).map(|(cell, width)| format!("{cell:<width$}", width = *width)).collect();
        format!("{}\n", padded.join(GAP).trim_end())
    };
    let mut text = line(&mut head.iter().copied());
    rows.iter().for_each(|row| text.push_str(&line(&mut row.iter().map(String::as_str))));
    text
}
