//! Wakes those who wait for something new, all at once.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// Rung when there is something new.
///
/// A place keeps the last waker of its listener, so that one who waits again after each ring costs no registration and no
/// allocation: with a thousand watchers that is most of the work of waking them.
#[derive(Default)]
pub(crate) struct Bell(Mutex<Places>);

#[derive(Default)]
struct Places {
    wakers: Vec<Option<Waker>>,
    free: Vec<usize>,
}

impl Bell {
    /// A place to listen from, given back when it is dropped.
    pub(crate) fn listener(self: &Arc<Bell>) -> Listener {
        let mut places = self.places();
        let place = places.free.pop().unwrap_or_else(|| {
            places.wakers.push(None);
            places.wakers.len() - 1
        });
        drop(places);
        Listener { bell: Arc::clone(self), place }
    }

    /// Wakes everyone who has listened since the last ring.
    pub(crate) fn ring(&self) {
        let woken: Vec<Waker> = self.places().wakers.iter_mut().filter_map(Option::take).collect();
        woken.into_iter().for_each(Waker::wake);
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One who listens to a [`Bell`].
pub(crate) struct Listener {
    bell: Arc<Bell>,
    place: usize,
}

impl Listener {
    /// Asks to be woken by the next ring. Whoever may have missed one looks for news after this.
    pub(crate) fn listen(&self, waker: &Waker) {
        let mut places = self.bell.places();
        match &mut places.wakers[self.place] {
            Some(kept) => kept.clone_from(waker),
            empty => *empty = Some(waker.clone()),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut places = self.bell.places();
        let waker = places.wakers[self.place].take();
        places.free.push(self.place);
        drop(places);
        // Outside of the lock: dropping the last waker of a task may run code of that task.
        drop(waker);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_ring_wakes_each_listener_once() {
        let (bell, woken) = (Arc::new(Bell::default()), Arc::new(Count::default()));
        let waker = Waker::from(Arc::clone(&woken));
        let (one, other) = (bell.listener(), bell.listener());
        one.listen(&waker);
        one.listen(&waker);
        other.listen(&waker);
        bell.ring();
        bell.ring();
        assert_eq!(woken.0.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn places_are_given_back() {
        let bell = Arc::new(Bell::default());
        for _ in 0..10 {
            let listener = bell.listener();
            listener.listen(Waker::noop());
        }
        assert_eq!(bell.places().wakers.len(), 1);
        assert!(bell.places().wakers[0].is_none());
    }
}
