//! The addresses of pods: unique, from the network of their node.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Mutex, PoisonError};

use super::identity::network;

/// Who has which address. What it forgets at a restart is read again from the pods, before a node gives out its first.
#[derive(Default)]
pub struct Addresses {
    /// By node, then by address: the uid of the pod.
    taken: Mutex<BTreeMap<usize, BTreeMap<u8, Box<str>>>>,
}

impl Addresses {
    /// The address of a pod on a node: the one that it has, or the lowest free one. None if all are taken. `present` are the pods
    /// that have one already.
    pub fn of(
        &self,
        node: usize,
        uid: &str,
        has: Option<Ipv4Addr>,
        present: impl FnOnce() -> Vec<(Box<str>, Ipv4Addr)>,
    ) -> Option<Ipv4Addr> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = taken
            .entry(node)
            .or_insert_with(|| present().into_iter().map(|(uid, address)| (address.octets()[3], uid)).collect());
        let base = network(node).octets();
        let whole = |last: u8| Ipv4Addr::new(base[0], base[1], base[2], last);
        if let Some(has) = has {
            taken.insert(has.octets()[3], uid.into());
            return Some(has);
        }
        if let Some((&last, _)) = taken.iter().find(|(_, owner)| &***owner == uid) {
            return Some(whole(last));
        }
        // The first is the network itself, the second its gateway, the last is for broadcasts.
        let free = (2..=254).find(|last| !taken.contains_key(last))?;
        taken.insert(free, uid.into());
        Some(whole(free))
    }

    /// Gives the address of a pod back.
    pub fn release(&self, node: usize, uid: &str) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(taken) = taken.get_mut(&node) {
            taken.retain(|_, owner| &**owner != uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_one_pod_s_until_it_is_given_back() {
        let addresses = Addresses::default();
        let of = |uid: &str, has| addresses.of(1, uid, has, Vec::new).map(|ip| ip.to_string());
        assert_eq!(of("a", None).as_deref(), Some("10.1.1.2"));
        assert_eq!(of("b", Some(Ipv4Addr::new(10, 1, 1, 3))).as_deref(), Some("10.1.1.3"));
        assert_eq!(of("c", None).as_deref(), Some("10.1.1.4"));
        assert_eq!(of("a", None).as_deref(), Some("10.1.1.2"));
        addresses.release(1, "b");
        assert_eq!(of("d", None).as_deref(), Some("10.1.1.3"));
    }

    #[test]
    fn what_pods_have_already_is_not_given_to_others() {
        let addresses = Addresses::default();
        let present = || vec![("old".into(), Ipv4Addr::new(10, 1, 1, 2)), ("older".into(), Ipv4Addr::new(10, 1, 1, 3))];
        assert_eq!(addresses.of(1, "new", None, present), Some(Ipv4Addr::new(10, 1, 1, 4)));
        let again = addresses.of(1, "old", Some(Ipv4Addr::new(10, 1, 1, 2)), Vec::new);
        assert_eq!(again, Some(Ipv4Addr::new(10, 1, 1, 2)));
    }

    #[test]
    fn a_full_network_has_no_address_left() {
        let addresses = Addresses::default();
        let given = (0..300).filter(|number| addresses.of(0, &number.to_string(), None, Vec::new).is_some()).count();
        assert_eq!(given, 253);
    }
}
