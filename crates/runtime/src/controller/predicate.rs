//! Which changes wake a controller.

use std::sync::Arc;

use crate::cache::Cached;

type Judge<K> = Arc<dyn Fn(Option<&K>, &K) -> bool + Send + Sync>;

/// Judges whether an object that appeared or changed is of interest.
///
/// Deletions are never judged, nor is the change that begins one, nor a resync: swallowing them would leave things
/// behind. So a predicate can't, not even under [`not`](Self::not).
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use setpoint_runtime::controller::Predicate;
///
/// let placed = Predicate::<Pod>::matching(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()));
/// let of_interest = placed.and(Predicate::generation_changed().or(Predicate::labels_changed()));
/// # let _ = of_interest;
/// ```
pub struct Predicate<K> {
    judge: Judge<K>,
}

impl<K> Clone for Predicate<K> {
    fn clone(&self) -> Self {
        Self { judge: self.judge.clone() }
    }
}

impl<K: Cached> Predicate<K> {
    /// Judges by a function of the state before, if there was one, and the state now.
    pub fn new(judge: impl Fn(Option<&K>, &K) -> bool + Send + Sync + 'static) -> Self {
        Self { judge: Arc::new(judge) }
    }

    /// Objects that fulfil a condition, or did before the change.
    pub fn matching(condition: impl Fn(&K) -> bool + Send + Sync + 'static) -> Self {
        Self::new(move |old, new| condition(new) || old.is_some_and(&condition))
    }

    /// Changes of the desired state. Objects that have no generation always pass.
    #[must_use]
    pub fn generation_changed() -> Self {
        Self::changed(|old, new| old.generation().is_none() || old.generation() != new.generation())
    }

    /// Changes of labels.
    #[must_use]
    pub fn labels_changed() -> Self {
        Self::changed(|old, new| !old.same_labels(new))
    }

    /// Changes of annotations.
    #[must_use]
    pub fn annotations_changed() -> Self {
        Self::changed(|old, new| !old.same_annotations(new))
    }

    /// What both let through.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self::new(move |old, new| (self.judge)(old, new) && (other.judge)(old, new))
    }

    /// What at least one lets through.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self::new(move |old, new| (self.judge)(old, new) || (other.judge)(old, new))
    }

    /// What this does not let through.
    #[expect(clippy::should_implement_trait, reason = "reads with `and` and `or`")]
    #[must_use]
    pub fn not(self) -> Self {
        Self::new(move |old, new| !(self.judge)(old, new))
    }

    pub(super) fn passes(&self, old: Option<&K>, new: &K) -> bool {
        let deletion_begins = new.is_deleting() && old.is_none_or(|old| !old.is_deleting());
        deletion_begins || (self.judge)(old, new)
    }

    fn changed(judge: impl Fn(&K, &K) -> bool + Send + Sync + 'static) -> Self {
        Self::new(move |old, new| old.is_none_or(|old| judge(old, new)))
    }
}
