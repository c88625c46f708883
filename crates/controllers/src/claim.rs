//! Whose an object is: an owner adopts what its selector matches and nobody controls, and lets go of what it doesn't match any more.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use kube::api::{Api, Patch, PatchParams};
use kube::core::NamespaceResourceScope;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use setpoint_api::labels::Selector;
use setpoint_runtime::cache::Cached;
use setpoint_runtime::controller::{Context, Error};
use setpoint_runtime::{owners, retry};

/// An object with labels that can be claimed.
pub trait Claimable:
    Cached<Kind: Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned + Clone + std::fmt::Debug>
{
    /// Whether its labels are selected.
    fn is_selected(&self, selector: &Selector) -> bool;
}

/// An owner and what it selects.
pub struct Claim<'a, O> {
    pub owner: &'a O,
    pub selector: &'a Selector,
    /// A finalizer that an adopted object gets, and that it loses when it is let go.
    pub finalizer: Option<&'a str>,
}

impl<O> Claim<'_, O>
where
    O: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Cached + DeserializeOwned + Clone + std::fmt::Debug,
{
    /// Those of the candidates, which are in the owner's namespace, that are the owner's, now that orphans are adopted and
    /// others are let go.
    pub async fn settle<C: Claimable>(
        &self,
        context: &Context,
        candidates: impl IntoIterator<Item = Arc<C>>,
    ) -> Result<Vec<Arc<C>>, Error> {
        self.settle_where(context, candidates, |_| true).await
    }

    /// Like [`settle`](Self::settle), for an owner that wants more of its own than that its selector matches.
    pub async fn settle_where<C: Claimable>(
        &self,
        context: &Context,
        candidates: impl IntoIterator<Item = Arc<C>>,
        is_fit: impl Fn(&C) -> bool,
    ) -> Result<Vec<Arc<C>>, Error> {
        let (mut claimed, mut may_adopt, mut failed) = (Vec::new(), false, None);
        for candidate in candidates {
            let done = match self.verdict(&*candidate, is_fit(&candidate)) {
                Verdict::Foreign => Ok(false),
                Verdict::Own => Ok(true),
                Verdict::LetGo => self.let_go(context, &*candidate).await.map(|()| false),
                Verdict::Adopt => {
                    if !may_adopt {
                        self.is_still_there(context).await?;
                        may_adopt = true;
                    }
                    self.adopt(context, &*candidate).await
                }
            };
            match done {
                Ok(true) => claimed.push(candidate),
                Ok(false) => {}
                // One that can't be claimed must not keep the others from it.
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(claimed), Err)
    }

    /// Whether the candidate is the owner's already, and still selected.
    pub fn is_own<C: Claimable>(&self, candidate: &C) -> bool {
        matches!(self.verdict(candidate, true), Verdict::Own)
    }

    fn verdict<C: Claimable>(&self, candidate: &C, is_fit: bool) -> Verdict {
        let selected = is_fit && candidate.is_selected(self.selector);
        match candidate.controller() {
            Some(controller) if controller.uid != self.owner.uid() => Verdict::Foreign,
            Some(_) if selected => Verdict::Own,
            Some(_) if self.owner.is_deleting() => Verdict::Foreign,
            Some(_) => Verdict::LetGo,
            None if selected && !self.owner.is_deleting() && !candidate.is_deleting() => Verdict::Adopt,
            None => Verdict::Foreign,
        }
    }

    /// The cache may be old: an owner that is gone, or going, must not adopt.
    async fn is_still_there(&self, context: &Context) -> Result<(), Error> {
        let key = Cached::key(self.owner);
        let api: Api<O> = Api::namespaced(context.client().clone(), key.namespace().unwrap_or_default());
        let live = api.get_metadata(key.name()).await?;
        if live.metadata.uid.as_deref() != Some(Cached::uid(self.owner)) {
            return Err(Error::transient(format!("{key} is not the object that it was")));
        }
        match live.metadata.deletion_timestamp {
            Some(_) => Err(Error::transient(format!("{key} is being deleted"))),
            None => Ok(()),
        }
    }

    /// Whether the object could be adopted: it may be gone.
    async fn adopt<C: Claimable>(&self, context: &Context, candidate: &C) -> Result<bool, Error> {
        let Some(owner) = owners::controller_reference(self.owner) else { return Ok(false) };
        let mut metadata = json!({"uid": candidate.uid(), "ownerReferences": [owner]});
        if let Some(finalizer) = self.finalizer {
            metadata["finalizers"] = json!([finalizer]);
        }
        match patch(context, candidate, metadata).await {
            Ok(()) => Ok(true),
            Err(error) if retry::is_not_found(&error) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    async fn let_go<C: Claimable>(&self, context: &Context, candidate: &C) -> Result<(), Error> {
        let mut metadata = json!({
            "uid": candidate.uid(),
            "ownerReferences": [{"$patch": "delete", "uid": Cached::uid(self.owner)}],
        });
        if let Some(finalizer) = self.finalizer {
            metadata["$deleteFromPrimitiveList/finalizers"] = json!([finalizer]);
        }
        match patch(context, candidate, metadata).await {
            // Gone, or not ours any more. A conflict may also mean another object of the same name: the next run knows.
            Err(error) if retry::is_not_found(&error) || is_invalid(&error) => Ok(()),
            other => Ok(other?),
        }
    }
}

enum Verdict {
    Own,
    Adopt,
    LetGo,
    Foreign,
}

async fn patch<C: Claimable>(context: &Context, object: &C, metadata: Value) -> Result<(), kube::Error> {
    let key = object.key();
    let api: Api<C::Kind> = Api::namespaced(context.client().clone(), key.namespace().unwrap_or_default());
    let patch = Patch::Strategic(json!({ "metadata": metadata }));
    api.patch_metadata(key.name(), &PatchParams::default(), &patch).await.map(drop)
}

/// The object hasn't the reference that the patch takes away, or isn't the one that the patch names.
fn is_invalid(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 422)
}

/// The reference to the controller of these objects, for objects that are to be made.
pub fn reference_to<O: Resource<DynamicType = ()>>(owner: &O) -> Result<OwnerReference, Error> {
    owners::controller_reference(owner).ok_or_else(|| Error::terminal("an object without name or uid owns nothing"))
}
