//! What a terminal may get: no control characters of strangers, colour only where it is wanted, progress on long work.

use std::io::{IsTerminal, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::tab::fitted;

/// Work that takes longer than this shows that it goes on.
const QUIET: Duration = Duration::from_millis(300);

/// How often the sign of life moves.
const TICK: Duration = Duration::from_millis(120);

/// Text from a server, such that it can't give orders to a terminal. What is piped keeps all but what kubectl takes out.
pub fn escape(text: &str) -> String {
    clean(text, std::io::stdout().is_terminal())
}

fn clean(text: &str, strictly: bool) -> String {
    let mut clean = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\x1b' => clean.push_str("^["),
            '\r' => clean.push_str("\\r"),
            letter if strictly && (letter.is_control() && !matches!(letter, '\n' | '\t') || turns_text(letter)) => {
                clean.extend(letter.escape_unicode());
            }
            letter => clean.push(letter),
        }
    }
    clean
}

/// Marks that change the direction of the text around them, so that it reads as something else than it is.
fn turns_text(letter: char) -> bool {
    matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// When colours are used.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Colour {
    /// On a terminal that wants them.
    #[default]
    Auto,
    /// In any case.
    Always,
    /// In none.
    Never,
}

/// What the command line says of colours.
static COLOUR: OnceLock<Colour> = OnceLock::new();

/// Says when colours are used, once.
pub fn choose(colour: Colour) {
    let _ = COLOUR.set(colour);
}

/// Whether colours may be used on standard output.
pub fn is_coloured() -> bool {
    let variable = |name: &str| std::env::var_os(name);
    match COLOUR.get().copied().unwrap_or_default() {
        Colour::Always => true,
        Colour::Never => false,
        Colour::Auto => {
            std::io::stdout().is_terminal()
                && variable("NO_COLOR").is_none()
                && variable("TERM").is_none_or(|term| term != "dumb")
        }
    }
}

/// A table as standard output takes it: not wider than a terminal, and whole for everything else.
pub fn fitting(table: String) -> String {
    let size = rustix::termios::tcgetwinsize(std::io::stdout());
    match size.map(|size| usize::from(size.ws_col)) {
        // A terminal that doesn't know its width says 0.
        Ok(width @ 1..) => fitted(&table, width),
        _ => table,
    }
}

/// Text in a colour of the terminal, where colours may be used.
pub fn coloured(text: &str, colour: u8) -> String {
    if is_coloured() { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.to_owned() }
}

/// Waits for work; on a terminal there is a sign of life on standard error if it takes long.
pub async fn with_progress<T>(what: &str, work: impl Future<Output = T>) -> T {
    let _sign = SignOfLife::begin(what);
    work.await
}

/// A line that moves while work goes on. It has a thread of its own: work on a disk may hold up all others.
/// What goes on within other work that is shown already needs no line of its own.
struct SignOfLife {
    /// Dropped to end it.
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Whether there is one: two would write over each other.
static IS_SHOWN: AtomicBool = AtomicBool::new(false);

impl SignOfLife {
    fn begin(what: &str) -> Option<SignOfLife> {
        if !std::io::stderr().is_terminal() {
            return None;
        }
        if IS_SHOWN.swap(true, Ordering::AcqRel) {
            return None;
        }
        let (end, ended) = channel();
        let what = what.to_owned();
        let thread = std::thread::Builder::new().name("progress".to_owned()).spawn(move || show(&what, &ended));
        Some(SignOfLife { end: Some(end), thread: thread.ok() })
    }
}

impl Drop for SignOfLife {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // Its line is wiped once it has ended, so that nothing is printed into it.
            let _ = thread.join();
        }
        IS_SHOWN.store(false, Ordering::Release);
    }
}

/// Moves until it is told to end, and leaves no trace.
fn show(what: &str, ended: &Receiver<()>) {
    let begin = Instant::now();
    if ended.recv_timeout(QUIET) != Err(RecvTimeoutError::Timeout) {
        return;
    }
    for sign in ['-', '\\', '|', '/'].into_iter().cycle() {
        let line = format!("\r\x1b[K{sign} {what} ({} s)", begin.elapsed().as_secs());
        let _ = std::io::stderr().write_all(line.as_bytes());
        if ended.recv_timeout(TICK) != Err(RecvTimeoutError::Timeout) {
            break;
        }
    }
    let _ = std::io::stderr().write_all(b"\r\x1b[K");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_can_not_give_orders_to_a_terminal() {
        assert_eq!(clean("a\x1b[2Jb\rc\x07", true), "a^[[2Jb\\rc\\u{7}");
        assert_eq!(clean("a\x1b[2Jb\rc\x07\n", false), "a^[[2Jb\\rc\x07\n");
    }

    #[test]
    fn a_name_can_not_turn_the_text_around_it() {
        assert_eq!(clean("a\u{202e}nimda\u{2069}\u{200f}", true), "a\\u{202e}nimda\\u{2069}\\u{200f}");
        assert_eq!(clean("a\u{202e}b", false), "a\u{202e}b", "what is piped stays as it is");
        assert_eq!(clean("שלום", true), "שלום", "letters of any script do");
    }
}
