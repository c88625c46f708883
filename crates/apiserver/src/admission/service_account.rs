//! Every pod has a service account, and its token unless someone says no.

use std::time::Duration;

use serde_json::{Value, json};
use setpoint_api::{GroupResource, Status};
use setpoint_schema::Edit;

use super::{find, forbidden};
use crate::authorization::node;
use crate::call::Call;

const DEFAULT: &str = "default";
const TOKEN_FOLDER: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const VOLUME_PREFIX: &str = "kube-api-access-";
const MIRROR: &str = "kubernetes.io/config.mirror";

/// The lists of containers of a pod, and what messages call one of each.
const CONTAINERS: [(&str, &str); 3] = [("init container", "initContainers"), ("container", "containers"), EPHEMERAL];
const EPHEMERAL: (&str, &str) = ("ephemeral container", "ephemeralContainers");

/// A token is good for an hour; the seconds beyond tell that nobody chose it.
const TOKEN_SECONDS: i64 = 3607;

/// The default account is made by a controller soon after its namespace: so many looks, this far apart.
const LOOKS: u32 = 10;
const LOOK_PAUSE: Duration = Duration::from_millis(100);

/// Names the account, mounts its token and takes its pull secrets.
pub(super) async fn admit(call: &Call<'_>, pod: &mut Value) -> Result<(), Box<Status>> {
    if pod.find(&["metadata", "annotations", MIRROR]).is_some() {
        return check_mirror(call, pod);
    }
    let spec = pod.ensure("spec");
    spec.default_to("serviceAccountName", DEFAULT);
    let name = spec.text("serviceAccountName").to_owned();
    spec.set("serviceAccount", &*name);
    let Some(account) = look(call, &name).await else {
        return Err(missing(call, pod, &name));
    };
    let spec = pod.ensure("spec");
    if wants_token(spec, &account) {
        mount_token(spec, &format!("{VOLUME_PREFIX}{}", call.server.chance.suffix()));
    }
    let is_empty = |value: &Value| value.as_array().is_none_or(Vec::is_empty);
    if is_empty(&spec["imagePullSecrets"]) && !is_empty(&account["imagePullSecrets"]) {
        spec.set("imagePullSecrets", account["imagePullSecrets"].clone());
    }
    Ok(())
}

/// Judges what a new pod refers to. Whoever changes pods has changed it by now.
pub(super) fn check(call: &Call<'_>, pod: &Value) -> Result<(), Box<Status>> {
    if pod.find(&["metadata", "annotations", MIRROR]).is_some() {
        return check_mirror(call, pod);
    }
    let account = account_of(call, pod)?;
    let spec = &pod["spec"];
    let lists = CONTAINERS.into_iter().flat_map(|(what, list)| secret_references(spec, what, list));
    check_secrets(call, pod, &account, volume_secrets(spec).chain(lists))?;
    check_pulls(call, pod, &account)
}

/// Judges the containers that are added to a pod that runs. What else it refers to was judged when it was made.
pub(super) fn check_added(call: &Call<'_>, pod: &Value) -> Result<(), Box<Status>> {
    let account = account_of(call, pod)?;
    let (what, list) = EPHEMERAL;
    check_secrets(call, pod, &account, secret_references(&pod["spec"], what, list))
}

/// The account that a pod names, which has to be there.
fn account_of(call: &Call<'_>, pod: &Value) -> Result<Value, Box<Status>> {
    let (namespace, name) = (call.namespace.unwrap_or_default(), pod["spec"].text("serviceAccountName"));
    if name.is_empty() {
        let pod_name = pod["metadata"].text("name");
        return Err(forbidden(call, pod, format!("no service account specified for pod {namespace}/{pod_name}")));
    }
    find(call, "", "serviceaccounts", call.namespace, name).ok_or_else(|| missing(call, pod, name))
}

fn missing(call: &Call<'_>, pod: &Value, name: &str) -> Box<Status> {
    let complaints = setpoint_api::name::path_segment_name(name);
    // A name that no path can hold is never looked up.
    let why = match complaints.is_empty() {
        true => Status::not_found(&GroupResource::new("", "serviceaccount"), name).to_string(),
        false => format!("invalid resource name {}: [{}]", setpoint_api::quote::quote(name), complaints.join(" ")),
    };
    let namespace = call.namespace.unwrap_or_default();
    forbidden(call, pod, format!("error looking up service account {namespace}/{name}: {why}"))
}

async fn look(call: &Call<'_>, name: &str) -> Option<Value> {
    let looks = if name == DEFAULT { LOOKS } else { 1 };
    for look in 0..looks {
        if look > 0 {
            tokio::time::sleep(LOOK_PAUSE).await;
        }
        let found = find(call, "", "serviceaccounts", call.namespace, name);
        if found.is_some() {
            return found;
        }
    }
    None
}

/// Pods of a node's own files have nothing from the API.
fn check_mirror(call: &Call<'_>, pod: &Value) -> Result<(), Box<Status>> {
    let spec = &pod["spec"];
    if !spec.text("serviceAccountName").is_empty() {
        return Err(forbidden(call, pod, "a mirror pod may not reference service accounts"));
    }
    let pulls = spec["imagePullSecrets"].as_array().is_some_and(|pulls| !pulls.is_empty());
    let mut lists = CONTAINERS.into_iter().flat_map(|(what, list)| secret_references(spec, what, list));
    if pulls || volume_secrets(spec).next().is_some() || lists.next().is_some() {
        return Err(forbidden(call, pod, "a mirror pod may not reference secrets"));
    }
    let volumes = spec["volumes"].as_array().into_iter().flatten();
    let mut sources = volumes.flat_map(|volume| volume["projected"]["sources"].as_array().into_iter().flatten());
    if sources.any(|source| source.has("serviceAccountToken")) {
        return Err(forbidden(call, pod, "a mirror pod may not use ServiceAccountToken volume projections"));
    }
    Ok(())
}

/// The pod decides, then the account; otherwise it gets one.
fn wants_token(spec: &Value, account: &Value) -> bool {
    let said = |value: &Value| value.get("automountServiceAccountToken").and_then(Value::as_bool);
    said(spec).or_else(|| said(account)).unwrap_or(true)
}

fn mount_token(spec: &mut Value, fresh_name: &str) {
    let volumes = spec["volumes"].as_array().map_or(&[] as &[Value], Vec::as_slice);
    let present = volumes.iter().map(|volume| volume.text("name")).find(|name| name.starts_with(VOLUME_PREFIX));
    let is_present = present.is_some();
    let volume = present.unwrap_or(fresh_name).to_owned();
    let mut mounted = false;
    for list in ["initContainers", "containers"] {
        for container in spec.items_mut(list) {
            let mut mounts = container["volumeMounts"].as_array().cloned().unwrap_or_default();
            if mounts.iter().any(|mount| mount.text("mountPath") == TOKEN_FOLDER) {
                continue;
            }
            mounts.push(json!({"name": volume, "readOnly": true, "mountPath": TOKEN_FOLDER}));
            container.set("volumeMounts", mounts);
            mounted = true;
        }
    }
    if mounted && !is_present {
        let mut volumes = spec["volumes"].as_array().cloned().unwrap_or_default();
        volumes.push(token_volume(&volume));
        spec.set("volumes", volumes);
    }
}

fn token_volume(name: &str) -> Value {
    json!({"name": name, "projected": {"defaultMode": 420, "sources": [
        {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [
            {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
        ]}},
    ]}})
}

/// Secrets in the environment of the containers of a list: which container, how, and which secret.
fn secret_references<'v>(spec: &'v Value, what: &'v str, list: &str) -> impl Iterator<Item = (String, &'v str)> {
    spec[list].as_array().into_iter().flatten().flat_map(move |container| {
        let name = container.text("name");
        let env = container["env"].as_array().into_iter().flatten().filter_map(move |env| {
            let secret = env.find(&["valueFrom", "secretKeyRef"])?.text("name");
            Some((format!("{what} {name} with envVar {} referencing", env.text("name")), secret))
        });
        let from = container["envFrom"].as_array().into_iter().flatten().filter_map(move |env| {
            let secret = env.find(&["secretRef"])?.text("name");
            Some((format!("{what} {name} with envFrom referencing"), secret))
        });
        env.chain(from)
    })
}

/// Secrets that volumes are made of or opened with. Kubernetes asks only about volumes that are a secret as a whole; one that is
/// projected, or handed to a driver, is read all the same.
fn volume_secrets(spec: &Value) -> impl Iterator<Item = (String, &str)> {
    let volumes = spec["volumes"].as_array().into_iter().flatten();
    volumes.flat_map(node::secrets_in).map(|secret| ("volume with".to_owned(), secret))
}

/// An account that limits its secrets is asked about each one that the pod uses.
fn check_secrets<'v>(
    call: &Call<'_>,
    pod: &Value,
    account: &Value,
    mut used: impl Iterator<Item = (String, &'v str)>,
) -> Result<(), Box<Status>> {
    if !limits_secrets(account) {
        return Ok(());
    }
    let allowed = names(account, "secrets");
    match used.find(|(_, name)| !allowed.contains(name)) {
        None => Ok(()),
        Some((place, secret)) => {
            let who = account["metadata"].text("name");
            let why = format!(
                "{place} secret.secretName=\"{secret}\" is not allowed because service account {who} does not reference that secret"
            );
            Err(forbidden(call, pod, why))
        }
    }
}

fn check_pulls(call: &Call<'_>, pod: &Value, account: &Value) -> Result<(), Box<Status>> {
    if !limits_secrets(account) {
        return Ok(());
    }
    let allowed = names(account, "imagePullSecrets");
    let used = names(&pod["spec"], "imagePullSecrets").into_iter().enumerate();
    match used.into_iter().find(|(_, name)| !allowed.contains(name)) {
        None => Ok(()),
        Some((index, name)) => {
            let who = account["metadata"].text("name");
            let why = format!(
                "imagePullSecrets[{index}].name=\"{name}\" is not allowed because service account {who} does not reference that imagePullSecret"
            );
            Err(forbidden(call, pod, why))
        }
    }
}

fn limits_secrets(account: &Value) -> bool {
    let limits = account["metadata"]["annotations"].text("kubernetes.io/enforce-mountable-secrets");
    matches!(limits, "1" | "t" | "T" | "true" | "TRUE" | "True")
}

fn names<'v>(object: &'v Value, list: &str) -> Vec<&'v str> {
    object[list].as_array().into_iter().flatten().map(|item| item.text("name")).collect()
}

#[cfg(test)]
mod tests;
