//! Every namespace has a ConfigMap `kube-root-ca.crt`, by which pods know the API server.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, ObjectMeta, PostParams};
use setpoint_runtime::Key;
use setpoint_runtime::cache::{Cached, Informer, Target};
use setpoint_runtime::controller::{Action, Context, ControllerHandle, Error};
use setpoint_runtime::manager::{Lifecycle, ManagerError, RunError, Runnable};
use setpoint_runtime::retry;
use tokio::sync::watch;

use crate::Wiring;
use crate::pod_control::is_namespace_terminating;

const NAME: &str = "kube-root-ca.crt";
const FIELD: &str = "ca.crt";
const ANNOTATION: &str = "kubernetes.io/description";
const DESCRIPTION: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.";

/// The certificates to publish, in PEM: those of the moment, which can change while controllers run.
pub type RootCa = watch::Receiver<Arc<str>>;

/// Certificates that never change.
#[must_use]
pub fn fixed_root_ca(certificates: &str) -> RootCa {
    watch::Sender::new(certificates.into()).subscribe()
}

/// Adds the controller, if there is a certificate to publish.
pub fn add(wiring: &Wiring<'_>) -> Result<(), ManagerError> {
    let Some(published) = wiring.root_ca else { return Ok(()) };
    let desk = wiring.desk("root-ca-certificate-publisher-controller")?;
    let target = Target::of::<ConfigMap>(&(), None).fields(format!("metadata.name={NAME}"));
    let caches =
        Caches { namespaces: wiring.informer(), maps: wiring.informer_of(target), certificate: published.clone() };
    let namespaces = caches.namespaces.clone();
    let controller = desk
        .controller(&caches.namespaces, 1)
        .watches(&caches.maps, |map: &ConfigMap| {
            map.metadata.namespace.as_deref().map(Key::cluster).into_iter().collect()
        })
        .build(move |context: Context, key: Key| reconcile(context, caches.clone(), key));
    let name = "successions of the root certificate";
    desk.run_part(Successions::new(name, published, &namespaces, controller.handle()))?;
    desk.run(controller)
}

/// Lets everybody have other certificates as soon as there are others.
pub(crate) struct Successions<K: Cached> {
    name: &'static str,
    published: RootCa,
    cache: Informer<K>,
    controller: ControllerHandle,
}

impl<K: Cached> Successions<K> {
    /// Wakes a controller for all objects of a cache.
    pub(crate) fn new(
        name: &'static str,
        published: &RootCa,
        cache: &Informer<K>,
        controller: ControllerHandle,
    ) -> Successions<K> {
        Successions { name, published: published.clone(), cache: cache.clone(), controller }
    }
}

impl<K: Cached> Runnable for Successions<K> {
    fn name(&self) -> &str {
        self.name
    }

    fn run(mut self: Box<Self>, lifecycle: Lifecycle) -> BoxFuture<'static, Result<(), RunError>> {
        Box::pin(async move {
            lifecycle.ready();
            loop {
                tokio::select! {
                    biased;
                    () = lifecycle.draining() => return Ok(()),
                    changed = self.published.changed() => if changed.is_err() {
                        // They stay as they are from now on.
                        return Ok(());
                    },
                }
                for object in self.cache.lister().snapshot().iter() {
                    self.controller.queue().add(object.key());
                }
            }
        })
    }
}

#[derive(Clone)]
struct Caches {
    namespaces: Informer<Namespace>,
    maps: Informer<ConfigMap>,
    certificate: RootCa,
}

async fn reconcile(context: Context, caches: Caches, key: Key) -> Result<Action, Error> {
    let Some(namespace) = context.read(&caches.namespaces, &key) else { return Ok(Action::done()) };
    if namespace.metadata.deletion_timestamp.is_some() {
        return Ok(Action::done());
    }
    let known = caches.maps.lister().get(Key::namespaced(key.name(), NAME).as_str());
    let certificate = Arc::clone(&caches.certificate.borrow());
    let Some(wanted) = plan(known.as_deref(), &certificate) else { return Ok(Action::done()) };
    let api: Api<ConfigMap> = Api::namespaced(context.client().clone(), key.name());
    let answer = match known.is_some() {
        true => api.replace(NAME, &PostParams::default(), &wanted).await,
        false => api.create(&PostParams::default(), &wanted).await,
    };
    match answer {
        Err(error) if is_namespace_terminating(&error) => Ok(Action::done()),
        // The namespace is gone, or the map is: then the cache will say so.
        Err(error) if retry::is_not_found(&error) => Ok(Action::done()),
        // Somebody else made it; the cache will tell whether it is right.
        Err(error) if retry::is_already_exists(&error) => Ok(Action::done()),
        answer => Ok(answer.map(|_| Action::done())?),
    }
}

/// The map to write, if the present one isn't right.
fn plan(known: Option<&ConfigMap>, certificate: &str) -> Option<ConfigMap> {
    let mut map = known.cloned().unwrap_or_else(|| ConfigMap {
        metadata: ObjectMeta { name: Some(NAME.to_owned()), ..ObjectMeta::default() },
        ..ConfigMap::default()
    });
    map.data = Some([(FIELD.to_owned(), certificate.to_owned())].into());
    map.metadata.annotations.get_or_insert_default().insert(ANNOTATION.to_owned(), DESCRIPTION.to_owned());
    (known != Some(&map)).then_some(map)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_map_that_is_missing_or_wrong_is_written() {
        let made = plan(None, "PEM").unwrap();
        assert_eq!(plan(Some(&made), "PEM"), None);
        let mut spoiled = made.clone();
        spoiled.data.as_mut().unwrap().insert("more".to_owned(), "1".to_owned());
        spoiled.metadata.labels = Some([("kept".to_owned(), "yes".to_owned())].into());
        let mended = plan(Some(&spoiled), "PEM").unwrap();
        assert_eq!((&mended.data, mended.metadata.labels), (&made.data, spoiled.metadata.labels));
        assert!(plan(Some(&made), "OTHER").is_some());
    }
}
