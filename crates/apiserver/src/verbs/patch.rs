//! PATCH: a change described instead of a whole object.

use std::borrow::Cow;

use http::header::CONTENT_TYPE;
use serde_json::Value;
use setpoint_api::{FieldError, GroupKind, GroupVersion, Path, Status};
use setpoint_schema::json::Json;
use setpoint_schema::kind::Types;
use setpoint_schema::normal::normalize;
use setpoint_schema::patch::{self, JsonPatch, MergePatch, StrategicPatch, Strictness};
use setpoint_schema::settled::is_settled;
use setpoint_schema::{Decoded, Edit, Kind, TypeRef, decode, facts};

use super::{create, update};
use crate::answer::Answer;
use crate::body::Body;
use crate::call::Call;
use crate::query::{FieldValidation, WriteOptions};
use crate::{content, objects};

pub(super) async fn run(call: &mut Call<'_>, body: Body) -> Answer {
    let media = call.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    if is_apply(media) {
        return super::apply::run(call, body).await;
    }
    let outcome = apply(call, body, Ownership::Open, &mut |call, old, patched| patched(call, old)).await?;
    update::answer(call, outcome).await
}

/// Whether a media type is that of an apply.
pub(super) fn is_apply(media: &str) -> bool {
    media.split(';').next().unwrap_or("").trim() == super::apply::MEDIA
}

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// Applies the patch to a document of the call's kind.
pub(super) type Patched<'p> = dyn Fn(&mut Call<'_>, &Value) -> Result<Value, Box<Status>> + Send + Sync + 'p;

/// Makes the next version of a stored object with a patch: of the whole object, or of a view of it.
pub(super) type Through<'t> = dyn FnMut(&mut Call<'_>, &Value, &Patched<'_>) -> Result<Value, Box<Status>> + Send + 't;

/// Whether who makes the next version says who owns its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ownership {
    Open,
    Told,
}

/// The kinds of patches.
enum Patch<'a> {
    Json(JsonPatch<'a>),
    Merge(MergePatch<'a>),
    Strategic(StrategicPatch),
}

impl Patch<'_> {
    /// What strict decoding would refuse.
    fn complaints(&self) -> &[String] {
        match self {
            Patch::Json(patch) => patch.complaints(),
            Patch::Merge(patch) => patch.complaints(),
            Patch::Strategic(patch) => patch.complaints(),
        }
    }

    /// The fields of an object that it can change; None for all.
    fn fields(&self) -> Option<Vec<&str>> {
        match self {
            Patch::Json(_) => None,
            Patch::Merge(patch) => patch.fields(),
            Patch::Strategic(patch) => patch.fields(),
        }
    }
}

/// What a patch made of an object.
enum Made<'a> {
    /// Something to be read.
    Document(Json<'a>),
    /// Something that reading would leave as it is.
    Settled(Value),
}

pub(super) async fn apply(
    call: &mut Call<'_>,
    body: Body,
    ownership: Ownership,
    through: &mut Through<'_>,
) -> Result<super::create::Outcome, Box<Status>> {
    let media = call.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("").to_owned();
    let media = media.split(';').next().unwrap_or("").trim().to_owned();
    let known =
        ["application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json"];
    if !known.contains(&&*media) || call.served.custom.is_some() && media == known[2] {
        return Err(unsupported(call));
    }
    super::check_form(call, false)?;
    let mut options = WriteOptions::of_patch(&call.query)?;
    options.applied = ownership == Ownership::Told;
    let bytes = content::read(body).await?;
    call.noted.patch(&bytes);
    // What is not there can't be patched, however wrong the patch is.
    objects::find(&call.server.store.snapshot(), call.served, call.namespace, call.object_name())?;
    let strictness = match options.field_validation {
        FieldValidation::Ignore => Strictness::Lax,
        FieldValidation::Warn | FieldValidation::Strict => Strictness::Checked,
    };
    let refused = |error: patch::PatchError| Box::new(error.status());
    let patch = match &*media {
        "application/json-patch+json" => Patch::Json(JsonPatch::decode(&bytes, strictness).map_err(refused)?),
        "application/merge-patch+json" => Patch::Merge(MergePatch::decode(&bytes, strictness).map_err(refused)?),
        _ => Patch::Strategic(StrategicPatch::decode(&bytes, strictness).map_err(refused)?),
    };
    let validation = options.field_validation;
    let patched = |call: &mut Call<'_>, old: &Value| patched(call, &patch, old, validation);
    update::change(call, &options, &mut |call, old| through(call, old, &patched)).await
}

fn unsupported(call: &Call<'_>) -> Box<Status> {
    if call.served.custom.is_some() {
        return Box::new(Status::unsupported_media_type(&super::custom::PATCHES));
    }
    let mut status = Status::unsupported_media_type(&[]);
    status.message = "415: Unsupported Media Type".to_owned();
    status.details = Some(setpoint_api::StatusDetails::default());
    Box::new(status)
}

/// The object after the patch, read and defaulted like one that a client sent whole.
fn patched(
    call: &mut Call<'_>,
    patch: &Patch<'_>,
    old: &Value,
    validation: FieldValidation,
) -> Result<Value, Box<Status>> {
    let kind = call.kind();
    let (root, refused) = (kind.root_type(), |error: patch::PatchError| Box::new(error.status()));
    // What is stored of a built-in kind was read and defaulted then: only what the patch can change is read again.
    // One that makes it another kind is read as that, whole.
    let is_part = |fields: &Vec<&str>| !fields.contains(&"kind") && !fields.contains(&"apiVersion");
    let fields = patch.fields().filter(|fields| matches!(kind.types, Types::Builtin) && is_part(fields));
    let is_kept = |name: &str| fields.as_ref().is_some_and(|fields| !fields.contains(&name));
    let own = old.as_object().into_iter().flatten();
    let document = match patch {
        Patch::Json(patch) => Made::Document(patch.apply(go_order(old, root)).map_err(refused)?),
        // Errors follow the order of the patch here, so the order of what it changes doesn't matter.
        Patch::Merge(patch) => {
            let changing = own.clone().filter(|(name, _)| !is_kept(name));
            let changing = changing.map(|(name, value)| (name.into(), Json::of(value)));
            Made::Document(patch.apply(Json::Object(changing.collect())))
        }
        Patch::Strategic(patch) => {
            let changing = own.clone().filter(|(name, _)| !is_kept(name));
            let changing = changing.map(|(name, value)| (name.clone(), value.clone())).collect();
            let mut merged = patch.apply(Value::Object(changing), root).map_err(refused)?.value;
            patch::convert_numbers(&mut merged, root);
            match is_settled(&merged, root) {
                true => Made::Settled(merged),
                false => Made::Document(Json::from(merged)),
            }
        }
    };
    let shown = || shown(patch, old, root);
    let invalid = |error: decode::DecodeError| {
        let words = misfit(patch, old, root).unwrap_or_else(|| error.to_string());
        invalid_patch(&shown(), &words)
    };
    // A strategic patch is merged into an object of the kind's own type, whatever kind it says.
    if let (Patch::Json(_) | Patch::Merge(_), Made::Document(document)) = (patch, &document) {
        check_still_of(kind, document, &shown)?;
        let is_whole = matches!(kind.types, Types::Builtin) && fields.is_none();
        if is_whole && is_without_version(document) {
            return Err(unversioned(call, document, validation, &shown));
        }
    }
    let decoded = match document {
        Made::Document(document) => kind.behaviour.decode(document, root).map_err(invalid)?,
        Made::Settled(mut value) => {
            normalize(&mut value, root);
            Decoded { value, converted: Vec::new(), strict: Vec::new(), emptied: Vec::new() }
        }
    };
    let mut strict: Vec<Cow<'_, str>> = patch.complaints().iter().map(|text| Cow::Borrowed(text.as_str())).collect();
    let unknown = if matches!(patch, Patch::Strategic(_)) { decoded.converted } else { decoded.strict };
    strict.extend(unknown.into_iter().map(Cow::Owned));
    if !strict.is_empty() && validation == FieldValidation::Strict {
        return Err(invalid_patch(&shown(), &format!("strict decoding error: {}", strict.join(", "))));
    }
    if validation == FieldValidation::Warn {
        call.warnings.extend(strict.into_iter().map(Cow::into_owned));
    }
    call.emptied = decoded.emptied;
    let mut new = decoded.value;
    own.filter(|(name, _)| is_kept(name)).for_each(|(name, value)| new.set(name, value.clone()));
    new.set("apiVersion", kind.api_version());
    new.set("kind", &*kind.kind);
    update::check_name(call, &mut new)?;
    create::check_namespace(call, &mut new)?;
    kind.behaviour.default(&mut new);
    Ok(new)
}

/// A patch can't make an object one of another kind.
fn check_still_of(kind: &Kind, document: &Json<'_>, shown: &dyn Fn() -> String) -> Result<(), Box<Status>> {
    if let (Types::Builtin, Some(why)) = (&kind.types, content::unreadable_kind(document)) {
        return Err(invalid_patch(&shown(), &why));
    }
    let expected = GroupVersion::new(&*kind.group, &*kind.version);
    let text = |name| document.get(name).and_then(Json::as_str).filter(|text| !text.is_empty());
    let found_kind = text("kind").unwrap_or(&kind.kind);
    let found: GroupVersion = match text("apiVersion").map(str::parse) {
        None => expected.clone(),
        Some(Ok(found)) => found,
        Some(Err(_)) if !matches!(kind.types, Types::Builtin) => expected.clone(),
        Some(Err(why)) => return Err(invalid_patch(&shown(), &format!("{why}"))),
    };
    if *found_kind == *kind.kind && found == expected || matches!(kind.types, Types::Own(_)) {
        return Ok(());
    }
    if !content::is_registered(&found.to_string(), found_kind) {
        return Err(invalid_patch(&shown(), &content::not_registered(&found, found_kind)));
    }
    if *found_kind == *kind.kind {
        return Ok(());
    }
    if let Some(other) = facts::kind_type(&found.to_string(), found_kind) {
        decode::decode(document.clone(), other).map_err(|error| invalid_patch(&shown(), &error.to_string()))?;
    }
    Err(invalid_patch(&shown(), &content::not_convertible(&found, found_kind, &expected, &kind.kind)))
}

fn is_without_version(document: &Json<'_>) -> bool {
    matches!(document, Json::Object(_)) && document.get("apiVersion").and_then(Json::as_str).is_none_or(str::is_empty)
}

/// Kubernetes reads what says no version as the form that it has within itself: there, no field is named as in any version, but for those of
/// metadata, which stand beside the others. So it finds no name.
fn unversioned(
    call: &mut Call<'_>,
    document: &Json<'_>,
    validation: FieldValidation,
    shown: &dyn Fn() -> String,
) -> Box<Status> {
    let mut document = document.clone().into_value();
    let metadata = facts::type_named(OBJECT_META);
    let is_known = |name: &str| {
        name == "apiVersion" || name == "kind" || metadata.is_some_and(|metadata| metadata.field(name).is_some())
    };
    let fields = document.as_object().into_iter().flatten().map(|(name, _)| name).filter(|name| !is_known(name));
    let mut unknown: Vec<String> =
        fields.map(|name| format!("unknown field {}", setpoint_api::quote::quote(name))).collect();
    unknown.sort();
    if validation == FieldValidation::Strict && !unknown.is_empty() {
        return invalid_patch(&shown(), &format!("strict decoding error: {}", unknown.join(", ")));
    }
    if validation == FieldValidation::Warn {
        call.warnings.extend(unknown);
    }
    document.remove("metadata");
    update::check_name(call, &mut document).expect_err("nothing has a name here")
}

/// What an error quotes: the document after the patch, but for a strategic one, of which it quotes the patch.
fn shown(patch: &Patch<'_>, old: &Value, root: TypeRef<'_>) -> String {
    match patch {
        Patch::Json(patch) => patch.apply(go_order(old, root)).map(|document| patch::json_text(&document)),
        Patch::Merge(patch) => Ok(patch::json_text(&patch.apply(go_order(old, root)))),
        Patch::Strategic(patch) => patch.apply(old.clone(), root).map(|merged| patch::value_text(&merged.patch)),
    }
    .unwrap_or_default()
}

/// What doesn't fit in the document after a strategic patch, in upstream's words for it.
fn misfit(patch: &Patch<'_>, old: &Value, root: TypeRef<'_>) -> Option<String> {
    let Patch::Strategic(patch) = patch else { return None };
    patch::misfit(&patch.apply(old.clone(), root).ok()?.value, root)
}

fn invalid_patch(shown: &str, why: &str) -> Box<Status> {
    let error = FieldError::invalid(&Path::root("patch"), shown, why);
    Box::new(Status::invalid(&GroupKind::new("", ""), "", &[error]))
}

/// An object in the order in which Kubernetes prints its fields: what error messages quote.
fn go_order<'a>(value: &'a Value, ty: TypeRef<'_>) -> Json<'a> {
    match value {
        Value::Object(fields) => {
            let place = |name: &str| ty.field(name).map_or(u16::MAX, |field| field.published.place);
            let mut ordered: Vec<(&String, &Value)> = fields.iter().collect();
            ordered.sort_by_cached_key(|(name, _)| place(name));
            let ordered = ordered.into_iter().map(|(name, value)| {
                let value = match ty.child(name) {
                    Some(ty) => go_order(value, ty),
                    None => Json::of(value),
                };
                (Cow::Borrowed(name.as_str()), value)
            });
            Json::Object(ordered.collect())
        }
        Value::Array(items) => match ty.item() {
            Some(ty) => Json::Array(items.iter().map(|item| go_order(item, ty)).collect()),
            None => Json::of(value),
        },
        other => Json::of(other),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::Server;

    /// Only what a patch names is read again, but for one that names the kind.
    #[tokio::test]
    async fn what_a_patch_makes_another_kind_is_read_whole_as_that() {
        let server = Server::start().await;
        let maps = "/api/v1/namespaces/default/configmaps";
        server.done("POST", maps, json!({"metadata": {"name": "c"}, "data": {"a": "1"}})).await;
        let map = format!("{maps}/c");
        let changed = server.done("PATCH", &map, json!({"metadata": {"labels": {"l": "1"}}})).await;
        assert_eq!((&changed["data"], &changed["metadata"]["labels"]), (&json!({"a": "1"}), &json!({"l": "1"})));
        let other = json!({"kind": "Secret", "apiVersion": "v9"});
        let (code, same) = server.send_as("application/strategic-merge-patch+json", "PATCH", &map, other).await;
        assert_eq!((code, &same["kind"], &same["apiVersion"]), (200, &json!("ConfigMap"), &json!("v1")));
        let (code, message) = server.refused("PATCH", &map, json!({"kind": 5})).await;
        assert_eq!(code, 422);
        let why =
            "couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .kind";
        assert!(message.contains(why), "{message}");
        let (code, message) = server.refused("PATCH", &map, json!({"kind": "Secret"})).await;
        assert_eq!(code, 422);
        assert!(message.contains("illegal base64 data at input byte"), "{message}");
    }
}
