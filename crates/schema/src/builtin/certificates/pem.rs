//! PEM: DER in base64 between two lines (RFC 7468), found in any text as Go finds it.

use crate::base64;

const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";
const DASHES: &str = "-----";

/// One block.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// What stands after `BEGIN`.
    pub kind: String,
    /// Whether there are headers between the first line and the data.
    pub has_headers: bool,
    /// The data.
    pub der: Vec<u8>,
}

/// All blocks of a text, in order. What isn't a block is passed over.
pub(super) fn blocks(text: &[u8]) -> Vec<Block> {
    let text = String::from_utf8_lossy(text);
    let mut found = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(kind) = line.trim_end().strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix(DASHES)) else {
            continue;
        };
        // A block that doesn't end is no block, but another may begin within it.
        let mut ahead = lines.clone();
        if let Some(block) = block(kind, &mut ahead) {
            found.push(block);
            lines = ahead;
        }
    }
    found
}

fn block<'a>(kind: &str, lines: &mut impl Iterator<Item = &'a str>) -> Option<Block> {
    let (mut data, mut has_headers) = (String::new(), false);
    for line in lines.by_ref() {
        if let Some(rest) = line.strip_prefix(END) {
            let closed = rest.trim_end().strip_suffix(DASHES) == Some(kind);
            let der = base64::decode(&data).ok().filter(|_| closed)?;
            return Some(Block { kind: kind.to_owned(), has_headers, der });
        }
        if data.is_empty() && line.contains(':') {
            has_headers = true;
        } else {
            data.extend(line.split_whitespace());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[(&str, bool, &[u8])]) {
        let found = blocks(text.as_bytes());
        let found: Vec<_> = found.iter().map(|b| (b.kind.as_str(), b.has_headers, b.der.as_slice())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn blocks_are_found_in_any_text() {
        check("hello\n-----BEGIN A-----\nAQID\n-----END A-----\nworld", &[("A", false, &[1, 2, 3])]);
        check("-----BEGIN A-----\nK: v\n\nAQ\nID\n-----END A-----", &[("A", true, &[1, 2, 3])]);
        check("-----BEGIN A-----\nAQID\n-----END B-----", &[]);
        check("-----BEGIN A-----\n-----BEGIN B-----\nAQID\n-----END B-----", &[("B", false, &[1, 2, 3])]);
    }
}
