//! An array that thousands of operations may change: none of them costs more than a bounded move of memory.

use imbl::Vector;

/// Length from which an array is a tree. Shorter ones are cheap to shift (at most this many items per operation), and
/// a tree would waste memory on them: a document may hold a hundred thousand arrays of one item.
const LONG: usize = 1024;

/// An array, flat while it is short.
#[derive(Debug, Clone)]
pub(super) enum Items<T: Clone> {
    /// Inserting shifts what follows.
    Short(Vec<T>),
    /// Inserting splits and joins, in logarithmic time.
    Long(Vector<T>),
}

impl<T: Clone> Items<T> {
    /// How many items.
    pub fn len(&self) -> usize {
        match self {
            Items::Short(items) => items.len(),
            Items::Long(items) => items.len(),
        }
    }

    /// The item at `index`.
    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        match self {
            Items::Short(items) => items.get_mut(index),
            Items::Long(items) => items.get_mut(index),
        }
    }

    /// All items in order.
    pub fn iter(&self) -> Box<dyn Iterator<Item = &T> + '_> {
        match self {
            Items::Short(items) => Box::new(items.iter()),
            Items::Long(items) => Box::new(items.iter()),
        }
    }

    /// Puts an item before the one at `index`, which is at most the length.
    pub fn insert(&mut self, index: usize, item: T) {
        if let Items::Short(items) = self
            && items.len() >= LONG
        {
            *self = Items::Long(std::mem::take(items).into());
        }
        match self {
            Items::Short(items) => items.insert(index, item),
            Items::Long(items) => items.insert(index, item),
        }
    }

    /// Takes the item at `index`, which is under the length.
    pub fn remove(&mut self, index: usize) -> T {
        match self {
            Items::Short(items) => items.remove(index),
            Items::Long(items) => items.remove(index),
        }
    }
}

impl<T: Clone> FromIterator<T> for Items<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let items: Vec<T> = items.into_iter().collect();
        if items.len() < LONG { Items::Short(items) } else { Items::Long(items.into()) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn both_forms_behave_like_a_vector(length in 0..2 * LONG, changes in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 0..64)) {
            let mut model: Vec<usize> = (0..length).collect();
            let mut items: Items<usize> = model.iter().copied().collect();
            for (insert, at) in changes {
                if insert {
                    let at = at.index(model.len() + 1);
                    model.insert(at, at);
                    items.insert(at, at);
                } else if !model.is_empty() {
                    let at = at.index(model.len());
                    prop_assert_eq!(items.remove(at), model.remove(at));
                }
            }
            prop_assert_eq!(items.len(), model.len());
            prop_assert_eq!(items.iter().copied().collect::<Vec<_>>(), model);
        }
    }
}
