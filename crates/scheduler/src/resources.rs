//! Amounts of resources: what nodes have, and what pods ask for.

use std::collections::BTreeMap;

use setpoint_api::quantity::Quantity;

/// Amounts by resource. Processors count in thousandths, all others in whole units.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    pub cpu: i64,
    pub memory: i64,
    pub storage: i64,
    /// Everything else by name; few pods ask for any.
    pub others: Vec<(Box<str>, i64)>,
}

/// Amounts as objects write them.
pub type Written = BTreeMap<Box<str>, Box<str>>;

impl Resources {
    /// Reads amounts; what can't be read counts as nothing.
    pub fn read(written: &Written) -> Resources {
        let mut read = Resources::default();
        for (name, text) in written {
            let Ok(quantity) = Quantity::parse(text) else { continue };
            match &**name {
                "cpu" => read.cpu = quantity.milli_value(),
                "memory" => read.memory = quantity.value(),
                "ephemeral-storage" => read.storage = quantity.value(),
                "pods" => {}
                _ => read.others.push((name.clone(), quantity.value())),
            }
        }
        read
    }

    pub fn add(&mut self, other: &Resources) {
        self.combine(other, i64::saturating_add);
    }

    pub fn subtract(&mut self, other: &Resources) {
        self.combine(other, i64::saturating_sub);
    }

    /// The larger of both, by resource.
    pub fn raise(&mut self, other: &Resources) {
        self.combine(other, i64::max);
    }

    /// Takes over those amounts of another that are written.
    pub fn replace(&mut self, other: &Resources, written: &Written) {
        for name in written.keys() {
            match &**name {
                "cpu" => self.cpu = other.cpu,
                "memory" => self.memory = other.memory,
                "ephemeral-storage" => self.storage = other.storage,
                _ => {
                    self.others.retain(|(known, _)| known != name);
                    self.others.push((name.clone(), other.other(name)));
                }
            }
        }
    }

    /// How much there is of a resource that has no field of its own.
    pub fn other(&self, name: &str) -> i64 {
        self.others.iter().find(|(known, _)| &**known == name).map_or(0, |(_, amount)| *amount)
    }

    fn combine(&mut self, other: &Resources, by: impl Fn(i64, i64) -> i64) {
        self.cpu = by(self.cpu, other.cpu);
        self.memory = by(self.memory, other.memory);
        self.storage = by(self.storage, other.storage);
        for (name, amount) in &other.others {
            match self.others.iter_mut().find(|(known, _)| known == name) {
                Some((_, known)) => *known = by(*known, *amount),
                None => self.others.push((name.clone(), by(0, *amount))),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Resources {
        Resources::read(&pairs.iter().map(|(name, text)| ((*name).into(), (*text).into())).collect())
    }

    #[test]
    fn amounts_are_read_added_and_taken_away() {
        let mut sum = read(&[("cpu", "500m"), ("memory", "1Gi"), ("example.com/gpu", "2")]);
        sum.add(&read(&[("cpu", "1"), ("memory", "1Mi"), ("example.com/gpu", "1"), ("odd", "1")]));
        assert_eq!((sum.cpu, sum.memory, sum.other("example.com/gpu"), sum.other("odd")), (1500, 1_074_790_400, 3, 1));
        sum.subtract(&read(&[("cpu", "1500m"), ("odd", "1")]));
        assert_eq!((sum.cpu, sum.other("odd"), sum.other("none")), (0, 0, 0));
        sum.raise(&read(&[("cpu", "2"), ("memory", "1")]));
        assert_eq!((sum.cpu, sum.memory), (2000, 1_074_790_400));
        assert_eq!(read(&[("cpu", "many")]), Resources::default());
    }
}
