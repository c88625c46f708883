//! Every pod has a service account, and its token unless someone says no.

use std::time::Duration;

use serde_json::{Value, json};
use setpoint_api::{GroupResource, Status};
use setpoint_schema::Edit;

use super::{find, forbidden};
use crate::call::Call;

const DEFAULT: &str = "default";
const TOKEN_FOLDER: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const VOLUME_PREFIX: &str = "kube-api-access-";
const MIRROR: &str = "kubernetes.io/config.mirror";

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
        let missing = Status::not_found(&GroupResource::new("", "serviceaccount"), &name);
        let namespace = call.namespace.unwrap_or_default();
        return Err(forbidden(call, pod, format!("error looking up service account {namespace}/{name}: {missing}")));
    };
    let spec = pod.ensure("spec");
    if wants_token(spec, &account) {
        mount_token(spec, &format!("{VOLUME_PREFIX}{}", call.server.chance.suffix()));
    }
    let is_empty = |value: &Value| value.as_array().is_none_or(Vec::is_empty);
    if is_empty(&spec["imagePullSecrets"]) && !is_empty(&account["imagePullSecrets"]) {
        spec.set("imagePullSecrets", account["imagePullSecrets"].clone());
    }
    check_secrets(call, pod, &account)
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
    let volumes = || spec["volumes"].as_array().into_iter().flatten();
    let sources = || volumes().flat_map(|volume| volume["projected"]["sources"].as_array().into_iter().flatten());
    let pulls = spec["imagePullSecrets"].as_array().is_some_and(|pulls| !pulls.is_empty());
    let secrets = volumes().any(|volume| volume.has("secret")) || sources().any(|source| source.has("secret"));
    if pulls || secrets || secret_references(spec).next().is_some() {
        return Err(forbidden(call, pod, "a mirror pod may not reference secrets"));
    }
    if sources().any(|source| source.has("serviceAccountToken")) {
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

/// Secrets in the environment of containers: which container, how, and which secret.
fn secret_references(spec: &Value) -> impl Iterator<Item = (String, &str)> {
    let lists = [("init container", "initContainers"), ("container", "containers")];
    lists.into_iter().flat_map(move |(what, list)| {
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
    })
}

/// An account that limits its secrets is asked about each one that the pod uses.
fn check_secrets(call: &Call<'_>, pod: &Value, account: &Value) -> Result<(), Box<Status>> {
    let limits = account["metadata"]["annotations"].text("kubernetes.io/enforce-mountable-secrets");
    if !matches!(limits, "1" | "t" | "T" | "true" | "TRUE" | "True") {
        return Ok(());
    }
    let names = |list: &str| -> Vec<String> {
        let all = account[list].as_array().into_iter().flatten();
        all.map(|secret| secret.text("name").to_owned()).collect()
    };
    let (secrets, pulls) = (names("secrets"), names("imagePullSecrets"));
    let (spec, who) = (&pod["spec"], account["metadata"].text("name"));
    let volumes = spec["volumes"].as_array().into_iter().flatten();
    let mounted = volumes.filter_map(|volume| {
        Some(("volume with".to_owned(), volume.get("secret").filter(|secret| !secret.is_null())?.text("secretName")))
    });
    if let Some((place, secret)) =
        mounted.chain(secret_references(spec)).find(|(_, name)| !secrets.iter().any(|s| s == name))
    {
        let why = format!(
            "{place} secret.secretName=\"{secret}\" is not allowed because service account {who} does not reference that secret"
        );
        return Err(forbidden(call, pod, why));
    }
    let asked = spec["imagePullSecrets"].as_array().into_iter().flatten().map(|pull| pull.text("name")).enumerate();
    let mut asked = asked.filter(|(_, name)| !pulls.iter().any(|pull| pull == name));
    if let Some((index, name)) = asked.next() {
        let why = format!(
            "imagePullSecrets[{index}].name=\"{name}\" is not allowed because service account {who} does not reference that imagePullSecret"
        );
        return Err(forbidden(call, pod, why));
    }
    Ok(())
}
