//! Lines with placeholders, compared with what a command printed.

use std::net::IpAddr;

/// Whether all of `said` is what `expected` describes.
pub fn matches(expected: &[String], said: &[String]) -> bool {
    all_match(expected, said, line_matches)
}

/// The same for a page, which shows what was really seen: words that differ from run to run only have to be alike.
pub fn matches_seen(expected: &[String], said: &[String]) -> bool {
    all_match(expected, said, |pattern, line| line_matches(pattern, line) || alike(pattern, line))
}

fn all_match(expected: &[String], said: &[String], same: fn(&str, &str) -> bool) -> bool {
    match expected.split_first() {
        None => said.is_empty(),
        Some((line, rest)) if line == "..." => (0..=said.len()).any(|skipped| all_match(rest, &said[skipped..], same)),
        Some((line, rest)) => {
            said.split_first().is_some_and(|(first, more)| same(line, first) && all_match(rest, more, same))
        }
    }
}

/// How many lines are the same from the top on: where a reader should look first.
pub fn common_lines(expected: &[String], said: &[String]) -> usize {
    let differs = |(pattern, line): (&String, &String)| pattern != "..." && !line_matches(pattern, line);
    let stop = expected.iter().zip(said).position(differs);
    stop.unwrap_or(expected.len().min(said.len()))
}

/// An age stands for any age, and a generated name for any of its owner.
fn alike(seen: &str, line: &str) -> bool {
    let words = |text: &str| {
        text.split([' ', '(', ')', ',', '"'])
            .map(|word| word.trim_end_matches(':').to_owned())
            .filter(|word| !word.is_empty())
            .collect::<Vec<_>>()
    };
    let (seen, line) = (words(seen), words(line));
    let same = |(a, b): (&String, &String)| {
        let generated = || match (a.rsplit_once('-'), b.rsplit_once('-')) {
            (Some((a, x)), Some((b, y))) => a == b && suffix(x) && suffix(y),
            _ => false,
        };
        a == b || [age, uid, time, ip].iter().any(|form| form(a) && form(b)) || generated()
    };
    seen.len() == line.len() && seen.iter().zip(&line).all(same)
}

/// Compares one line; a run of two or more spaces inside it is one gap between columns, whatever its width.
fn line_matches(pattern: &str, line: &str) -> bool {
    let Some(next) = pattern.chars().next() else { return line.is_empty() };
    if let Some((form, rest)) = placeholder(pattern) {
        return ends(line).any(|end| form(&line[..end]) && line_matches(rest, &line[end..]));
    }
    if pattern.starts_with("  ") {
        let (gap, width) = (spaces(pattern), spaces(line));
        return width >= 2 && line_matches(&pattern[gap..], &line[width..]);
    }
    line.strip_prefix(next).is_some_and(|rest| line_matches(&pattern[next.len_utf8()..], rest))
}

/// A printed line with what differs from run to run replaced by placeholders, for an update of a transcript.
pub fn generalize(line: &str) -> String {
    let mut general = String::new();
    for word in line.split_inclusive([' ', '"', '\t', ',']) {
        let bare = word.trim_end_matches([' ', '"', '\t', ',']);
        let version = general.contains("resourceVersion") && number(bare);
        // A quantity such as 200m in JSON looks like an age, but is quoted.
        let aged = !general.ends_with('"') && age(bare);
        let forms = [("<age>", aged), ("<uid>", uid(bare)), ("<time>", time(bare)), ("<number>", version)];
        let name = forms.iter().find(|(_, fits)| *fits).map_or(bare, |(name, _)| name);
        general.push_str(name);
        general.push_str(&word[bare.len()..]);
    }
    general
}

fn ends(line: &str) -> impl Iterator<Item = usize> {
    line.char_indices().map(|(index, _)| index).chain([line.len()])
}

fn spaces(text: &str) -> usize {
    text.len() - text.trim_start_matches(' ').len()
}

type Form = fn(&str) -> bool;

/// The placeholder that `pattern` begins with, and what follows it.
fn placeholder(pattern: &str) -> Option<(Form, &str)> {
    const FORMS: [(&str, Form); 7] = [
        ("<age>", age),
        ("<uid>", uid),
        ("<time>", time),
        ("<ip>", ip),
        ("<number>", number),
        ("<suffix>", suffix),
        ("<any>", |_| true),
    ];
    FORMS.iter().find_map(|&(name, form)| Some((form, pattern.strip_prefix(name)?)))
}

/// `0s`, `4m10s`, `3d`.
fn age(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_digit())
        && text.ends_with(['s', 'm', 'h', 'd', 'y'])
        && text.chars().all(|letter| letter.is_ascii_digit() || "smhdy".contains(letter))
}

fn uid(text: &str) -> bool {
    let lengths = text.split('-').map(str::len);
    lengths.eq([8, 4, 4, 4, 12]) && text.chars().all(|letter| letter == '-' || letter.is_ascii_hexdigit())
}

/// A moment as the API writes it, with or without fractions of a second.
fn time(text: &str) -> bool {
    text.len() >= 20
        && text.ends_with('Z')
        && text.as_bytes()[10] == b'T'
        && text[..10].split('-').map(str::len).eq([4, 2, 2])
}

fn ip(text: &str) -> bool {
    text.parse::<IpAddr>().is_ok()
}

fn number(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|letter| letter.is_ascii_digit())
}

/// What a server adds to a generated name.
fn suffix(text: &str) -> bool {
    text.len() >= 5 && text.chars().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit())
}
