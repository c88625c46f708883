//! Reads a part of an object's JSON and passes over the rest, which is many times quicker than to read it.

use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// What is read of a value.
pub trait Part: Copy {
    /// What is read of a member of an object; `None` leaves it out.
    fn of_member(self, name: &str) -> Option<Self>;

    /// Whether objects are read here; those that are not are `null`.
    fn has_objects(self) -> bool {
        true
    }

    /// Whether lists are read here; those that are not are `null`.
    fn has_lists(self) -> bool {
        true
    }
}

/// A part of what JSON says.
pub fn read(json: &[u8], part: impl Part) -> serde_json::Result<Value> {
    Reading(part).deserialize(&mut serde_json::Deserializer::from_slice(json))
}

#[derive(Clone, Copy)]
struct Reading<P>(P);

impl<'de, P: Part> DeserializeSeed<'de> for Reading<P> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, P: Part> Visitor<'de> for Reading<P> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        if !self.0.has_objects() {
            while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(Value::Null);
        }
        let mut read = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            match self.0.of_member(&name) {
                Some(part) => {
                    read.insert(name, members.next_value_seed(Reading(part))?);
                }
                None => {
                    members.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(Value::Object(read))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        if !self.0.has_lists() {
            while items.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(Value::Null);
        }
        let mut read = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            read.push(item);
        }
        Ok(Value::Array(read))
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }
}
