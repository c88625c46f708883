//! Makes and deletes pods for their owners, and tells users about it.

use k8s_openapi::api::core::v1::{ObjectReference, Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Client;
use kube::api::{Api, DeleteParams, PostParams};
use kube::core::Request;
use serde::Deserialize;
use serde::de::IgnoredAny;
use setpoint_runtime::events::Recorder;
use setpoint_runtime::retry;

use crate::pod;
use crate::wiring::{normal, warning};

/// Longest name of a pod. An owner whose name has no room for the dash goes without it.
const NAME_MAX: usize = 253;

/// Makes and deletes pods of one owner.
pub struct PodControl<'a> {
    pub client: &'a Client,
    pub recorder: &'a Recorder,
    /// Whom events are about.
    pub owner: ObjectReference,
}

/// All that is read of a pod that was made: reading the rest would cost more than making the request.
#[derive(Deserialize)]
struct Made {
    metadata: MadeMeta,
}

#[derive(Deserialize)]
struct MadeMeta {
    name: String,
}

/// The pod that a template describes, with a name that the server completes.
pub fn from_template(template: &PodTemplateSpec, owner_name: &str, owner: OwnerReference) -> Pod {
    let described = template.metadata.clone().unwrap_or_default();
    let dash = if owner_name.len() < NAME_MAX { "-" } else { "" };
    Pod {
        metadata: ObjectMeta {
            generate_name: Some(format!("{owner_name}{dash}")),
            labels: described.labels,
            annotations: described.annotations,
            finalizers: described.finalizers,
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    }
}

impl PodControl<'_> {
    /// Makes a pod in the owner's namespace.
    pub async fn create(&self, pod: &Pod) -> Result<(), kube::Error> {
        self.create_encoded(serde_json::to_vec(pod).map_err(kube::Error::SerdeError)?).await
    }

    /// Makes a pod from its JSON: whoever makes many alike encodes them once.
    pub async fn create_encoded(&self, body: Vec<u8>) -> Result<(), kube::Error> {
        let path = Api::<Pod>::namespaced(self.client.clone(), self.namespace()).resource_url().to_owned();
        let request = Request::new(path).create(&PostParams::default(), body).map_err(kube::Error::BuildRequest)?;
        match self.client.request::<Made>(request).await {
            Ok(made) => {
                let note = format!("Created pod: {}", made.metadata.name);
                normal(self.recorder, self.owner.clone(), "SuccessfulCreate", "CreatePod", note);
                Ok(())
            }
            Err(error) => {
                if !is_namespace_terminating(&error) {
                    let note = format!("Error creating: {}", message(&error));
                    warning(self.recorder, self.owner.clone(), "FailedCreate", "CreatePod", note);
                }
                Err(error)
            }
        }
    }

    /// Deletes a pod; one that is gone already is fine. If it is another of the same name that is a conflict, and the next
    /// run will know.
    pub async fn delete(&self, pod: &pod::Pod) -> Result<(), kube::Error> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &pod.metadata.namespace);
        let uid = Some(pod.metadata.uid.to_string());
        let precondition = kube::api::Preconditions { uid, resource_version: None };
        let how = DeleteParams { preconditions: Some(precondition), ..DeleteParams::default() };
        let request = Request::new(api.resource_url()).delete(&pod.metadata.name, &how);
        let request = request.map_err(kube::Error::BuildRequest)?;
        // The answer may be the whole pod; nobody reads it.
        match self.client.request::<IgnoredAny>(request).await {
            Ok(_) => {
                let note = format!("Deleted pod: {}", pod.metadata.name);
                normal(self.recorder, self.owner.clone(), "SuccessfulDelete", "DeletePod", note);
                Ok(())
            }
            Err(error) if retry::is_not_found(&error) => Ok(()),
            Err(error) => {
                let note = format!("Error deleting: {}", message(&error));
                warning(self.recorder, self.owner.clone(), "FailedDelete", "DeletePod", note);
                Err(error)
            }
        }
    }

    fn namespace(&self) -> &str {
        self.owner.namespace.as_deref().unwrap_or_default()
    }
}

/// What the server said, without what the client says around it.
pub fn message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

/// Whether the namespace is going: nothing can be made in it, and nobody has to be told.
pub fn is_namespace_terminating(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}

#[cfg(test)]
pub mod tests {
    use serde_json::json;

    use super::*;

    /// What a client says when the server refuses.
    pub fn refusal(code: u16, message: &str) -> kube::Error {
        let status = json!({"status": "Failure", "code": code, "message": message, "reason": "Any"});
        kube::Error::Api(serde_json::from_value(status).unwrap())
    }

    #[test]
    fn a_pod_has_what_its_template_has_and_a_name_of_its_owners() {
        let template: PodTemplateSpec = serde_json::from_value(json!({
            "metadata": {"name": "ignored", "labels": {"app": "web"}, "annotations": {"a": "b"}, "finalizers": ["x/y"]},
            "spec": {"containers": [{"name": "c"}]},
        }))
        .unwrap();
        let pod =
            from_template(&template, "web", OwnerReference { name: "web".to_owned(), ..OwnerReference::default() });
        let said = serde_json::to_value(&pod).unwrap();
        assert_eq!(said["spec"], json!({"containers": [{"name": "c"}]}));
        assert_eq!(said["metadata"]["generateName"], "web-");
        assert_eq!(said["metadata"].get("name"), None);
        assert_eq!(said["metadata"]["labels"], json!({"app": "web"}));
        assert_eq!(said["metadata"]["annotations"], json!({"a": "b"}));
        assert_eq!(said["metadata"]["finalizers"], json!(["x/y"]));
        assert_eq!(said["metadata"]["ownerReferences"][0]["name"], "web");
        let long = from_template(&template, &"x".repeat(253), OwnerReference::default());
        assert_eq!(long.metadata.generate_name.map(|name| name.len()), Some(253), "there is no room for the dash");
    }

    #[test]
    fn a_namespace_that_goes_is_told_by_its_cause() {
        let mut error = refusal(403, "going");
        assert!(!is_namespace_terminating(&error));
        if let kube::Error::Api(status) = &mut error {
            let details = json!({"causes": [{"reason": "NamespaceTerminating", "message": "", "field": ""}]});
            status.details = Some(serde_json::from_value(details).unwrap());
        }
        assert!(is_namespace_terminating(&error));
    }
}
