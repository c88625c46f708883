//! What a command would do if it were run: those that plainly end, end.

use std::time::Duration;

use super::environment::expanded;
use super::shell::{self, Environment, Files, Run};

/// How a command ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    pub after: Duration,
    pub code: i32,
}

/// What a container with this command and these arguments would do in one run. Its files stay for the next.
pub fn run(command: &[Box<str>], arguments: &[Box<str>], environment: &Environment, files: &mut Files) -> Run {
    let words: Vec<String> =
        command.iter().chain(arguments).map(|word| expanded(word, &environment.variables)).collect();
    match words.as_slice() {
        [] => Run::default(),
        [shell, options, script, ..] if is_shell(shell) && is_script_option(options) => {
            shell::run(script, options.contains('e'), environment, files)
        }
        words => shell::run_words(words, environment, files),
    }
}

fn is_shell(program: &str) -> bool {
    matches!(base(program), "sh" | "bash" | "ash" | "dash")
}

/// `-c`, also together with others: `-ec`, `-exc`.
fn is_script_option(option: &str) -> bool {
    option.strip_prefix('-').is_some_and(|letters| letters.ends_with('c') && !letters.starts_with('-'))
}

pub fn base(program: &str) -> &str {
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
        let found = run(&words, &[], &Environment::default(), &mut Files::new()).end;
        let found = found.map(|end| (end.after.as_secs_f64(), end.code));
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
        check(&["sh", "-c", "sleep 5 || true"], Some((5.0, 0)));
        check(&["sh", "-c", "echo 'a; b & c'; exit 2"], Some((0.0, 2)));
    }

    #[test]
    fn what_is_printed_is_plain_to_see_or_left_out() {
        let check = |words: &[&str], expected: &[(u64, &str)]| {
            let words: Vec<Box<str>> = words.iter().map(|word| (*word).into()).collect();
            let found = run(&words, &[], &Environment::default(), &mut Files::new()).said;
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
    }
}
