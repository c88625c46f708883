//! Whoever tests controllers hears when they run: a controller that runs again and again without a pause holds virtual time
//! still, and nothing else would tell.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use crate::Key;

/// Hears of a run: the name of the controller and the key.
pub type Listener = dyn Fn(&str, &Key) + Send + Sync;

thread_local! {
    /// By thread, because virtual time is: a paused runtime has one.
    static LISTENERS: RefCell<Vec<Weak<Listener>>> = const { RefCell::new(Vec::new()) };
}

/// Tells `listener` of every run of a controller that begins on this thread, for as long as somebody holds it.
///
/// For test kits: it is how they tell a controller that spins from one that waits. It costs others nothing.
pub fn listen_to_runs(listener: &Arc<Listener>) {
    LISTENERS.with_borrow_mut(|listeners| {
        listeners.retain(|known| known.strong_count() > 0);
        listeners.push(Arc::downgrade(listener));
    });
}

/// A run begins.
pub(super) fn tell(controller: &str, key: &Key) {
    LISTENERS.with_borrow(|listeners| {
        listeners.iter().filter_map(Weak::upgrade).for_each(|listener| listener(controller, key));
    });
}
