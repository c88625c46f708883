//! GET of one object.

use http::StatusCode;

use super::show;
use crate::answer::Answer;
use crate::call::Call;
use crate::objects;
use crate::query::parse_revision;

pub(super) async fn run(call: &Call<'_>) -> Answer {
    match call.query.get("resourceVersion") {
        "" | "0" => {}
        text => drop(parse_revision(text)?),
    }
    // The answer's form is checked first, as an unknown one is refused whether or not the object is there.
    crate::representation::Representation::of(call.headers, &call.query, false)?;
    let object = objects::find(&call.server.store.snapshot(), call.served, call.namespace, call.object_name())?;
    show(call, StatusCode::OK, &object).await
}
