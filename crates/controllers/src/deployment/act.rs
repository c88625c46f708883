//! Carries out what was decided: makes, changes and deletes sets, and writes the deployment.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus, ReplicaSet, ReplicaSetSpec};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use serde_json::json;
use setpoint_runtime::cache::Cached;
use setpoint_runtime::controller::{Context, Error};
use setpoint_runtime::events::{self, Recorder};
use setpoint_runtime::retry;

use super::annotations::{self, Annotations, REVISION};
use super::bounds::Bounds;
use super::conditions::CREATE_FAILED;
use super::family::{Family, Member};
use super::rollback::Rollback;
use super::status::{self, Report};
use super::{plan, template};
use crate::claim::reference_to;
use crate::pod_control::{is_namespace_terminating, message};
use crate::replica_set::Replicated;
use crate::wiring::{normal, warning};

/// Does things for a deployment.
pub struct Hand<'a> {
    pub context: &'a Context,
    pub recorder: &'a Recorder,
    pub deployment: &'a Deployment,
    pub bounds: Bounds,
}

impl Hand<'_> {
    /// Makes the set of the deployment's template, if there is none. False if nothing can be made in the namespace any more.
    pub async fn make_new(&self, family: &mut Family, report: &mut Report<'_>) -> Result<bool, Error> {
        if family.new.is_some() {
            return Ok(true);
        }
        let set = self.new_set(family, report.as_said().collision_count)?;
        let name = set.metadata.name.clone().unwrap_or_default();
        match self.sets().create(&PostParams::default(), &set).await {
            Ok(made) => {
                let member = Member::of(Arc::new(made));
                if member.replicas > 0 {
                    let note = format!("Scaled up replica set {name} from 0 to {}", member.replicas);
                    self.say("ScalingReplicaSet", "Scale", note);
                }
                report.note_created(&name);
                family.new = Some(member);
                Ok(true)
            }
            Err(error) if is_namespace_terminating(&error) => Ok(false),
            Err(error) if retry::is_already_exists(&error) => Err(self.note_taken(&name, report).await?),
            Err(error) => {
                let note = format!("Failed to create new replica set {name:?}: {}", message(&error));
                self.warn(CREATE_FAILED, "Create", note.clone());
                report.note_create_failed(note);
                self.write_status(&report.as_said(), None).await?;
                Err(error.into())
            }
        }
    }

    /// The name is taken: by our own set that the cache doesn't show yet, or by another, and then the next one gets another name.
    async fn note_taken(&self, name: &str, report: &mut Report<'_>) -> Result<Error, Error> {
        let taken = self.sets().get(name).await?;
        let is_own = Cached::controller(&taken).is_some_and(|owner| owner.uid == Cached::uid(self.deployment));
        let wanted = self.deployment.spec.as_ref().map(|spec| &spec.template);
        if is_own && template::is_same(taken.template(), wanted) {
            return Ok(Error::transient(format!("replica set {name} is not in the cache yet")));
        }
        report.note_collision();
        self.write_status(&report.as_said(), None).await?;
        Ok(Error::transient(format!("the name {name} is taken by another replica set")))
    }

    fn new_set(&self, family: &Family, collisions: Option<i32>) -> Result<ReplicaSet, Error> {
        let spec = self.deployment.spec.as_ref().ok_or_else(|| Error::terminal("a deployment without spec"))?;
        let hash = template::hash(&spec.template, collisions);
        let mut pods = spec.template.clone();
        let metadata = pods.metadata.get_or_insert_default();
        let labels = template::with_hash(metadata.labels.as_ref(), &hash);
        metadata.labels = Some(labels.clone());
        let selector = LabelSelector {
            match_labels: Some(template::with_hash(spec.selector.match_labels.as_ref(), &hash)),
            match_expressions: spec.selector.match_expressions.clone(),
        };
        let mut notes = Annotations::new();
        let given = self.deployment.metadata.annotations.clone().unwrap_or_default();
        annotations::refresh(&mut notes, &given, family.next_revision());
        annotations::note_size(&mut notes, &self.bounds);
        let replicas = plan::new_size(&self.bounds, family.total(), 0);
        Ok(ReplicaSet {
            metadata: ObjectMeta {
                name: Some(template::set_name(self.deployment.metadata.name.as_deref().unwrap_or_default(), &hash)),
                namespace: self.deployment.metadata.namespace.clone(),
                owner_references: Some(vec![reference_to(self.deployment)?]),
                labels: Some(labels),
                annotations: Some(notes),
                ..ObjectMeta::default()
            },
            spec: Some(ReplicaSetSpec {
                replicas: Some(i32::try_from(replicas).unwrap_or(i32::MAX)),
                min_ready_seconds: spec.min_ready_seconds,
                selector,
                template: Some(pods),
            }),
            status: None,
        })
    }

    /// Writes all sets that should be others than they are.
    pub async fn write_sets(&self, family: &Family) -> Result<(), Error> {
        for member in family.all().filter(|member| member.has_changed()) {
            self.write_set(member).await?;
        }
        Ok(())
    }

    async fn write_set(&self, member: &Member) -> Result<(), Error> {
        // The version makes the patch fail if the set is another than the one that was judged.
        let patch = Patch::Merge(json!({
            "metadata": {"resourceVersion": Cached::resource_version(&*member.set), "annotations": member.annotations},
            "spec": {"replicas": member.replicas, "minReadySeconds": member.min_ready_seconds},
        }));
        match self.sets().patch_metadata(member.name(), &PatchParams::default(), &patch).await {
            Err(error) if retry::is_not_found(&error) => return Ok(()),
            answer => answer?,
        };
        let (before, now) = (i64::from(member.set.replicas()), member.replicas);
        if before != now {
            let way = if before < now { "up" } else { "down" };
            let note = format!("Scaled {way} replica set {} from {before} to {now}", member.name());
            self.say("ScalingReplicaSet", "Scale", note);
        }
        Ok(())
    }

    /// Deletes sets that were kept for their templates.
    pub async fn forget(&self, members: Vec<&Member>) -> Result<(), Error> {
        for member in members {
            let precondition = Preconditions {
                uid: Some(Cached::uid(&*member.set).to_owned()),
                resource_version: Some(Cached::resource_version(&*member.set).to_owned()),
            };
            let how = DeleteParams { preconditions: Some(precondition), ..DeleteParams::default() };
            match self.sets().delete(member.name(), &how).await {
                Err(error) if retry::is_not_found(&error) => {}
                answer => drop(answer?),
            }
        }
        Ok(())
    }

    /// Goes back to an earlier revision, and takes the wish to do so away.
    pub async fn roll_back(&self, rollback: Rollback) -> Result<(), Error> {
        let name = self.deployment.metadata.name.as_deref().unwrap_or_default();
        let mut given = self.deployment.metadata.annotations.clone().unwrap_or_default();
        given.remove(annotations::ROLLBACK_TO);
        match rollback {
            Rollback::To { revision, template, annotations } => {
                self.write_deployment(annotations, Some(*template)).await?;
                let note = format!("Rolled back deployment {name:?} to revision {revision}");
                self.say("DeploymentRollback", "RollBack", note);
                return Ok(());
            }
            Rollback::Unchanged => {
                let note = format!("The rollback revision contains the same template as current deployment {name:?}");
                self.warn("DeploymentRollbackTemplateUnchanged", "RollBack", note);
            }
            Rollback::NoLast => {
                let note = "Unable to find last revision.".to_owned();
                self.warn("DeploymentRollbackRevisionNotFound", "RollBack", note);
            }
            Rollback::NotFound => {
                let note = "Unable to find the revision to rollback to.".to_owned();
                self.warn("DeploymentRollbackRevisionNotFound", "RollBack", note);
            }
        }
        self.write_deployment(given, None).await
    }

    async fn write_deployment(&self, annotations: Annotations, template: Option<PodTemplateSpec>) -> Result<(), Error> {
        let mut wanted = self.deployment.clone();
        wanted.metadata.annotations = Some(annotations);
        if let (Some(spec), Some(template)) = (&mut wanted.spec, template) {
            spec.template = template;
        }
        let name = self.deployment.metadata.name.as_deref().unwrap_or_default();
        let answer = self.deployments().replace(name, &PostParams::default(), &wanted).await;
        Ok(answer.map(drop)?)
    }

    /// Writes the status, and the revision that the deployment is at, if they are others.
    pub async fn write_status(&self, status: &DeploymentStatus, revision: Option<&str>) -> Result<(), Error> {
        let given = self.deployment.metadata.annotations.as_ref();
        let is_there = revision
            .is_none_or(|revision| given.and_then(|given| given.get(REVISION)).is_some_and(|had| had == revision));
        if is_there && status::is_same(&self.deployment.status.clone().unwrap_or_default(), status) {
            return Ok(());
        }
        let mut said = self.deployment.clone();
        said.status = Some(status.clone());
        if let Some(revision) = revision {
            said.metadata.annotations.get_or_insert_default().insert(REVISION.to_owned(), revision.to_owned());
        }
        let name = self.deployment.metadata.name.as_deref().unwrap_or_default();
        match self.deployments().replace_status(name, &PostParams::default(), &said).await {
            Err(error) if retry::is_not_found(&error) => Ok(()),
            answer => Ok(answer.map(drop)?),
        }
    }

    /// Tells users about it.
    pub fn say(&self, reason: &str, action: &str, note: String) {
        normal(self.recorder, events::reference(self.deployment), reason, action, note);
    }

    /// Tells users that something is wrong.
    pub fn warn(&self, reason: &str, action: &str, note: String) {
        warning(self.recorder, events::reference(self.deployment), reason, action, note);
    }

    fn sets(&self) -> Api<ReplicaSet> {
        Api::namespaced(self.context.client().clone(), self.namespace())
    }

    fn deployments(&self) -> Api<Deployment> {
        Api::namespaced(self.context.client().clone(), self.namespace())
    }

    fn namespace(&self) -> &str {
        self.deployment.metadata.namespace.as_deref().unwrap_or_default()
    }
}
