//! Parts of an object with a URL of their own.

mod binding;
mod eviction;
mod node_stream;
mod pod_log;
mod scale;

use http::{Method, StatusCode};
use setpoint_api::Status;
use setpoint_schema::normal::normalize;

use super::{check_form, custom, not_allowed, patch, show, update};
use crate::answer::Answer;
use crate::body::Body;
use crate::call::Call;
use crate::content::{self, Format};
use crate::query::WriteOptions;
use crate::representation::Representation;
use crate::server::unknown_resource;
use crate::{admission, objects, tokens};

pub(crate) use binding::bind;

pub(super) async fn run(call: &mut Call<'_>, name: &str, method: &Method, body: Body) -> Answer {
    let is_custom = call.served.custom.is_some();
    let part = call.kind().subresource(name).ok_or_else(|| match is_custom {
        true => custom::unknown_part(call),
        false => unknown_resource(),
    })?;
    let verb = match method.as_str() {
        "GET" => "get",
        "PUT" => "update",
        "PATCH" => "patch",
        "POST" => "create",
        "DELETE" => "delete",
        _ => return Err(not_allowed()),
    };
    if !part.verbs.iter().any(|known| known == verb) {
        return Err(if is_custom { custom::not_supported(call, verb) } else { not_allowed() });
    }
    let is_stream = matches!(name, "log" | "exec" | "attach" | "portforward" | "proxy");
    if !is_stream && verb != "patch" {
        check_form(call, false)?;
    }
    match (name, verb) {
        ("scale", _) => Box::pin(scale::run(call, verb, body)).await,
        ("binding", "create") => binding::run(call, body).await,
        ("eviction", "create") => Box::pin(eviction::run(call, body)).await,
        ("token", "create") => Box::pin(token(call, body)).await,
        ("log", _) => node_stream::run(call, name),
        ("exec" | "attach" | "portforward" | "proxy", _) => {
            Box::pin(admission::connect(call, name)).await?;
            node_stream::run(call, name)
        }
        (_, "get") if part.root == call.kind().root => {
            let object = objects::find(&call.server.store.snapshot(), call.served, call.namespace, call.object_name())?;
            show(call, StatusCode::OK, &object).await
        }
        (_, "update") if part.root == call.kind().root => update::run(call, body).await,
        (_, "patch") if part.root == call.kind().root => patch::run(call, body).await,
        _ => Err(not_allowed()),
    }
}

/// A new token for a service account.
async fn token(call: &mut Call<'_>, body: Body) -> Answer {
    let representation = Representation::of(call.headers, &call.query, false)?;
    let (mut request, options) = read(call, body).await?;
    admission::post(call, &mut request, call.object_name(), &options).await?;
    admission::node_restriction::token(call, &request)?;
    let mut answer = tokens::issue(call, request)?;
    let part = call.kind().subresource("token").ok_or_else(unknown_resource)?;
    normalize(&mut answer, setpoint_schema::facts::BUILTIN.get(part.root));
    Ok(super::encode(StatusCode::CREATED, &answer, representation))
}

/// Reads the body of a subresource that takes an object of its own kind.
async fn read(call: &mut Call<'_>, body: Body) -> Result<(serde_json::Value, WriteOptions), Box<Status>> {
    let format = Format::of(call.headers)?;
    let options = WriteOptions::read(&call.query, "CreateOptions")?;
    let bytes = content::read(body).await?;
    let kind = call.kind();
    let part = kind.subresource(call.subresource.unwrap_or_default()).ok_or_else(unknown_resource)?;
    let version = if is_old_eviction(&bytes, &part.kind) { "v1beta1" } else { &*part.version };
    let expected = setpoint_api::GroupVersion::new(&*part.group, version);
    let root = setpoint_schema::facts::BUILTIN.get(part.root);
    let read = content::typed(&bytes, format, root, &expected, &part.kind, options.field_validation)?;
    call.warnings.extend(read.warnings);
    call.noted.object(&read.object);
    Ok((read.object, options))
}

/// Evictions of the version before are the same object, and old drain tools still send them.
fn is_old_eviction(bytes: &[u8], kind: &str) -> bool {
    let version =
        || serde_json::from_slice::<serde_json::Value>(bytes).ok()?.get("apiVersion")?.as_str().map(str::to_owned);
    kind == "Eviction" && version().as_deref() == Some("policy/v1beta1")
}

#[cfg(test)]
mod tests;
