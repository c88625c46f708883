//! What a conversion webhook is sent, and how its answer is read.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use setpoint_api::quote::quote;
use setpoint_schema::Edit;

use crate::webhook_client::Trouble;

const GROUP: &str = "apiextensions.k8s.io";

/// The first version of reviews that both sides know.
pub(super) fn version(accepted: &[String]) -> Option<&'static str> {
    let known = ["v1", "v1beta1"];
    accepted.iter().find_map(|version| known.into_iter().find(|known| known == version))
}

/// How the webhook is reached. A bundle of nothing but spaces is none.
pub(super) fn client_config(config: &Value) -> Value {
    let mut config = config.clone();
    let bundle = STANDARD.decode(config.text("caBundle")).unwrap_or_default();
    if !bundle.is_empty() && bundle.iter().all(u8::is_ascii_whitespace) {
        config.remove("caBundle");
    }
    config
}

/// The document that the webhook is sent.
pub(super) fn document(version: &str, uid: &str, wanted: &str, objects: &[Value]) -> Vec<u8> {
    let request = json!({"uid": uid, "desiredAPIVersion": wanted, "objects": objects});
    let review = json!({"kind": "ConversionReview", "apiVersion": format!("{GROUP}/{version}"), "request": request});
    serde_json::to_vec(&review).expect("a value is always encodable")
}

/// The objects of an answer, or what is wrong with it.
pub(super) fn read(version: &str, uid: &str, answer: &[u8]) -> Result<Vec<Value>, Trouble> {
    let quoting = |why: String, kept: &str| Trouble::quoting(why, kept.to_owned());
    let answer = setpoint_schema::json::parse(answer)
        .map_err(|error| quoting(error.to_string(), "its answer is no JSON"))?
        .into_value();
    if version == "v1" && !is_review(&answer, version) {
        let (api_version, kind) = (answer.text("apiVersion"), answer.text("kind"));
        let shown = if api_version.contains('/') { api_version.to_owned() } else { format!("/{api_version}") };
        let why =
            format!("expected webhook response of {GROUP}/{version}, Kind=ConversionReview, got {shown}, Kind={kind}");
        return Err(quoting(why, "its answer is not that of a review"));
    }
    let response = answer.get("response").filter(|response| response.is_object());
    let response = response.ok_or_else(|| Trouble::plain("no response provided".to_owned()))?;
    if version == "v1" && response.text("uid") != uid {
        let why = format!("expected response.uid={}, got {}", quote(uid), quote(response.text("uid")));
        return Err(quoting(why, "its answer is to another review"));
    }
    let result = &response["result"];
    match (result.text("status"), result.text("message")) {
        ("Success", _) => {}
        (status, "") => {
            let why = format!("response.result.status was '{status}', not 'Success'");
            return Err(quoting(why, "it says that it failed"));
        }
        (_, message) => return Err(quoting(message.to_owned(), "it says that it failed, and why")),
    }
    Ok(response["convertedObjects"].as_array().cloned().unwrap_or_default())
}

fn is_review(answer: &Value, version: &str) -> bool {
    answer.text("kind") == "ConversionReview" && *answer.text("apiVersion") == *format!("{GROUP}/{version}")
}
