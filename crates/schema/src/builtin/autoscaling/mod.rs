//! Kinds of the group `autoscaling`.

use std::sync::Arc;

use crate::behaviour::Behaviour;

pub mod conversion;
pub mod horizontalpodautoscaler;
pub mod horizontalpodautoscaler_v1;
mod metrics;
mod metrics_annotation;
pub mod scale;
mod targets;

/// What the kinds of this group decide for themselves.
pub(super) fn behaviour(version: &str, plural: &str) -> Option<Arc<dyn Behaviour>> {
    Some(match (version, plural) {
        ("v1", "horizontalpodautoscalers") => Arc::new(horizontalpodautoscaler_v1::HorizontalPodAutoscalerV1),
        ("v2", "horizontalpodautoscalers") => Arc::new(horizontalpodautoscaler::HorizontalPodAutoscaler),
        _ => return None,
    })
}
