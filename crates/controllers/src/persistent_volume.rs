//! Claims get volumes: those that are there and fit, or new ones of a simulated class. Volumes follow their claims.

mod act;
mod matching;
mod plan;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::Api;
use setpoint_runtime::Key;
use setpoint_runtime::cache::{Cached, Informer};
use setpoint_runtime::controller::{Action, Context, Error, Predicate};
use setpoint_runtime::events::{Recorder, reference};
use setpoint_runtime::manager::ManagerError;
use setpoint_runtime::retry;

use self::act::Hand;
use self::matching::{annotation, class_of_claim, class_of_volume};
use self::plan::{ClaimStep, SIMULATED, Say, Surroundings, VolumeStep, claim_ref};
use crate::Wiring;
use crate::pod::{Pod, claims};
use crate::wiring::{normal, warning};

/// The index of claims that have no volume yet, by class.
const BY_CLASS: &str = "unbound of class";

/// Classes with one of these annotations are the default.
const IS_DEFAULT: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];

/// Adds the controller. Keys with a namespace are claims, those without are volumes.
pub fn add(wiring: &Wiring<'_>) -> Result<(), ManagerError> {
    let desk = wiring.desk("persistentvolume-binder-controller")?;
    let binder = Arc::new(Binder {
        claims: wiring.informer(),
        volumes: wiring.informer(),
        classes: wiring.informer(),
        pods: wiring.pods(),
        recorder: desk.recorder.clone(),
        told: Mutex::default(),
    });
    claims::index(&binder.pods);
    binder.claims.add_index(BY_CLASS, |claim: &PersistentVolumeClaim| {
        let is_bound = annotation(&claim.metadata, plan::BIND_COMPLETED).is_some();
        if is_bound { Vec::new() } else { vec![class_of_claim(claim).to_owned()] }
    });
    // What wakes holds claims only: a cache whose handlers hold the cache itself would never go.
    let (of_volume, of_class, reconciling) = (binder.claims.clone(), binder.claims.clone(), binder.clone());
    let controller = desk
        .controller(&binder.claims, 1)
        .watches(&binder.volumes, move |volume| concerned_by_volume(&of_volume, volume))
        .watches(&binder.claims, volume_of)
        .watches(&binder.classes, move |class| concerned_by_class(&of_class, class))
        .watches_where(
            &binder.pods,
            Predicate::new(|old: Option<&Pod>, pod: &Pod| {
                !pod.spec.claims.is_empty() && old.is_none_or(|old| old.spec.node_name != pod.spec.node_name)
            }),
            |pod: &Pod| pod.claims().map(|(key, _)| key).collect(),
        )
        .build(move |context: Context, key: Key| {
            let binder = reconciling.clone();
            async move {
                match key.namespace() {
                    Some(_) => binder.reconcile_claim(context, key).await,
                    None => binder.reconcile_volume(context, key).await,
                }
            }
        });
    desk.run(controller)
}

/// The volume itself, the claim that it is for, and if it is for none, all that it may be for.
fn concerned_by_volume(claims: &Informer<PersistentVolumeClaim>, volume: &PersistentVolume) -> Vec<Key> {
    let mut keys = vec![volume.key()];
    match claim_ref(volume) {
        Some(of) => keys.push(key_of(of)),
        None => keys.extend(unbound(claims, class_of_volume(volume))),
    }
    keys
}

fn concerned_by_class(claims: &Informer<PersistentVolumeClaim>, class: &StorageClass) -> Vec<Key> {
    let mut keys = unbound(claims, class.metadata.name.as_deref().unwrap_or_default());
    keys.extend(unbound(claims, ""));
    keys
}

fn volume_of(claim: &PersistentVolumeClaim) -> Vec<Key> {
    let name = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
    name.filter(|name| !name.is_empty()).map(Key::cluster).into_iter().collect()
}

fn unbound(claims: &Informer<PersistentVolumeClaim>, class: &str) -> Vec<Key> {
    claims.lister().snapshot().by_index(BY_CLASS, class).map(|claim| claim.key()).collect()
}

struct Binder {
    claims: Informer<PersistentVolumeClaim>,
    volumes: Informer<PersistentVolume>,
    classes: Informer<StorageClass>,
    pods: Informer<Pod>,
    recorder: Recorder,
    /// What was last told about a claim that waits: users are told once, not whenever somebody looks.
    told: Mutex<BTreeMap<Key, Say>>,
}

impl Binder {
    async fn reconcile_claim(&self, context: Context, key: Key) -> Result<Action, Error> {
        let Some(claim) = context.read(&self.claims, &key) else {
            self.is_news(&key, None);
            return Ok(Action::done());
        };
        let volumes: Vec<_> = self.volumes.lister().snapshot().iter().cloned().collect();
        let class = self.classes.lister().get(class_of_claim(&claim));
        let default_class = self.default_class();
        let around = Surroundings {
            volumes: &volumes,
            class: class.as_deref(),
            default_class: default_class.as_deref(),
            consumers: self.consumers(&key),
        };
        let hand = Hand { client: context.client() };
        let about = || reference(&*claim);
        let step = plan::claim(&claim, &around);
        let is_news = self.is_news(&key, step.said());
        let done = match step {
            ClaimStep::Wait(say) => {
                self.say(about(), say.filter(|_| is_news));
                hand.claim_phase(&claim, "Pending", None).await
            }
            ClaimStep::Lose(say) => {
                let is_lost = claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Lost");
                if !is_lost {
                    hand.claim_phase(&claim, "Lost", None).await?;
                    self.say(about(), Some(say));
                }
                Ok(())
            }
            ClaimStep::Classify(class) => {
                let patch = serde_json::json!({"spec": {"storageClassName": class}});
                hand.claim(&claim, patch).await.map(drop)
            }
            ClaimStep::Bind(name) => match volumes.iter().find(|volume| volume.metadata.name.as_ref() == Some(&name)) {
                Some(volume) => hand.bind(volume, &claim).await,
                None => Ok(()),
            },
            ClaimStep::Provision(provisioner) => self.provision(&hand, &claim, &provisioner, class.as_deref()).await,
            ClaimStep::Refuse(say) => {
                self.say(about(), Some(say).filter(|_| is_news));
                Ok(())
            }
        };
        match done {
            Err(error) if retry::is_not_found(&error) => Ok(Action::done()),
            other => Ok(other.map(|()| Action::done())?),
        }
    }

    /// Asks for a volume, and makes it if it is one that nobody has to store anything on.
    async fn provision(
        &self,
        hand: &Hand<'_>,
        claim: &PersistentVolumeClaim,
        provisioner: &str,
        class: Option<&StorageClass>,
    ) -> Result<(), kube::Error> {
        if hand.ask_provisioner(claim, provisioner).await? {
            let message = format!(
                "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by \
                 the system administrator. If volume creation is delayed, please verify that the provisioner is \
                 running and correctly registered."
            );
            self.say(reference(claim), Some(Say { is_warning: false, reason: "ExternalProvisioning", message }));
            return Ok(());
        }
        let Some(class) = class.filter(|_| provisioner == SIMULATED && claim.metadata.deletion_timestamp.is_none())
        else {
            return Ok(());
        };
        if hand.provision(claim, class).await? {
            let uid = claim.metadata.uid.as_deref().unwrap_or_default();
            let message = format!("Successfully provisioned volume pvc-{uid}");
            self.say(reference(claim), Some(Say { is_warning: false, reason: "ProvisioningSucceeded", message }));
        }
        Ok(())
    }

    async fn reconcile_volume(&self, context: Context, key: Key) -> Result<Action, Error> {
        let Some(volume) = context.read(&self.volumes, &key) else { return Ok(Action::done()) };
        let claim = match claim_ref(&volume) {
            Some(of) => self.claim_of(&context, of, matching::phase(&volume)).await?,
            None => None,
        };
        let hand = Hand { client: context.client() };
        let done = match plan::volume(&volume, claim.as_deref()) {
            VolumeStep::Nothing => Ok(()),
            VolumeStep::Phase(phase) => hand.volume_phase(&volume, phase, None).await.map(drop),
            VolumeStep::Release => hand.volume_phase(&volume, "Released", None).await.map(drop),
            VolumeStep::Delete => hand.delete(&volume).await,
            VolumeStep::Unbind => hand.unbind(&volume).await,
            VolumeStep::Fail(say) => {
                hand.volume_phase(&volume, "Failed", Some(&say.message)).await?;
                self.say(reference(&*volume), Some(say));
                Ok(())
            }
        };
        match done {
            Err(error) if retry::is_not_found(&error) => Ok(Action::done()),
            other => Ok(other.map(|()| Action::done())?),
        }
    }

    /// The claim that a volume is for. Before a volume is let go the server is asked: the cache may not know a claim yet.
    async fn claim_of(
        &self,
        context: &Context,
        of: &ObjectReference,
        phase: &str,
    ) -> Result<Option<Arc<PersistentVolumeClaim>>, Error> {
        let key = key_of(of);
        let cached = context.read(&self.claims, &key).filter(|claim| claim.metadata.uid == of.uid);
        let has_uid = of.uid.as_deref().is_some_and(|uid| !uid.is_empty());
        if cached.is_some() || !has_uid || matches!(phase, "Released" | "Failed") {
            return Ok(cached);
        }
        let api: Api<PersistentVolumeClaim> =
            Api::namespaced(context.client().clone(), key.namespace().unwrap_or_default());
        let live = api.get_opt(key.name()).await?;
        Ok(live.filter(|claim| claim.metadata.uid == of.uid).map(Arc::new))
    }

    /// The name of the class that claims without one get: of several the youngest.
    fn default_class(&self) -> Option<String> {
        let classes = self.classes.lister().snapshot();
        let is_default = |class: &&Arc<StorageClass>| {
            IS_DEFAULT.iter().any(|name| annotation(&class.metadata, name) == Some("true"))
        };
        let made = |class: &StorageClass| class.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let youngest = classes
            .iter()
            .filter(is_default)
            .min_by(|one, other| made(other).cmp(&made(one)).then_with(|| one.metadata.name.cmp(&other.metadata.name)));
        youngest.and_then(|class| class.metadata.name.clone())
    }

    /// Pods that use a claim and have no node yet.
    fn consumers(&self, claim: &Key) -> Vec<String> {
        let pods = self.pods.lister().snapshot();
        let waiting = pods.by_index(claims::BY_CLAIM, claim.as_str());
        let waiting = waiting.filter(|pod| !pod.has_ended() && pod.spec.node_name.is_empty());
        waiting.map(|pod| pod.metadata.name.to_string()).collect()
    }

    /// Whether this is another word about a claim than the last one.
    fn is_news(&self, claim: &Key, say: Option<&Say>) -> bool {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        match say {
            Some(say) => told.insert(claim.clone(), say.clone()).as_ref() != Some(say),
            None => told.remove(claim).is_some(),
        }
    }

    fn say(&self, about: ObjectReference, say: Option<Say>) {
        match say {
            Some(say) if say.is_warning => warning(&self.recorder, about, say.reason, say.reason, say.message),
            Some(say) => normal(&self.recorder, about, say.reason, say.reason, say.message),
            None => {}
        }
    }
}

fn key_of(claim: &ObjectReference) -> Key {
    Key::namespaced(claim.namespace.as_deref().unwrap_or_default(), claim.name.as_deref().unwrap_or_default())
}
