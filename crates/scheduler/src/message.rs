//! Why a pod is not scheduled, in the words that users know.

use std::collections::BTreeMap;

use crate::fit::Reason;

/// `0/5 nodes are available: 3 Insufficient cpu, 2 node(s) had untolerated taint(s).`
pub fn unschedulable(nodes: usize, reasons: &BTreeMap<Reason, usize>) -> String {
    if nodes == 0 {
        return "no nodes available to schedule pods".to_owned();
    }
    let mut told: Vec<String> = reasons.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    told.sort();
    match told.is_empty() {
        true => format!("0/{nodes} nodes are available:"),
        false => format!("0/{nodes} nodes are available: {}.", told.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_counted_and_sorted() {
        let reasons = [(Reason::Insufficient("cpu".into()), 3), (Reason::Taints, 2)].into();
        let told = unschedulable(5, &reasons);
        assert_eq!(told, "0/5 nodes are available: 2 node(s) had untolerated taint(s), 3 Insufficient cpu.");
        assert_eq!(unschedulable(0, &BTreeMap::new()), "no nodes available to schedule pods");
    }
}
