//! Makes and deletes pods for their owners, and tells users about it.

use k8s_openapi::api::core::v1::{ObjectReference, Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Client;
use kube::api::{Api, DeleteParams, PostParams};
use kube::core::{PartialObjectMeta, Request};
use setpoint_runtime::events::Recorder;
use setpoint_runtime::retry;

use crate::pod;
use crate::wiring::{normal, warning};

/// Names of pods get five letters after this many bytes of their owner's name.
const NAME_STEM_MAX: usize = 58;

/// Makes and deletes pods of one owner.
pub struct PodControl<'a> {
    pub client: &'a Client,
    pub recorder: &'a Recorder,
    /// Whom events are about.
    pub owner: ObjectReference,
}

/// The pod that a template describes, with a name that the server completes.
pub fn from_template(template: &PodTemplateSpec, owner_name: &str, owner: OwnerReference) -> Pod {
    let described = template.metadata.clone().unwrap_or_default();
    let stem = owner_name.get(..NAME_STEM_MAX.min(owner_name.len())).unwrap_or(owner_name);
    Pod {
        metadata: ObjectMeta {
            generate_name: Some(format!("{stem}-")),
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
    pub async fn create(&self, pod: &Pod) -> Result<PartialObjectMeta<Pod>, kube::Error> {
        let path = Api::<Pod>::namespaced(self.client.clone(), self.namespace()).resource_url().to_owned();
        let body = serde_json::to_vec(pod).map_err(kube::Error::SerdeError)?;
        let request = Request::new(path).create(&PostParams::default(), body).map_err(kube::Error::BuildRequest)?;
        // The server sends the whole pod; only its metadata is decoded.
        match self.client.request::<PartialObjectMeta<Pod>>(request).await {
            Ok(made) => {
                let name = made.metadata.name.clone().unwrap_or_default();
                let note = format!("Created pod: {name}");
                normal(self.recorder, self.owner.clone(), "SuccessfulCreate", "CreatePod", note);
                Ok(made)
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

    /// Deletes a pod; one that is gone already, or that is another of the same name, is fine.
    pub async fn delete(&self, pod: &pod::Pod) -> Result<(), kube::Error> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &pod.metadata.namespace);
        let uid = Some(pod.metadata.uid.to_string());
        let precondition = kube::api::Preconditions { uid, resource_version: None };
        let how = DeleteParams { preconditions: Some(precondition), ..DeleteParams::default() };
        match api.delete(&pod.metadata.name, &how).await {
            Ok(_) => {
                let note = format!("Deleted pod: {}", pod.metadata.name);
                normal(self.recorder, self.owner.clone(), "SuccessfulDelete", "DeletePod", note);
                Ok(())
            }
            Err(error) if retry::is_not_found(&error) || retry::is_conflict(&error) => Ok(()),
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
