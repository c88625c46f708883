//! Makes the kinds known to an API server, and who may do what with them.

use std::time::Duration;

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, CustomResourceExt, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Firmware, Rollout, Vehicle};
use crate::hub::{self, address};

/// Who owns the definitions.
const MANAGER: &str = "setpoint-fleet";

/// How often to look whether the kinds are served, and the pause between two looks.
const LOOKS_MAX: usize = 300;
const LOOK_PAUSE: Duration = Duration::from_millis(20);

/// The definitions of all kinds.
#[must_use]
pub fn definitions() -> Vec<CustomResourceDefinition> {
    vec![Vehicle::crd(), Firmware::crd(), Rollout::crd()]
}

/// Makes all kinds known, and waits until they are served. Doing it again changes nothing.
///
/// # Errors
/// What the API server says.
pub async fn install(client: &Client) -> Result<(), kube::Error> {
    for definition in definitions() {
        let name = definition.metadata.name.clone().unwrap_or_default();
        apply::<CustomResourceDefinition>(client, &name, &definition).await?;
    }
    for (name, role) in roles() {
        apply::<ClusterRole>(client, &name, &role).await?;
    }
    for (name, binding) in bindings() {
        apply::<ClusterRoleBinding>(client, &name, &binding).await?;
    }
    for (role, binding) in doors() {
        apply_at(Api::<Role>::namespaced(client.clone(), address::NAMESPACE), &role).await?;
        apply_at(Api::<RoleBinding>::namespaced(client.clone(), address::NAMESPACE), &binding).await?;
    }
    served(client).await
}

async fn apply<K>(client: &Client, name: &str, object: &(impl Serialize + std::fmt::Debug)) -> Result<(), kube::Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    patch(&Api::<K>::all(client.clone()), name, object).await
}

/// The same where the object says its name.
async fn apply_at<K>(api: Api<K>, object: &Value) -> Result<(), kube::Error>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    patch(&api, object["metadata"]["name"].as_str().unwrap_or_default(), object).await
}

async fn patch<K>(api: &Api<K>, name: &str, object: &(impl Serialize + std::fmt::Debug)) -> Result<(), kube::Error>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    let params = PatchParams::apply(MANAGER).force();
    match api.patch(name, &params, &Patch::Apply(object)).await {
        // Another process makes the same at this moment.
        Err(kube::Error::Api(status)) if status.code == 409 => {
            api.patch(name, &params, &Patch::Apply(object)).await.map(drop)
        }
        outcome => outcome.map(drop),
    }
}

/// A kind is served a moment after its definition is there.
async fn served(client: &Client) -> Result<(), kube::Error> {
    let list = kube::api::ListParams::default().limit(1);
    for look in 1.. {
        let vehicles = Api::<Vehicle>::all(client.clone()).list_metadata(&list).await.map(drop);
        let firmwares = Api::<Firmware>::all(client.clone()).list_metadata(&list).await.map(drop);
        let rollouts = Api::<Rollout>::all(client.clone()).list_metadata(&list).await.map(drop);
        match vehicles.and(firmwares).and(rollouts) {
            Err(kube::Error::Api(status)) if status.code == 404 && look < LOOKS_MAX => {
                tokio::time::sleep(LOOK_PAUSE).await;
            }
            outcome => return outcome,
        }
    }
    Ok(())
}

/// What each controller may do, and what people with the usual roles may: nobody of them writes status.
fn roles() -> Vec<(String, Value)> {
    let rule = |resources: &[&str], verbs: &[&str]| json!({"apiGroups": [super::GROUP], "resources": resources, "verbs": verbs});
    let certificates = |resources: &[&str], verbs: &[&str]| json!({"apiGroups": ["certificates.k8s.io"], "resources": resources, "verbs": verbs});
    let read = ["get", "list", "watch"];
    let write = ["create", "delete", "deletecollection", "patch", "update"];
    let kinds = ["vehicles", "firmwares", "rollouts"];
    let statuses = ["vehicles/status", "firmwares/status", "rollouts/status"];
    let events =
        json!({"apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch", "update"]});
    let role = |name: &str, labels: Value, rules: Vec<Value>| {
        let metadata = json!({"name": name, "labels": labels});
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": metadata, "rules": rules,
        });
        (name.to_owned(), role)
    };
    let controller = |name: &str, rules: Vec<Value>| role(&format!("system:controller:{name}"), json!({}), rules);
    let aggregate = |to: &str| json!({format!("rbac.authorization.k8s.io/aggregate-to-{to}"): "true"});
    vec![
        controller(
            "vehicle-controller",
            vec![rule(&kinds, &read), rule(&["vehicles/status"], &["patch", "update"]), events.clone()],
        ),
        controller(
            "firmware-controller",
            vec![rule(&kinds, &read), rule(&["firmwares/status"], &["patch", "update"]), events.clone()],
        ),
        controller(
            "fleet-hub",
            vec![rule(&kinds, &read), certificates(&["certificatesigningrequests"], &["create", "get"])],
        ),
        controller(
            "vehicle-approver",
            vec![
                rule(&["vehicles"], &["get", "patch"]),
                certificates(&["certificatesigningrequests"], &read),
                certificates(&["certificatesigningrequests/approval"], &["patch", "update"]),
                json!({
                    "apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "verbs": ["approve"],
                    "resourceNames": [crate::approver::SIGNER],
                }),
                events.clone(),
            ],
        ),
        controller(
            "rollout-controller",
            vec![
                rule(&kinds, &read),
                rule(&["vehicles"], &["patch"]),
                rule(&["rollouts/status"], &["patch", "update"]),
                events,
            ],
        ),
        role("setpoint:fleet-view", aggregate("view"), vec![rule(&[&kinds[..], &statuses[..]].concat(), &read)]),
        role("setpoint:fleet-edit", aggregate("edit"), vec![rule(&kinds, &write)]),
    ]
}

/// Controllers by their service accounts.
fn bindings() -> Vec<(String, Value)> {
    let binding = |controller: &str| {
        let name = format!("system:controller:{controller}");
        let subject = json!({"kind": "ServiceAccount", "name": controller, "namespace": "kube-system"});
        let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name});
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": name}, "subjects": [subject], "roleRef": role,
        });
        (name, binding)
    };
    ["vehicle-controller", "firmware-controller", "rollout-controller", "vehicle-approver", "fleet-hub"]
        .map(binding)
        .to_vec()
}

/// Hubs say where they are, and everybody who is logged in may know it: roles with their bindings.
fn doors() -> [(Value, Value); 2] {
    let door = |name: &str, verbs: &[&str], subject: Value| {
        let rule =
            json!({"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [address::NAME], "verbs": verbs});
        let metadata = json!({"name": name, "namespace": address::NAMESPACE});
        let api = "rbac.authorization.k8s.io";
        (
            json!({"apiVersion": format!("{api}/v1"), "kind": "Role", "metadata": metadata, "rules": [rule]}),
            json!({
                "apiVersion": format!("{api}/v1"), "kind": "RoleBinding", "metadata": metadata, "subjects": [subject],
                "roleRef": {"apiGroup": api, "kind": "Role", "name": name},
            }),
        )
    };
    let hub = json!({"kind": "ServiceAccount", "name": hub::NAME, "namespace": "kube-system"});
    let all = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:authenticated"});
    [
        door("setpoint:fleet-hub-publisher", &["create", "patch", "update"], hub),
        door("setpoint:fleet-hubs-viewer", &["get"], all),
    ]
}
