//! Custom kinds whose versions a webhook turns into each other.
//!
//! An object that is stored in another version than the one that is asked for is shown to the webhook of its definition, as one that is
//! written in another version than the one that is stored is. What comes back is the object in the wanted version: of its metadata, the
//! webhook may change labels and annotations only. Nothing else of the server waits for such a webhook: reads of other kinds, of the
//! definition itself and of objects that are stored in the version that is asked for never come here.
//!
//! Upstream holds the objects of each version converted in its cache for watches. Here, what was converted for a list or a watch is
//! remembered within a bound, so that a webhook is asked once for each change and not once for each watcher. Who asks for one object
//! gets it converted anew, as upstream.

mod known;
mod memo;
mod restored;
mod review;

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use setpoint_api::Status;
use setpoint_schema::{Edit, Kind};
use setpoint_store::Object;

use crate::call::Call;
use crate::objects;
use crate::registry::Served;
use crate::webhook_client::{Client, Surroundings, Trouble};
use known::{Known, Place};

pub(crate) use memo::{Memo, Tracked, make_missing};

/// How long a webhook may take for an answer. A request lasts a minute at most, and may need two of them.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Most objects of one review. A slow webhook takes some milliseconds for each.
const OBJECTS_MAX: usize = 500;

/// Largest sum of the objects of one review, unless it has only one. What comes back may be larger, and has a bound of 8 MiB.
const BYTES_MAX: usize = 2 * 1024 * 1024;

/// The webhook of a definition.
pub(crate) struct Converter {
    definition: String,
    versions: Vec<String>,
    review_versions: Vec<String>,
    client: Client,
    known: Known,
    /// Held while something is converted that is to be remembered: those who want the same wait, and find it.
    converting: tokio::sync::Mutex<()>,
}

impl std::fmt::Debug for Converter {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Converter").field("definition", &self.definition).finish_non_exhaustive()
    }
}

/// An object that could not be converted, and why in the words of Kubernetes.
#[derive(Debug)]
pub(crate) struct Broken(String);

impl Broken {
    /// The answer to a request that needed the object.
    pub(crate) fn status(&self) -> Box<Status> {
        let mut status = Status::internal_error("");
        status.message = self.0.clone();
        status.reason = String::new();
        status.details = None;
        Box::new(status)
    }
}

impl std::fmt::Display for Broken {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl From<Broken> for Box<Status> {
    fn from(broken: Broken) -> Box<Status> {
        broken.status()
    }
}

impl Converter {
    /// The webhook of a definition, if its versions differ in more than their name.
    pub(crate) fn of(definition: &Value) -> Option<Converter> {
        let (spec, empty) = (&definition["spec"], Vec::new());
        let conversion = spec.get("conversion").filter(|conversion| conversion.text("strategy") == "Webhook")?;
        let (webhook, group) = (&conversion["webhook"], spec.text("group"));
        let versions = spec["versions"].as_array().unwrap_or(&empty).iter();
        let reviews = webhook["conversionReviewVersions"].as_array().unwrap_or(&empty).iter();
        Some(Converter {
            definition: definition["metadata"].text("name").to_owned(),
            versions: versions.map(|version| format!("{group}/{}", version.text("name"))).collect(),
            review_versions: reviews.filter_map(Value::as_str).map(str::to_owned).collect(),
            client: Client::read(&review::client_config(&webhook["clientConfig"])),
            known: Known::default(),
            converting: tokio::sync::Mutex::default(),
        })
    }

    /// An object in a version.
    pub(crate) async fn converted(
        &self,
        around: Surroundings<'_>,
        kind: &Kind,
        object: &Value,
        wanted: &str,
    ) -> Result<Value, Broken> {
        let all = self.convert(around, kind, vec![object.clone()], wanted).await?;
        Ok(all.into_iter().next().expect("one for each"))
    }

    /// Objects in a version, in their order. Those that are in it already stay as they are.
    async fn convert(
        &self,
        around: Surroundings<'_>,
        kind: &Kind,
        mut objects: Vec<Value>,
        wanted: &str,
    ) -> Result<Vec<Value>, Broken> {
        let others: Vec<usize> = (0..objects.len()).filter(|at| objects[*at].text("apiVersion") != wanted).collect();
        for at in &others {
            let from = objects[*at].text("apiVersion");
            if !self.versions.iter().any(|version| version == from) {
                return Err(Broken(format!("request to convert CR from an invalid group/version: {from}")));
            }
        }
        let mut rest = &others[..];
        while !rest.is_empty() {
            let (batch, after) = rest.split_at(size_of_batch(&objects, rest));
            let given: Vec<Value> = batch.iter().map(|at| without_version(&objects[*at])).collect();
            let made = self.ask(around, &given, wanted).await?;
            for ((at, given), made) in batch.iter().zip(&given).zip(made) {
                let mut made = restored::restore(given, made, wanted).map_err(Broken)?;
                kind.behaviour.fit_converted(&mut made).map_err(|error| Broken(error.to_string()))?;
                let version = objects[*at]["metadata"].get("resourceVersion").cloned();
                made.ensure("metadata").set_or_remove("resourceVersion", version);
                objects[*at] = made;
            }
            rest = after;
        }
        Ok(objects)
    }

    /// What the webhook makes of some objects.
    async fn ask(&self, around: Surroundings<'_>, given: &[Value], wanted: &str) -> Result<Vec<Value>, Broken> {
        let version = review::version(&self.review_versions)
            .ok_or_else(|| Broken("no supported conversion review versions".to_owned()))?;
        let uid = around.chance.uid();
        let body = review::document(version, &uid, wanted, given);
        let said = match self.client.post(around, "", body.into(), TIMEOUT).await {
            Ok(answer) => review::read(version, &uid, &answer),
            Err(trouble) => Err(trouble),
        };
        let what = restored::shown_kind(&given[0]);
        let made = said.map_err(|Trouble { why, kept }| {
            tracing::warn!(definition = self.definition, why = kept, "a conversion webhook failed");
            Broken(format!("conversion webhook for {what} failed: {why}"))
        })?;
        match made.len() == given.len() {
            true => Ok(made),
            false => Err(Broken(format!(
                "conversion webhook for {what} returned {} objects, expected {}",
                made.len(),
                given.len()
            ))),
        }
    }

    /// Stored objects as a kind shows them. What was converted before need not be again.
    async fn show_all(
        &self,
        around: Surroundings<'_>,
        served: &Served,
        objects: Vec<(Place, Value)>,
    ) -> Result<Vec<Value>, Broken> {
        let wanted = served.kind.api_version();
        let mut shown = Vec::with_capacity(objects.len());
        let mut missing = Vec::new();
        for (at, (place, object)) in objects.into_iter().enumerate() {
            if object.text("apiVersion") == wanted {
                shown.push(served.show_stored(object));
                continue;
            }
            match self.known.get(&wanted, &place) {
                Some(known) => shown.push(known),
                None => {
                    shown.push(Value::Null);
                    missing.push((at, place, object));
                }
            }
        }
        while !missing.is_empty() {
            let left = missing.split_off(missing.len().min(OBJECTS_MAX));
            for (at, object) in self.show_missing(around, served, &wanted, missing).await? {
                shown[at] = object;
            }
            missing = left;
        }
        Ok(shown)
    }

    async fn show_missing(
        &self,
        around: Surroundings<'_>,
        served: &Served,
        wanted: &str,
        missing: Vec<(usize, Place, Value)>,
    ) -> Result<Vec<(usize, Value)>, Broken> {
        let _alone = self.converting.lock().await;
        let mut done = Vec::with_capacity(missing.len());
        let (mut places, mut objects) = (Vec::new(), Vec::new());
        for (at, place, mut object) in missing {
            // Another may have converted it meanwhile.
            if let Some(known) = self.known.get(wanted, &place) {
                done.push((at, known));
                continue;
            }
            served.kind.behaviour.read_own(&mut object);
            places.push((at, place));
            objects.push(object);
        }
        let objects = self.convert(around, &served.kind, objects, wanted).await?;
        for ((at, place), object) in places.into_iter().zip(objects) {
            self.known.put(wanted, place, &object);
            done.push((at, object));
        }
        Ok(done)
    }
}

/// How many of these objects one review may have.
fn size_of_batch(objects: &[Value], places: &[usize]) -> usize {
    let mut bytes = 0;
    let fits = places.iter().take(OBJECTS_MAX).take_while(|at| {
        bytes += objects[**at].to_string().len();
        bytes <= BYTES_MAX
    });
    fits.count().max(1)
}

fn without_version(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata") {
        metadata.remove("resourceVersion");
    }
    object
}

/// A stored object as the kind of a request shows it.
pub(crate) async fn shown(call: &Call<'_>, object: &Object) -> Result<Value, Box<Status>> {
    let Some(converter) = call.served.converter() else { return Ok(objects::shown(call.served, object)) };
    let mut value = objects::value(object);
    call.kind().behaviour.read_own(&mut value);
    let version = call.kind().api_version();
    Ok(Box::pin(converter.converted(around(call), call.kind(), &value, &version)).await?)
}

/// The stored objects of a list as the kind of a request shows them.
pub(crate) async fn shown_all(call: &Call<'_>, objects: &[Arc<Object>]) -> Result<Vec<Value>, Box<Status>> {
    let values = objects.iter().map(|object| objects::value(object));
    match call.served.converter() {
        None => Ok(values.map(|value| call.served.show_stored(value)).collect()),
        Some(_) => Ok(Box::pin(shown_values(around(call), call.served, values.collect())).await?),
    }
}

/// Objects as they are stored as a kind with a webhook shows them.
pub(crate) async fn shown_values(
    around: Surroundings<'_>,
    served: &Served,
    values: Vec<Value>,
) -> Result<Vec<Value>, Broken> {
    let Some(converter) = served.converter() else {
        return Ok(values.into_iter().map(|value| served.show_stored(value)).collect());
    };
    let placed = values.into_iter().map(|value| (Place::of(&value), value)).collect();
    converter.show_all(around, served, placed).await
}

/// An object in the version in which it is stored, if a webhook has to bring it there.
pub(crate) async fn stored_form(call: &Call<'_>, object: &Value) -> Result<Option<Value>, Box<Status>> {
    let Some(converter) = call.served.converter().filter(|_| call.served.is_converted()) else { return Ok(None) };
    let storage = &call.served.custom.as_ref().expect("only custom kinds have one").storage;
    Ok(Some(Box::pin(converter.converted(around(call), call.kind(), object, storage)).await?))
}

fn around<'a>(call: &Call<'a>) -> Surroundings<'a> {
    Surroundings { store: &call.server.store, chance: &call.server.chance }
}

#[cfg(test)]
mod tests;
