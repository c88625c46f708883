//! Lists with a bound, which is checked before anything in them.

use std::collections::HashSet;
use std::hash::Hash;

use setpoint_api::BadValue;

use crate::errors::Errors;
use crate::node::Node;

/// Checks each item, unless there are too many.
pub(super) fn each(
    list: &Node<'_>,
    max: usize,
    errs: &mut Errors,
    mut check: impl FnMut(&Node<'_>, &mut Errors),
) -> bool {
    let items = list.clone().into_items();
    if items.len() > max {
        errs.too_many(list, items.len(), max);
        return false;
    }
    items.for_each(|item| check(&item, errs));
    true
}

/// The same for items that must differ in their key; duplicates are told after all else.
pub(super) fn set<'a, K: Eq + Hash + Clone + Into<BadValue>>(
    list: &Node<'a>,
    max: usize,
    errs: &mut Errors,
    key: impl Fn(&Node<'a>) -> K,
    check: impl FnMut(&Node<'_>, &mut Errors),
) {
    if !each(list, max, errs, check) {
        return;
    }
    let mut seen = HashSet::new();
    for item in list.clone().into_items() {
        let own = key(&item);
        if !seen.insert(own.clone()) {
            errs.duplicate(&item, own);
        }
    }
}
