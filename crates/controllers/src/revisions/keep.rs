//! Keeps the revisions of an owner: makes the one of its template, and deletes those that nobody needs.

use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube::Resource;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::NamespaceResourceScope;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use setpoint_api::labels::Selector;
use setpoint_runtime::cache::{Cached, Informer};
use setpoint_runtime::controller::{Context, Error};
use setpoint_runtime::{owners, retry};

use super::{Revisions, candidates, data_of, hash, holds, name, next_number, sort};
use crate::claim::Claim;

/// So many names in a row that are taken by others are no accident.
const COLLISIONS_MAX: i32 = 16;

/// The revisions of one owner.
pub struct History<'a, O> {
    pub owner: &'a O,
    pub selector: &'a Selector,
    pub template: &'a PodTemplateSpec,
    /// The label of revisions with their hash.
    pub hash_label: &'static str,
}

/// The revision of the owner's template as it is now.
pub struct Latest {
    pub revision: Arc<ControllerRevision>,
    /// How often a name was taken.
    pub collisions: i32,
}

/// What has to be done so that the newest revision is that of the template.
#[derive(Debug, PartialEq)]
enum Step {
    /// It is.
    Nothing(Arc<ControllerRevision>),
    /// An older one is; it gets the next number.
    Bump(Arc<ControllerRevision>, i64),
    /// None is.
    Make(i64),
}

fn step(revisions: &[Arc<ControllerRevision>], data: &Value) -> Step {
    let number = next_number(revisions);
    match revisions.iter().rfind(|revision| holds(revision, data)) {
        Some(equal) if revisions.last().is_some_and(|newest| Arc::ptr_eq(newest, equal)) => {
            Step::Nothing(equal.clone())
        }
        Some(equal) => Step::Bump(equal.clone(), number),
        None => Step::Make(number),
    }
}

impl<O> History<'_, O>
where
    O: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Cached + DeserializeOwned + Clone + Debug,
{
    /// The owner's revisions, sorted, now that orphans are adopted.
    pub async fn claimed(&self, context: &Context, cache: &Informer<ControllerRevision>) -> Result<Revisions, Error> {
        let key = Cached::key(self.owner);
        let candidates =
            candidates(&cache.lister().snapshot(), key.namespace().unwrap_or_default(), Cached::uid(self.owner));
        let claim = Claim { owner: self.owner, selector: self.selector, finalizer: None };
        let mut revisions = claim.settle(context, candidates).await?;
        sort(&mut revisions);
        Ok(revisions)
    }

    /// Makes sure that the newest of the owner's revisions, which are sorted, is that of its template.
    pub async fn latest(
        &self,
        context: &Context,
        revisions: &mut Revisions,
        collisions: i32,
        annotations: impl Fn() -> ObjectMeta,
    ) -> Result<Latest, Error> {
        let data = data_of(self.template);
        let (revision, collisions) = match step(revisions, &data) {
            Step::Nothing(revision) => return Ok(Latest { revision, collisions }),
            Step::Bump(revision, number) => {
                let bumped = self.bump(context, &revision, number).await?;
                revisions.retain(|other| !Arc::ptr_eq(other, &revision));
                (bumped, collisions)
            }
            Step::Make(number) => self.make(context, data, number, collisions, annotations()).await?,
        };
        revisions.push(revision.clone());
        Ok(Latest { revision, collisions })
    }

    /// Deletes a revision; one that is gone already is fine.
    pub async fn delete(&self, context: &Context, revision: &ControllerRevision) -> Result<(), Error> {
        let uid = revision.metadata.uid.clone();
        let how = DeleteParams {
            preconditions: Some(Preconditions { uid, resource_version: None }),
            ..DeleteParams::default()
        };
        match self.api(context).delete(super::name_of(revision), &how).await {
            Err(error) if retry::is_not_found(&error) => Ok(()),
            other => Ok(other.map(drop)?),
        }
    }

    async fn bump(
        &self,
        context: &Context,
        revision: &ControllerRevision,
        number: i64,
    ) -> Result<Arc<ControllerRevision>, Error> {
        let metadata = json!({"uid": revision.metadata.uid, "resourceVersion": revision.metadata.resource_version});
        let patch = Patch::Merge(json!({"metadata": metadata, "revision": number}));
        let bumped = self.api(context).patch(super::name_of(revision), &PatchParams::default(), &patch).await?;
        Ok(Arc::new(bumped))
    }

    async fn make(
        &self,
        context: &Context,
        data: Value,
        number: i64,
        collisions: i32,
        described: ObjectMeta,
    ) -> Result<(Arc<ControllerRevision>, i32), Error> {
        let owner = owners::controller_reference(self.owner)
            .ok_or_else(|| Error::terminal("an object without name or uid owns nothing"))?;
        let mut labels = self.template.metadata.iter().flat_map(|meta| meta.labels.clone()).next().unwrap_or_default();
        let api = self.api(context);
        for taken in collisions..collisions.saturating_add(COLLISIONS_MAX) {
            let hash = hash(&data, taken);
            labels.insert(self.hash_label.to_owned(), hash.clone());
            let revision = ControllerRevision {
                metadata: ObjectMeta {
                    name: Some(name(Cached::key(self.owner).name(), &hash)),
                    labels: Some(labels.clone()),
                    owner_references: Some(vec![owner.clone()]),
                    ..described.clone()
                },
                data: Some(RawExtension(data.clone())),
                revision: number,
            };
            match api.create(&PostParams::default(), &revision).await {
                Ok(made) => return Ok((Arc::new(made), taken)),
                Err(error) if retry::is_already_exists(&error) => {
                    let found = api.get(super::name_of(&revision)).await?;
                    if holds(&found, &data) && owners::is_controlled_by(&found.metadata, &owner.uid) {
                        return Ok((Arc::new(found), taken));
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::transient("the names of too many revisions are taken"))
    }

    fn api(&self, context: &Context) -> Api<ControllerRevision> {
        Api::namespaced(context.client().clone(), Cached::key(self.owner).namespace().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_equal_revision_is_used_again() {
        let revision = |number: i64, held: i32| {
            let data = Some(RawExtension(json!({ "held": held })));
            Arc::new(ControllerRevision { data, revision: number, ..ControllerRevision::default() })
        };
        let (one, two) = (revision(1, 1), revision(2, 2));
        let all = [one.clone(), two.clone()];
        assert_eq!(step(&all, &json!({"held": 2})), Step::Nothing(two));
        assert_eq!(step(&all, &json!({"held": 1})), Step::Bump(one, 3));
        assert_eq!(step(&all, &json!({"held": 3})), Step::Make(3));
        assert_eq!(step(&[], &json!({"held": 3})), Step::Make(1));
    }
}
