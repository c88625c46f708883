//! Values as JSON: what mutations make of objects.

use serde_json::{Map as JsonMap, Value as Json};

use super::EvalError;
use super::value::{Map, Special, Value};

/// How deep values may be nested.
const DEPTH_MAX: usize = 120;

impl Value<'_> {
    /// The value as JSON, or what is in it that has no such form.
    pub fn to_json(&self) -> Result<Json, EvalError> {
        convert(self, DEPTH_MAX)
    }
}

fn convert(value: &Value<'_>, depth: usize) -> Result<Json, EvalError> {
    let Some(depth) = depth.checked_sub(1) else { return Err(EvalError::failed("value is nested too deep")) };
    Ok(match value {
        Value::Null => Json::Null,
        Value::Bool(value) => Json::Bool(*value),
        Value::Int(number) => Json::from(*number),
        Value::Uint(number) => Json::from(*number),
        Value::Double(number) => Json::from(*number),
        Value::String(text) => Json::from(text.as_str()),
        Value::Bytes(bytes) => Json::from(crate::base64::encode(bytes)),
        Value::List(list) => {
            let items = list.items()?;
            Json::Array(items.iter().map(|item| convert(item, depth)).collect::<Result<_, _>>()?)
        }
        Value::Map(Map::Json(map, _)) => Json::Object((*map).clone()),
        Value::Map(map) => {
            let mut fields = JsonMap::new();
            for key in map.keys() {
                let Some(name) = key.as_str() else {
                    return Err(EvalError::failed("keys of objects must be strings"));
                };
                let inner = map.find(&key)?.unwrap_or(Value::Null);
                fields.insert(name.to_owned(), convert(&inner, depth)?);
            }
            Json::Object(fields)
        }
        Value::Timestamp(time) => Json::from(time.to_string()),
        Value::Duration(nanos) => Json::from(super::time::seconds_text(*nanos)),
        Value::Optional(Some(inner)) => convert(inner, depth)?,
        Value::Optional(None) => Json::Null,
        Value::Preserved(json) => (*json).clone(),
        Value::Special(special) => match &**special {
            Special::Quantity(quantity) => Json::from(quantity.to_string()),
            _ => return Err(EvalError::failed(format!("a value of type {} can't be stored", value.type_name()))),
        },
        Value::Type(_) => return Err(EvalError::failed("a type can't be stored")),
    })
}
