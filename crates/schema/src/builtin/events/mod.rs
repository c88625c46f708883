//! Kinds of the group `events.k8s.io`.

use std::sync::Arc;

use super::core::event::Event;
use crate::behaviour::Behaviour;

/// What the kinds of this group decide for themselves.
pub(super) fn behaviour(_version: &str, plural: &str) -> Option<Arc<dyn Behaviour>> {
    Some(match plural {
        "events" => Arc::new(Event::Events),
        _ => return None,
    })
}
