//! Lines on their way to where they are kept: a bounded queue, and the task that empties it.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use setpoint_api::metrics::Counter;
use tokio::sync::Notify;

/// Most bytes that wait. It takes a disk that stands still to get there: lines are gathered and written many at a time, faster
/// than requests can make them.
const WAITING_BYTES_MAX: usize = 64 * 1024 * 1024;

/// From here on what waits is written at once.
const BATCH_BYTES: usize = 64 * 1024;

/// How long lines are gathered if there are few: a write for each would cost more than the request that it tells of.
const GATHER: Duration = Duration::from_millis(50);

/// A log that requests append to. Clones are the same log.
#[derive(Clone, Default)]
pub struct Log(Arc<Shared>);

#[derive(Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    /// Rung when there is something to write, and when the log is closed.
    some: Notify,
    /// Rung when there is so much that it should be written now.
    much: Notify,
    events: Counter,
    lost: Counter,
}

#[derive(Default)]
struct Waiting {
    lines: Vec<u8>,
    is_closed: bool,
    /// Whether the last line was lost, so that a disk that stands still leaves one line in the server's log.
    is_full: bool,
}

impl Log {
    /// Adds a line, which ends with its line feed.
    pub(super) fn append(&self, line: &[u8]) {
        self.0.events.add(1);
        let mut waiting = self.waiting();
        let before = waiting.lines.len();
        if before + line.len() > WAITING_BYTES_MAX {
            self.0.lost.add(1);
            if !std::mem::replace(&mut waiting.is_full, true) {
                tracing::error!("the audit log can't keep up: events are lost until it does");
            }
            return;
        }
        waiting.is_full = false;
        waiting.lines.extend_from_slice(line);
        let after = waiting.lines.len();
        drop(waiting);
        if before == 0 {
            self.0.some.notify_one();
        }
        if before < BATCH_BYTES && after >= BATCH_BYTES {
            self.0.much.notify_one();
        }
    }

    /// Writes lines as they come, until the log is closed and everything is written. Run once for each log.
    pub async fn write_to(self, output: impl Write + Send + 'static) {
        let mut output = Box::new(output);
        loop {
            self.0.some.notified().await;
            if !self.is_closed() {
                // Either way there is something to write now.
                let _ = tokio::time::timeout(GATHER, self.0.much.notified()).await;
            }
            let (lines, is_closed) = self.take();
            let count = u64::try_from(lines.iter().filter(|byte| **byte == b'\n').count()).unwrap_or(u64::MAX);
            let written = tokio::task::spawn_blocking(move || {
                let result = output.write_all(&lines).and_then(|()| output.flush());
                (output, result)
            });
            match written.await {
                Ok((back, result)) => {
                    output = back;
                    self.tell(result, count);
                }
                Err(error) => return tracing::error!(%error, "the audit log has ended"),
            }
            if is_closed {
                return;
            }
        }
    }

    /// Has what waits written, and then no more.
    pub fn close(&self) {
        self.waiting().is_closed = true;
        self.0.some.notify_one();
        self.0.much.notify_one();
    }

    pub(super) fn events(&self) -> u64 {
        self.0.events.value()
    }

    pub(super) fn lost(&self) -> u64 {
        self.0.lost.value()
    }

    fn tell(&self, result: io::Result<()>, count: u64) {
        if let Err(error) = result {
            self.0.lost.add(count);
            tracing::error!(%error, events = count, "audit events are lost: they can't be written");
        }
    }

    fn take(&self) -> (Vec<u8>, bool) {
        let mut waiting = self.waiting();
        (std::mem::take(&mut waiting.lines), waiting.is_closed)
    }

    fn is_closed(&self) -> bool {
        self.waiting().is_closed
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What waits to be written.
    #[cfg(test)]
    pub(super) fn drain(&self) -> Vec<u8> {
        self.take().0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_log_that_is_closed_has_written_everything() {
        let (log, kept) = (Log::default(), Kept::default());
        let writing = tokio::spawn(log.clone().write_to(kept.clone()));
        for line in 0..1000 {
            log.append(format!("{line}\n").as_bytes());
            tokio::task::yield_now().await;
        }
        log.close();
        writing.await.unwrap();
        let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 1000);
        assert!(text.ends_with("999\n"), "{text}");
        assert_eq!((log.events(), log.lost()), (1000, 0));
    }

    #[test]
    fn over_the_bound_events_are_lost_and_counted() {
        let log = Log::default();
        let line = vec![b'\n'; WAITING_BYTES_MAX / 2];
        (0..3).for_each(|_| log.append(&line));
        assert_eq!((log.events(), log.lost()), (3, 1));
        assert_eq!(log.drain().len(), WAITING_BYTES_MAX);
    }

    #[tokio::test]
    async fn what_cannot_be_written_is_counted() {
        struct Broken;
        impl Write for Broken {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let log = Log::default();
        log.append(b"a\nb\n");
        log.close();
        log.clone().write_to(Broken).await;
        assert_eq!(log.lost(), 2);
    }
}
