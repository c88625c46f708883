//! An object that is not there, and the one that was meant.

use serde_json::Value;

use crate::discovery::Kind;
use crate::failure::Failure;
use crate::request::{Ask, METADATA, Server, Trouble};
use crate::slip;

/// Names that are looked through.
const NAMES_MAX: &str = "500";

/// Why an object can't be had; if it is not there, with the name beside it that is nearly the same.
pub async fn told(server: &Server, kind: &Kind, namespace: &str, name: &str, trouble: Trouble) -> Failure {
    let near = if trouble.is("NotFound") { near(server, kind, namespace, name).await } else { None };
    let failure = Failure::from(trouble);
    match near {
        Some(near) => failure.hint(format!("did you mean `{}/{near}`?", kind.singular)),
        None => failure,
    }
}

async fn near(server: &Server, kind: &Kind, namespace: &str, name: &str) -> Option<String> {
    let ask = Ask::get(kind.path(Some(namespace))).accept(METADATA).with("limit", NAMES_MAX).quietly();
    let list = server.get(ask).await.ok()?;
    let names = list["items"].as_array()?.iter().filter_map(|item| item["metadata"]["name"].as_str());
    slip::nearest(name, names.filter(|other| *other != name)).map(str::to_owned)
}

/// Asks for one object.
pub async fn find(server: &Server, kind: &Kind, namespace: &str, name: &str) -> Result<Value, Failure> {
    match server.get(Ask::get(kind.path_of(namespace, name))).await {
        Ok(object) => Ok(object),
        Err(trouble) => Err(told(server, kind, namespace, name, trouble).await),
    }
}
