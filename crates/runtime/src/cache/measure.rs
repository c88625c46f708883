//! How much memory a decoded object takes, counted while it is decoded: only what the type keeps counts.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, EnumAccess, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// A decoded value and an estimate of the bytes that it takes, itself included.
///
/// Text counts by its length, lists and maps by the size of their elements. Fields that the type passes over don't
/// count. The slack of growing containers isn't known, so real use is some percent more.
pub struct Measured<T> {
    pub value: T,
    pub bytes: usize,
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Measured<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let count = Cell::new(size_of::<T>());
        let value = T::deserialize(Counting { inner: deserializer, count: &count, keeps_elements: false })?;
        Ok(Self { value, bytes: count.get() })
    }
}

/// Stands before a deserializer, a visitor, a seed or an access, and counts what passes.
struct Counting<'c, T> {
    inner: T,
    count: &'c Cell<usize>,
    /// Whether what is visited are elements of a list or map, which have their own memory, or fields of a struct.
    keeps_elements: bool,
}

impl<'c, T> Counting<'c, T> {
    fn around<U>(&self, inner: U) -> Counting<'c, U> {
        Counting { inner, count: self.count, keeps_elements: self.keeps_elements }
    }

    fn add(&self, bytes: usize) {
        self.count.set(self.count.get() + bytes);
    }

    fn add_text(&self, length: usize) {
        self.add(length.next_multiple_of(8));
    }
}

macro_rules! forward {
    ($($method:ident($($name:ident: $type:ty),*) elements $elements:literal;)*) => {
        $(fn $method<V: Visitor<'de>>(self, $($name: $type,)* visitor: V) -> Result<V::Value, D::Error> {
            let visitor = Counting { inner: visitor, count: self.count, keeps_elements: $elements };
            self.inner.$method($($name,)* visitor)
        })*
    };
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Counting<'_, D> {
    type Error = D::Error;

    forward! {
        deserialize_any() elements true;
        deserialize_bool() elements false;
        deserialize_i8() elements false;
        deserialize_i16() elements false;
        deserialize_i32() elements false;
        deserialize_i64() elements false;
        deserialize_u8() elements false;
        deserialize_u16() elements false;
        deserialize_u32() elements false;
        deserialize_u64() elements false;
        deserialize_f32() elements false;
        deserialize_f64() elements false;
        deserialize_char() elements false;
        deserialize_str() elements false;
        deserialize_string() elements false;
        deserialize_bytes() elements false;
        deserialize_byte_buf() elements false;
        deserialize_option() elements false;
        deserialize_unit() elements false;
        deserialize_unit_struct(name: &'static str) elements false;
        deserialize_newtype_struct(name: &'static str) elements false;
        deserialize_seq() elements true;
        deserialize_tuple(length: usize) elements false;
        deserialize_tuple_struct(name: &'static str, length: usize) elements false;
        deserialize_map() elements true;
        deserialize_struct(name: &'static str, fields: &'static [&'static str]) elements false;
        deserialize_enum(name: &'static str, variants: &'static [&'static str]) elements false;
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_identifier(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_ignored_any(visitor)
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

macro_rules! visit_plain {
    ($($method:ident($type:ty);)*) => {
        $(fn $method<E: Error>(self, value: $type) -> Result<V::Value, E> {
            self.inner.$method(value)
        })*
    };
}

macro_rules! visit_text {
    ($($method:ident($type:ty);)*) => {
        $(fn $method<E: Error>(self, value: $type) -> Result<V::Value, E> {
            self.add_text(value.len());
            self.inner.$method(value)
        })*
    };
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Counting<'_, V> {
    type Value = V::Value;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(out)
    }

    visit_plain! {
        visit_bool(bool);
        visit_i8(i8);
        visit_i16(i16);
        visit_i32(i32);
        visit_i64(i64);
        visit_u8(u8);
        visit_u16(u16);
        visit_u32(u32);
        visit_u64(u64);
        visit_f32(f32);
        visit_f64(f64);
        visit_char(char);
    }

    visit_text! {
        visit_str(&str);
        visit_borrowed_str(&'de str);
        visit_string(String);
        visit_bytes(&[u8]);
        visit_borrowed_bytes(&'de [u8]);
        visit_byte_buf(Vec<u8>);
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        let deserializer = self.around(deserializer);
        self.inner.visit_some(deserializer)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        let deserializer = self.around(deserializer);
        self.inner.visit_newtype_struct(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, access: A) -> Result<V::Value, A::Error> {
        let access = self.around(access);
        self.inner.visit_seq(access)
    }

    fn visit_map<A: MapAccess<'de>>(self, access: A) -> Result<V::Value, A::Error> {
        let access = self.around(access);
        self.inner.visit_map(access)
    }

    fn visit_enum<A: EnumAccess<'de>>(self, access: A) -> Result<V::Value, A::Error> {
        self.inner.visit_enum(access)
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Counting<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        let deserializer = self.around(deserializer);
        self.inner.deserialize(deserializer)
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Counting<'_, A> {
    type Error = A::Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, A::Error> {
        let seed = self.around(seed);
        let element = self.inner.next_element_seed(seed)?;
        if element.is_some() && self.keeps_elements {
            self.add(size_of::<T::Value>());
        }
        Ok(element)
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Counting<'_, A> {
    type Error = A::Error;

    fn next_key_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, A::Error> {
        let seed = self.around(seed);
        let key = self.inner.next_key_seed(seed)?;
        if key.is_some() && self.keeps_elements {
            self.add(size_of::<T::Value>());
        }
        Ok(key)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, A::Error> {
        if self.keeps_elements {
            self.add(size_of::<T::Value>());
        }
        let seed = self.around(seed);
        self.inner.next_value_seed(seed)
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn check<T: for<'de> Deserialize<'de>>(json: &str, heap: usize) {
        let measured: Measured<T> = serde_json::from_str(json).unwrap();
        assert_eq!(measured.bytes, size_of::<T>() + heap, "{json}");
    }

    #[test]
    fn only_what_is_kept_counts() {
        #[derive(Deserialize)]
        struct Lean {
            #[serde(rename = "name")]
            _name: String,
        }
        check::<u64>("7", 0);
        check::<String>(r#""12345678""#, 8);
        check::<Vec<u32>>("[1,2,3]", 12);
        check::<BTreeMap<String, u64>>(r#"{"a":1}"#, 24 + 8 + 8);
        check::<Lean>(r#"{"name":"abcdefgh","spec":{"long":"text that nobody keeps"}}"#, 8);
        check::<Vec<Lean>>(r#"[{"name":"abcdefgh"}]"#, 24 + 8);
    }
}
