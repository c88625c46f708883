//! Carries a plan out.

use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet, StatefulSetSpec, StatefulSetStatus};
use k8s_openapi::api::core::v1 as core;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use serde_json::json;
use setpoint_runtime::controller::{Context, Error};
use setpoint_runtime::events::{self, Recorder};
use setpoint_runtime::retry;
use setpoint_runtime::slow_start::slow_start;

use super::claims::{Claimant, Claims};
use super::identity::{self, NAME_LABEL, pod_name};
use super::plan::{ClaimFacts, Plan, Revision, Step};
use super::status::is_same;
use crate::claim::reference_to;
use crate::pod::Pod;
use crate::pod_control::{is_namespace_terminating, message};
use crate::revisions::{name_of, template_of};
use crate::wiring::{normal, warning};

/// What a run acts with.
pub struct Act<'a> {
    pub context: &'a Context,
    pub recorder: &'a Recorder,
    pub set: &'a StatefulSet,
    pub spec: &'a StatefulSetSpec,
    pub claims: &'a Claims<'a>,
    pub current: &'a ControllerRevision,
    pub update: &'a ControllerRevision,
}

impl Act<'_> {
    /// Takes the steps of a plan, until one fails.
    pub async fn carry_out(&self, plan: &Plan) -> Result<(), Error> {
        for stage in &plan.stages {
            if plan.is_parallel {
                let (_, error) = slow_start(stage.len(), 1, |at| self.take(&stage[at])).await;
                error.map_or(Ok(()), Err)?;
            } else {
                for step in stage {
                    self.take(step).await?;
                }
            }
        }
        Ok(())
    }

    /// Writes the status if it says something new.
    pub async fn write_status(&self, old: &StatefulSetStatus, new: StatefulSetStatus) -> Result<(), Error> {
        if is_same(old, &new) {
            return Ok(());
        }
        let api: Api<StatefulSet> = Api::namespaced(self.context.client().clone(), self.namespace());
        let set = StatefulSet { status: Some(new), ..self.set.clone() };
        match api.replace_status(self.name(), &PostParams::default(), &set).await {
            Err(error) if retry::is_not_found(&error) => Ok(()),
            other => Ok(other.map(drop)?),
        }
    }

    async fn take(&self, step: &Step) -> Result<(), Error> {
        match step {
            Step::Create { ordinal, revision } => self.create(*ordinal, *revision).await,
            Step::Delete(pod) => self.delete(pod).await,
            Step::Mend { ordinal, pod } => self.mend(*ordinal, pod).await,
            Step::Claims { ordinal, pod } => self.make_claims(*ordinal, &pod.metadata.name, &pod.metadata.uid).await,
            Step::Retain { ordinal, pod } => {
                let pod = Claimant { name: &pod.metadata.name, uid: &pod.metadata.uid, is_condemned: true };
                self.retain(*ordinal, &pod).await
            }
        }
    }

    async fn create(&self, ordinal: i64, revision: Revision) -> Result<(), Error> {
        let revision = match revision {
            Revision::Current => self.current,
            Revision::Update => self.update,
        };
        let name = pod_name(self.name(), ordinal);
        if let Err(error) = self.make_claims(ordinal, &name, "").await {
            self.say("Create", "Pod", &name, Some(&error.to_string()));
            return Err(error);
        }
        let template = template_of(revision)
            .ok_or_else(|| Error::terminal(format!("revision {} holds no template", name_of(revision))))?;
        let owner = reference_to(self.set)?;
        let pod = identity::new_pod((self.name(), self.spec), (&template, name_of(revision)), ordinal, owner);
        match self.pods().create(&PostParams::default(), &pod).await {
            Ok(_) => {
                self.say("Create", "Pod", &name, None);
                Ok(())
            }
            Err(error) if is_namespace_terminating(&error) => Ok(()),
            // The cache doesn't know it yet, or it is somebody else's.
            Err(error) if retry::is_already_exists(&error) => Err(error.into()),
            Err(error) => {
                self.say("Create", "Pod", &name, Some(&message(&error)));
                Err(error.into())
            }
        }
    }

    async fn delete(&self, pod: &Pod) -> Result<(), Error> {
        let uid = Some(pod.metadata.uid.to_string());
        let how = DeleteParams {
            preconditions: Some(Preconditions { uid, resource_version: None }),
            ..DeleteParams::default()
        };
        match self.pods().delete(&pod.metadata.name, &how).await {
            Ok(_) => self.say("Delete", "Pod", &pod.metadata.name, None),
            Err(error) if retry::is_not_found(&error) => {}
            // Perhaps another of the same name; the next run knows.
            Err(error) if retry::is_conflict(&error) => return Err(error.into()),
            Err(error) => {
                self.say("Delete", "Pod", &pod.metadata.name, Some(&message(&error)));
                return Err(error.into());
            }
        }
        Ok(())
    }

    async fn mend(&self, ordinal: i64, pod: &Pod) -> Result<(), Error> {
        let name = &*pod.metadata.name;
        let mended = async {
            let is_mounted = self.claims.are_mounted(ordinal, pod);
            if is_mounted {
                let claimant = Claimant { name, uid: &pod.metadata.uid, is_condemned: false };
                self.retain(ordinal, &claimant).await?;
            } else {
                self.make_claims(ordinal, name, &pod.metadata.uid).await?;
            }
            if is_mounted && identity::is_labelled(pod) {
                return Ok(());
            }
            let labels = json!({NAME_LABEL: name, identity::INDEX_LABEL: ordinal.to_string()});
            let mut patch = json!({"metadata": {"uid": &*pod.metadata.uid, "labels": labels}});
            if !is_mounted {
                patch["spec"] = json!({"volumes": identity::volumes(self.name(), self.spec, ordinal, Vec::new())});
            }
            self.pods().patch(name, &PatchParams::default(), &Patch::Strategic(patch)).await?;
            Ok(())
        };
        let mended: Result<(), Error> = mended.await;
        self.say("Update", "Pod", name, mended.as_ref().err().map(ToString::to_string).as_deref());
        mended
    }

    /// Makes the claims of a pod that aren't there, and sees to it that those that are go with what they should.
    async fn make_claims(&self, ordinal: i64, pod: &str, uid: &str) -> Result<(), Error> {
        for claim in self.claims.present(ordinal) {
            if claim.metadata.deletion_timestamp.is_some() {
                let name = claim.metadata.name.as_deref().unwrap_or_default();
                return Err(Error::transient(format!("pvc {name} is being deleted")));
            }
        }
        for claim in self.claims.missing(ordinal) {
            let name = claim.metadata.name.as_deref().unwrap_or_default();
            let said = format!("{name} Pod {pod}");
            match self.volume_claims().create(&PostParams::default(), &claim).await {
                Ok(_) => self.say("Create", "Claim", &said, None),
                Err(error) if retry::is_already_exists(&error) => return Err(error.into()),
                Err(error) => {
                    let said = format!("{name} for Pod {pod}");
                    self.say("Create", "Claim", &said, Some(&message(&error)));
                    return Err(Error::transient(format!("failed to create PVC {name}: {}", message(&error))));
                }
            }
        }
        self.retain(ordinal, &Claimant { name: pod, uid, is_condemned: false }).await
    }

    /// Lets the claims of a pod go with the pod, the set, or nothing, as the policy says.
    async fn retain(&self, ordinal: i64, pod: &Claimant<'_>) -> Result<(), Error> {
        for claim in self.claims.present(ordinal) {
            let name = claim.metadata.name.as_deref().unwrap_or_default();
            if self.claims.is_foreign(&claim, pod) {
                let note = format!(
                    "PersistentVolumeClaim {name} has a conflicting OwnerReference that acts as a manging controller, \
                     the retention policy is ignored for this claim"
                );
                warning(self.recorder, events::reference(self.set), "ConflictingController", "RetainClaim", note);
            }
            let Some(owners) = self.claims.owners(&claim, pod) else { continue };
            let metadata = json!({"uid": claim.metadata.uid, "resourceVersion": claim.metadata.resource_version,
                "ownerReferences": owners});
            let patch = Patch::Merge(json!({ "metadata": metadata }));
            match self.volume_claims().patch(name, &PatchParams::default(), &patch).await {
                Err(error) if retry::is_not_found(&error) => {}
                other => drop(other?),
            }
        }
        Ok(())
    }

    /// Tells users what was done to a pod or a claim, or why it could not be.
    fn say(&self, verb: &str, what: &str, name: &str, error: Option<&str>) {
        let (set, action) = (self.name(), format!("{verb}{what}"));
        let about = events::reference(self.set);
        match error {
            None => {
                let end = if what == "Claim" { "success" } else { "successful" };
                let note = format!("{verb} {what} {name} in StatefulSet {set} {end}");
                normal(self.recorder, about, &format!("Successful{verb}"), &action, note);
            }
            Some(error) => {
                let note = format!("{verb} {what} {name} in StatefulSet {set} failed error: {error}");
                warning(self.recorder, about, &format!("Failed{verb}"), &action, note);
            }
        }
    }

    fn pods(&self) -> Api<core::Pod> {
        Api::namespaced(self.context.client().clone(), self.namespace())
    }

    fn volume_claims(&self) -> Api<core::PersistentVolumeClaim> {
        Api::namespaced(self.context.client().clone(), self.namespace())
    }

    fn name(&self) -> &str {
        self.set.metadata.name.as_deref().unwrap_or_default()
    }

    fn namespace(&self) -> &str {
        self.set.metadata.namespace.as_deref().unwrap_or_default()
    }
}
