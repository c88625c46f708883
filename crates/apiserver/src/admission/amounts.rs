//! Amounts of resources by name, as limits, quotas and containers state them.

use std::collections::BTreeMap;

use serde_json::Value;
use setpoint_api::Quantity;
use setpoint_api::quantity::Format;

/// Amounts by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Amounts(BTreeMap<String, Quantity>);

impl Amounts {
    /// Reads a field of an object; what can't be read counts as not there.
    pub(super) fn read(field: &Value) -> Amounts {
        let fields = field.as_object().into_iter().flatten();
        let read = fields.filter_map(|(name, text)| Some((name.clone(), Quantity::parse(text.as_str()?).ok()?)));
        Amounts(read.collect())
    }

    pub(super) fn get(&self, name: &str) -> Option<&Quantity> {
        self.0.get(name)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub(super) fn set(&mut self, name: impl Into<String>, amount: Quantity) {
        self.0.insert(name.into(), amount);
    }

    /// Adds so many.
    pub(super) fn count(&mut self, name: &str, many: usize) {
        self.add(name, &Quantity::new(i64::try_from(many).unwrap_or(i64::MAX), Format::DecimalSi));
    }

    pub(super) fn add(&mut self, name: &str, amount: &Quantity) {
        match self.0.get_mut(name) {
            Some(mine) => mine.add(amount),
            None => self.set(name, amount.clone()),
        }
    }

    /// Adds all of another.
    pub(super) fn extend(&mut self, other: &Amounts) {
        other.iter().for_each(|(name, amount)| self.add(name, amount));
    }

    /// Takes the larger of each amount.
    pub(super) fn at_least(&mut self, other: &Amounts) {
        for (name, amount) in other.iter() {
            if self.get(name).is_none_or(|mine| mine < amount) {
                self.set(name, amount.clone());
            }
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Quantity)> {
        self.0.iter().map(|(name, amount)| (name.as_str(), amount))
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those for which this holds.
    pub(super) fn filtered(&self, mut holds: impl FnMut(&str, &Quantity) -> bool) -> Amounts {
        let kept = self.0.iter().filter(|(name, amount)| holds(name, amount));
        Amounts(kept.map(|(name, amount)| (name.clone(), amount.clone())).collect())
    }

    /// The form in objects.
    pub(super) fn to_value(&self) -> Value {
        self.iter().map(|(name, amount)| (name.to_owned(), Value::from(amount.to_string()))).collect()
    }

    /// `cpu=1,memory=2Gi`: the form in messages.
    pub(super) fn listed(&self) -> String {
        let parts: Vec<String> = self.iter().map(|(name, amount)| format!("{name}={amount}")).collect();
        parts.join(",")
    }
}
