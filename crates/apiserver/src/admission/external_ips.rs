//! Nobody draws traffic for addresses that aren't theirs (CVE-2020-8554): a Service gets no new external addresses.

use serde_json::Value;
use setpoint_api::Status;

use super::{Plugin, forbidden};
use crate::call::Call;

/// Refuses addresses that the Service did not have before, unless this rule is left out.
pub(super) fn check(call: &Call<'_>, new: &Value, old: Option<&Value>) -> Result<(), Box<Status>> {
    if !call.server.runs(Plugin::DenyServiceExternalIPs) {
        return Ok(());
    }
    let addresses = |service: &Value| service["spec"]["externalIPs"].as_array().cloned().unwrap_or_default();
    let before = old.map(addresses).unwrap_or_default();
    match addresses(new).iter().all(|address| before.contains(address)) {
        true => Ok(()),
        false => Err(forbidden(call, new, "Use of external IPs is denied by admission control")),
    }
}
