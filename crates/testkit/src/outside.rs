//! What is outside of the cluster in one run: the machines of a cloud, the rooms of a house.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// One thing of each type. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Outside(Arc<Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>>);

impl Outside {
    /// The one of this type, made if there is none yet.
    pub(crate) fn get<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = all.entry(TypeId::of::<T>()).or_insert_with(|| Arc::new(T::default()));
        Arc::clone(found).downcast().expect("what is kept under a type is of that type")
    }
}
