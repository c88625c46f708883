//! What a command would do if it were run: those that plainly end, end.

use std::time::Duration;

/// How a command ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    pub after: Duration,
    pub code: i32,
}

/// Commands that do something quick and succeed.
const QUICK: [&str; 10] = ["true", ":", "echo", "printf", "date", "hostname", "uname", "env", "pwd", "id"];

/// When and how a command ends; none if nothing says that it does.
pub fn end_of(words: &[Box<str>]) -> Option<End> {
    let words: Vec<&str> = words.iter().map(|word| &**word).collect();
    match words.as_slice() {
        [shell, options, script, ..] if is_shell(shell) && is_script_option(options) => end_of_script(script),
        words => end_of_words(words),
    }
}

/// What a command prints, and how long after its start, as far as that is plain to see.
pub fn said(words: &[Box<str>]) -> Vec<(Duration, String)> {
    let words: Vec<&str> = words.iter().map(|word| &**word).collect();
    let commands: Vec<Vec<String>> = match words.as_slice() {
        [shell, options, script, ..] if is_shell(shell) && is_script_option(options) => {
            simple_commands(script).unwrap_or_default().iter().map(|command| shell_words(command)).collect()
        }
        words => vec![words.iter().map(|word| (*word).to_owned()).collect()],
    };
    let (mut lines, mut after) = (Vec::new(), Duration::ZERO);
    for command in commands.iter().filter(|command| !command.is_empty()).take(SAID_MAX) {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["exit", ..] => break,
            [program, rest @ ..] if base(program) == "echo" => {
                let text = rest.join(" ");
                if !text.contains(['$', '`', '>', '<']) {
                    lines.push((after, text));
                }
            }
            words => match end_of_words(words) {
                Some(end) => after = after.saturating_add(end.after),
                None => break,
            },
        }
    }
    lines
}

/// Most commands of a script that are looked at for what they print.
const SAID_MAX: usize = 1_000;

/// Words with their quotes taken away.
fn shell_words(command: &str) -> Vec<String> {
    let (mut words, mut current, mut quote) = (Vec::new(), None::<String>, None);
    for letter in command.chars() {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (None, '"' | '\'') => {
                quote = Some(letter);
                current.get_or_insert_default();
            }
            (None, _) if letter.is_whitespace() => words.extend(current.take()),
            _ => current.get_or_insert_default().push(letter),
        }
    }
    words.extend(current);
    words
}

fn is_shell(program: &str) -> bool {
    matches!(base(program), "sh" | "bash" | "ash" | "dash")
}

/// `-c`, also together with others: `-ec`, `-exc`.
fn is_script_option(option: &str) -> bool {
    option.strip_prefix('-').is_some_and(|letters| letters.ends_with('c') && !letters.starts_with('-'))
}

/// A list of simple commands, one after another. Anything more is taken to run on.
fn end_of_script(script: &str) -> Option<End> {
    let mut end = End { after: Duration::ZERO, code: 0 };
    for command in simple_commands(script)? {
        let words: Vec<&str> = command.split_whitespace().collect();
        match words.as_slice() {
            [] => {}
            ["exit", code] => return Some(End { code: code.parse().ok()?, ..end }),
            ["exit"] => return Some(end),
            words => {
                let next = end_of_words(words)?;
                end = End { after: end.after.saturating_add(next.after), code: next.code };
            }
        }
    }
    Some(end)
}

/// The commands between line ends, `;` and `&&`, outside of quotes; none if there are pipes or commands in the background.
fn simple_commands(script: &str) -> Option<Vec<String>> {
    let (mut commands, mut quote) = (vec![String::new()], None);
    let mut letters = script.chars().peekable();
    while let Some(letter) = letters.next() {
        let current = commands.last_mut()?;
        match (quote, letter) {
            (Some(open), _) => {
                current.push(letter);
                quote = (letter != open).then_some(open);
            }
            (None, '"' | '\'') => {
                current.push(letter);
                quote = Some(letter);
            }
            (None, '&') if letters.next_if_eq(&'&').is_none() => return None,
            (None, '\n' | ';' | '&') => commands.push(String::new()),
            (None, '|') => return None,
            (None, _) => current.push(letter),
        }
    }
    Some(commands)
}

fn end_of_words(words: &[&str]) -> Option<End> {
    let (program, arguments) = words.split_first()?;
    match (base(program), arguments) {
        ("false", _) => Some(End { after: Duration::ZERO, code: 1 }),
        ("exit", [code]) => Some(End { after: Duration::ZERO, code: code.trim_matches(['"', '\'']).parse().ok()? }),
        ("sleep", [time]) => Some(End { after: span(time)?, code: 0 }),
        (quick, _) if QUICK.contains(&quick) => Some(End { after: Duration::ZERO, code: 0 }),
        _ => None,
    }
}

fn base(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// A time as `sleep` and our annotations take it: seconds, or a number with `ms`, `s`, `m`, `h` or `d`.
pub fn span(text: &str) -> Option<Duration> {
    let text = text.trim().trim_matches(['"', '\'']);
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let number: f64 = digits.parse().ok()?;
    let seconds = match &text[digits.len()..] {
        "" | "s" => number,
        "ms" => number / 1000.0,
        "m" => number * 60.0,
        "h" => number * 3600.0,
        "d" => number * 86_400.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(words: &[&str], expected: Option<(f64, i32)>) {
        let words: Vec<Box<str>> = words.iter().map(|word| (*word).into()).collect();
        let found = end_of(&words).map(|end| (end.after.as_secs_f64(), end.code));
        assert_eq!(found, expected, "{words:?}");
    }

    #[test]
    fn commands_that_plainly_end_do() {
        check(&["true"], Some((0.0, 0)));
        check(&["/bin/false"], Some((0.0, 1)));
        check(&["sleep", "30"], Some((30.0, 0)));
        check(&["sleep", "1.5m"], Some((90.0, 0)));
        check(&["sh", "-c", "exit 3"], Some((0.0, 3)));
        check(&["/bin/sh", "-c", "sleep 5; exit 42"], Some((5.0, 42)));
        check(&["sh", "-c", "echo hello && sleep 2\nfalse"], Some((2.0, 1)));
        check(&["bash", "-ec", "echo \"$(date)\" done; sleep 1"], Some((1.0, 0)));
        check(&["echo", "hello", "world"], Some((0.0, 0)));
        check(&["sh", "-c", "echo $HOSTNAME > /tmp/a; exit 1"], Some((0.0, 1)));
        check(&["exit", "7"], Some((0.0, 7)));
        check(&["sh", "-c", "echo 'a; b & c'; exit 2"], Some((0.0, 2)));
    }

    #[test]
    fn what_is_printed_is_plain_to_see_or_left_out() {
        let check = |words: &[&str], expected: &[(u64, &str)]| {
            let words: Vec<Box<str>> = words.iter().map(|word| (*word).into()).collect();
            let found = said(&words);
            let found: Vec<(u64, &str)> = found.iter().map(|(after, text)| (after.as_secs(), &**text)).collect();
            assert_eq!(found, expected, "{words:?}");
        };
        check(&["echo", "hello", "world"], &[(0, "hello world")]);
        check(&["sh", "-c", "echo one; sleep 3; echo \"two  three\" 'four'"], &[(0, "one"), (3, "two  three four")]);
        check(&["sh", "-c", "echo $HOSTNAME > /tmp/a; echo b; exit 1; echo c"], &[(0, "b")]);
        check(&["sh", "-c", "echo a; ./server; echo b"], &[(0, "a")]);
        check(&["nginx"], &[]);
    }

    #[test]
    fn all_others_run_on() {
        check(&[], None);
        check(&["nginx"], None);
        check(&["sleep", "infinity"], None);
        check(&["sleep"], None);
        check(&["sh", "-c", "while true; do sleep 1; done"], None);
        check(&["sh", "-c", "tail -f /dev/null"], None);
        check(&["sh"], None);
        check(&["sh", "-c", "./server & sleep 5"], None);
        check(&["sh", "-c", "echo a | nc -l 80"], None);
        check(&["sh", "-c", "sleep 5 || true"], None);
    }
}
