//! Objects in other versions while a write finds out who owns which fields.
//!
//! That is done by functions which wait for nothing: asked for an object in a version in which nobody has made it yet, they are given any
//! and go on, and what was missing is noted. Then it is made, and they are called again, until nothing is missing.

use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use setpoint_api::Status;
use setpoint_schema::managed::Versions;
use setpoint_schema::{Edit, TypeRef};

use super::Broken;
use crate::call::Call;
use crate::registry::Served;

/// Most conversions of one write. Each version in which somebody owns fields needs some.
const MADE_MAX: usize = 64;

/// What was made for a write, and what is missing.
#[derive(Debug, Default)]
pub(crate) struct Memo(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    made: Vec<Wanted>,
    results: Vec<Value>,
    missing: Vec<Wanted>,
}

/// An object and the version that it is wanted in.
#[derive(Clone, Debug, PartialEq)]
struct Wanted {
    object: Value,
    version: String,
}

impl Memo {
    fn get(&self, wanted: Wanted) -> Value {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = inner.made.iter().position(|made| *made == wanted) {
            return inner.results[at].clone();
        }
        let mut any = wanted.object.clone();
        any.set("apiVersion", wanted.version.as_str());
        if !inner.missing.contains(&wanted) {
            inner.missing.push(wanted);
        }
        any
    }
}

/// The versions of a custom kind whose webhook turns them into each other.
pub(crate) struct Tracked {
    served: Arc<Served>,
    memo: Arc<Memo>,
}

impl Tracked {
    /// For a kind with a webhook.
    pub(crate) fn of(call: &Call<'_>) -> Option<Tracked> {
        call.served.converter()?;
        Some(Tracked { served: call.served_shared(), memo: Arc::clone(call.memo.as_ref()?) })
    }
}

impl Versions for Tracked {
    fn type_in(&self, api_version: &str) -> Option<TypeRef<'_>> {
        self.served.custom.as_ref()?.type_in(api_version)
    }

    fn convert(&self, object: &Value, api_version: &str) -> Value {
        // What is nothing but a kind is nothing in any version.
        let is_empty = object.as_object().is_none_or(|fields| fields.len() <= 2) || object.text("kind").is_empty();
        if !is_empty && object.text("apiVersion") != api_version {
            return self.memo.get(Wanted { object: object.clone(), version: api_version.to_owned() });
        }
        let mut same = object.clone();
        same.set("apiVersion", api_version);
        same
    }
}

/// Makes what was missing. Whether anything was, and so everything has to be done again.
pub(crate) async fn make_missing(call: &Call<'_>) -> Result<bool, Box<Status>> {
    let (Some(memo), Some(converter)) = (&call.memo, call.served.converter()) else { return Ok(false) };
    let missing = {
        let mut inner = memo.0.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.made.len() + inner.missing.len() > MADE_MAX {
            inner.missing.clear();
            let why = format!("its fields are owned in so many versions that it had to be converted {MADE_MAX} times");
            return Err(Broken(why).status());
        }
        mem::take(&mut inner.missing)
    };
    let was_missing = !missing.is_empty();
    for wanted in missing {
        let made = converter.converted(super::around(call), call.kind(), &wanted.object, &wanted.version).await?;
        let mut inner = memo.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.made.push(wanted);
        inner.results.push(made);
    }
    Ok(was_missing)
}
