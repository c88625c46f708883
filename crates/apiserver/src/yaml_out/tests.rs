//! Values and the YAML that Kubernetes' tools print for them.

use serde_json::{Value, json};

use super::write;

fn check(value: &Value, expected: &str) {
    assert_eq!(write(value), expected);
}

fn check_text(text: &str, expected: &str) {
    assert_eq!(write(&json!({"k": text})), format!("k: {expected}\n"), "{text:?}");
}

#[test]
fn lists_stand_under_their_key_and_maps_are_indented() {
    check(
        &json!({"b": [{"x": 1, "a": [1, [2, 3], []]}], "a": {"c": {}, "d": null, "e": true}}),
        "a:\n  c: {}\n  d: null\n  e: true\nb:\n- a:\n  - 1\n  - - 2\n    - 3\n  - []\n  x: 1\n",
    );
    check(&json!([]), "[]\n");
    check(&json!("x"), "x\n");
}

#[test]
fn strings_that_would_be_read_as_something_else_are_quoted() {
    for quoted in [
        "",
        "1",
        "-1",
        "0x1f",
        "0b1",
        "017",
        "1_000",
        "1.5",
        "1e3",
        ".5",
        "true",
        "yes",
        "n",
        "null",
        "~",
        "2024-01-02",
        "2024-01-02T03:04:05Z",
        "2024-1-2 3:4:5",
        "12:30",
        "12:30:45",
        "+.inf",
        "-.INF",
        "18446744073709551615",
    ] {
        check_text(quoted, &format!("\"{quoted}\""));
    }
    for plain in
        ["abc", "1a", "018x", "v1", "1.2.3", "-x", "<<", "2024-13-01", "12:60", "nil", "1e999", "0x", "a#b", "a:b"]
    {
        check_text(plain, plain);
    }
}

#[test]
fn strings_that_look_like_syntax_stand_in_single_quotes() {
    for quoted in ["a: b", "- x", "#x", "a #b", "*x", "&x", "!x", "@x", "%x", "{x", "[x", "---", " x", "x ", "x:", "?"]
    {
        check_text(quoted, &format!("'{quoted}'"));
    }
    check_text("'x", "'''x'");
    check_text("tab\there", "\"tab\\there\"");
    check_text("\u{1f600}", "\"\\U0001F600\"");
    check_text("é", "é");
}

#[test]
fn several_lines_are_a_literal_block() {
    check_text("x\ny\n", "|\n  x\n  y");
    check_text("x\ny", "|-\n  x\n  y");
    check_text("x\n\n", "|+\n  x\n");
    check_text(" x\ny\n", "|2\n   x\n  y");
    check_text("x \ny", "\"x \\ny\"");
}

#[test]
fn long_strings_are_folded_behind_the_eightieth_column() {
    let words = "word ".repeat(30);
    let words = words.trim_end();
    let written = write(&json!({"k": words, "l": format!("a: {words}")}));
    let lines: Vec<&str> = written.lines().collect();
    assert!(lines.len() == 4 && lines.iter().all(|line| line.len() < 90), "{written}");
    assert!(lines[1].starts_with("  word") && lines[2].starts_with("l: 'a: word"), "{written}");
}

#[test]
fn keys_are_ordered_with_their_numbers_by_value() {
    check(
        &json!({"a10": 1, "a2": 1, "b": 1, "_": 1, "B": 1, "a": 1, "n": 1}),
        "_: 1\nB: 1\na: 1\na2: 1\na10: 1\nb: 1\n\"n\": 1\n",
    );
}

#[test]
fn numbers_are_printed_as_go_does() {
    check(&json!([1.5, -3, 1e30, 0.00001]), "- 1.5\n- -3\n- 1e+30\n- 1e-05\n");
}

#[test]
fn keys_too_long_for_the_short_form_have_their_own_mark() {
    let key = "k".repeat(129);
    check(&json!({ (&*key): {"a": [1]} }), &format!("? {key}\n: a:\n  - 1\n"));
}
