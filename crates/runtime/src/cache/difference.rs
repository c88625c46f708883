//! The events that lead from one state of a cache to another.

use std::sync::Arc;

use imbl::OrdMap;

use super::store::{Entry, Snapshot};
use super::{Cached, Event, compare_versions};
use crate::Key;

/// Whether `new` is no news: the same version, or one that came late.
pub fn is_known<K: Cached>(old: &K, new: &K) -> bool {
    old.uid() == new.uid()
        && (old.resource_version() == new.resource_version()
            || compare_versions(new.resource_version(), old.resource_version()).is_some_and(std::cmp::Ordering::is_lt))
}

/// The events for one object that is now `new`.
pub fn changes<K: Cached>(old: Option<Arc<K>>, new: Arc<K>) -> Vec<Event<K>> {
    match old {
        None => vec![Event::Added { object: new, is_in_initial_list: false }],
        // Another object of the same name: the deletion of the first was missed.
        Some(old) if old.uid() != new.uid() => vec![
            Event::Deleted { last: old, is_final_state_unknown: true },
            Event::Added { object: new, is_in_initial_list: false },
        ],
        Some(old) => vec![Event::Updated { old, new }],
    }
}

/// The events that lead from a cache to a list: deletions first, then the rest in the order of keys.
pub fn differences<K: Cached>(old: &Snapshot<K>, new: &OrdMap<Key, Entry<K>>, first: bool) -> Vec<Event<K>> {
    let gone = old.objects.iter().filter(|(key, _)| !new.contains_key(*key));
    let mut events: Vec<_> =
        gone.map(|(_, entry)| Event::Deleted { last: entry.object.clone(), is_final_state_unknown: true }).collect();
    for (key, entry) in new {
        let object = entry.object.clone();
        match old.get(key.as_str()) {
            None => events.push(Event::Added { object, is_in_initial_list: first }),
            Some(old) if old.uid() == object.uid() && old.resource_version() == object.resource_version() => {}
            Some(old) => events.extend(changes(Some(old), object)),
        }
    }
    events
}
