//! Runs on all cores: each has a world of its own.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// What `work` has to say about these, in their order.
pub(crate) fn on_all_cores<T: Sync, R: Send>(all: &[T], work: impl Fn(&T) -> Option<R> + Sync) -> Vec<R> {
    let (next, said) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(one) = all.get(number) else { return };
            if let Some(words) = work(one) {
                said.lock().unwrap_or_else(PoisonError::into_inner).push((number, words));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let mut said = said.into_inner().unwrap_or_else(PoisonError::into_inner);
    said.sort_by_key(|(number, _)| *number);
    said.into_iter().map(|(_, words)| words).collect()
}
