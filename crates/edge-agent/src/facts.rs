//! What the vehicle knows of itself.

use std::collections::BTreeMap;

use serde_json::Value;

/// What gates are judged by. What isn't known holds the gates that ask for it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// The charge in percent.
    pub battery: Option<u8>,
    /// Whether it stands.
    pub parked: Option<bool>,
    /// The version that somebody in the vehicle agreed to; `*` for any.
    pub consent: Option<Box<str>>,
    /// Whether the connection costs by the byte.
    pub metered: Option<bool>,
    /// More, for conditions in CEL: by name.
    pub more: Option<Box<BTreeMap<String, Value>>>,
}

impl Facts {
    /// Reads an object in JSON: `battery`, `parked`, `consent`, `metered`, and whatever else conditions name.
    pub fn read(text: &str) -> Result<Facts, String> {
        let mut fields: BTreeMap<String, Value> = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let mut take = |name: &str| fields.remove(name).filter(|value| !value.is_null());
        let wrong = |name: &str, what: &str| format!("{name} is no {what}");
        let flag = |name: &str, value: Option<Value>| match value {
            None => Ok(None),
            Some(value) => value.as_bool().map(Some).ok_or_else(|| wrong(name, "true or false")),
        };
        let battery = match take("battery") {
            None => None,
            Some(value) => {
                let percent = value.as_f64().filter(|percent| (0.0..=100.0).contains(percent));
                // Within 0 and 100, so nothing is lost but the fraction.
                Some(percent.ok_or_else(|| wrong("battery", "number from 0 to 100"))? as u8)
            }
        };
        let consent = match take("consent") {
            None => None,
            Some(Value::String(version)) => Some(version.into()),
            Some(Value::Bool(agreed)) => agreed.then(|| "*".into()),
            Some(_) => return Err(wrong("consent", "version")),
        };
        let parked = flag("parked", take("parked"))?;
        let metered = flag("metered", take("metered"))?;
        let more = (!fields.is_empty()).then(|| Box::new(fields));
        Ok(Facts { battery, parked, consent, metered, more })
    }

    /// Whether somebody agreed to a version.
    pub(crate) fn agrees_to(&self, version: &str) -> bool {
        self.consent.as_deref().is_some_and(|agreed| agreed == "*" || agreed == version)
    }
}
