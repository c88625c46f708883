//! What the scheduler follows, and where it goes.

use futures_util::future::{BoxFuture, FutureExt, select_all};
use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::resource::v1::DeviceClass;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::Client;
use serde::Deserialize;
use setpoint_runtime::Key;
use setpoint_runtime::cache::{Cached, Feed, Pairs, Sink, Target};
use setpoint_runtime::clock::Chance;
use tokio::sync::watch;

use crate::cluster::Cluster;
use crate::devices::Claim;
use crate::node::Node;
use crate::owners::{Labels, Selecting};
use crate::queue::Call;
use crate::sinks::{Others, Pods, Shared};

/// All feeds, before they run.
pub struct Feeds {
    running: Vec<BoxFuture<'static, ()>>,
    synced: Vec<watch::Receiver<bool>>,
}

impl Feeds {
    pub fn new(client: &Client, chance: &Chance, shared: &Shared) -> Feeds {
        let mut feeds = Feeds { running: Vec::new(), synced: Vec::new() };
        let mut follow = Follow { client, chance, shared, feeds: &mut feeds };
        follow.owners();
        follow.storage();
        follow.devices();
        follow.others::<Namespace>(
            |cluster, key, namespace| {
                cluster.relations.see_namespace(key.name(), Some(namespace.metadata.labels));
                cluster.pass_on_calls();
            },
            |cluster, key| {
                cluster.relations.see_namespace(key.name(), None);
                cluster.pass_on_calls();
            },
        );
        follow.others::<PodDisruptionBudget>(
            |cluster, key, budget| cluster.budgets.see(key, budget),
            |cluster, key| cluster.budgets.lose(key),
        );
        follow.others::<Node>(|cluster, _, node| cluster.see_node(node), |cluster, key| cluster.lose_node(key.name()));
        follow.sink(Pods(shared.clone()));
        feeds
    }

    /// Whether each has seen everything once.
    pub fn synced(&self) -> Vec<watch::Receiver<bool>> {
        self.synced.clone()
    }

    /// Follows the API server for ever.
    pub async fn run(self) {
        select_all(self.running).await;
    }
}

struct Follow<'a> {
    client: &'a Client,
    chance: &'a Chance,
    shared: &'a Shared,
    feeds: &'a mut Feeds,
}

impl Follow<'_> {
    /// Services and those that own pods.
    fn owners(&mut self) {
        self.others::<Selecting<core::Service, Option<Labels>>>(
            |cluster, key, service| cluster.owners.see_service(&key, service.spec.selector),
            |cluster, key| cluster.owners.lose_service(key),
        );
        self.others::<Selecting<core::ReplicationController, Option<Labels>>>(
            |cluster, key, it| cluster.owners.see_labels("ReplicationController", &key, it.spec.selector),
            |cluster, key| cluster.owners.lose("ReplicationController", key),
        );
        self.others::<Selecting<ReplicaSet, Option<LabelSelector>>>(
            |cluster, key, it| cluster.owners.see_selector("ReplicaSet", &key, it.spec.selector.as_ref()),
            |cluster, key| cluster.owners.lose("ReplicaSet", key),
        );
        self.others::<Selecting<StatefulSet, Option<LabelSelector>>>(
            |cluster, key, it| cluster.owners.see_selector("StatefulSet", &key, it.spec.selector.as_ref()),
            |cluster, key| cluster.owners.lose("StatefulSet", key),
        );
    }

    /// Claims, volumes and their classes.
    fn storage(&mut self) {
        self.others::<core::PersistentVolumeClaim>(
            |cluster, key, claim| {
                cluster.storage.see_claim(key.clone(), claim);
                cluster.call(&Call::Claim(key));
            },
            |cluster, key| {
                cluster.storage.lose_claim(key);
                cluster.call(&Call::Claim(key.clone()));
            },
        );
        self.others::<core::PersistentVolume>(
            |cluster, key, volume| {
                cluster.storage.see_volume(key.name(), volume);
                cluster.call(&Call::Storage);
            },
            |cluster, key| cluster.storage.lose_volume(key.name()),
        );
        self.others::<StorageClass>(
            |cluster, key, class| {
                cluster.storage.see_class(key.name(), Some(class));
                cluster.call(&Call::Storage);
            },
            |cluster, key| cluster.storage.see_class(key.name(), None),
        );
    }

    /// Claims of devices and their classes. Older servers don't know them: nothing waits for these lists but pods that have such claims.
    fn devices(&mut self) {
        let known = self.feeds.synced.len();
        self.others::<Claim>(
            |cluster, key, claim| {
                cluster.devices.see_claim(key.clone(), claim);
                cluster.call(&Call::Device(key));
            },
            |cluster, key| {
                cluster.devices.lose_claim(key);
                cluster.call(&Call::Device(key.clone()));
            },
        );
        self.others::<Named<DeviceClass>>(
            |cluster, key, _| {
                cluster.devices.see_class(key.name(), true);
                cluster.call(&Call::DeviceClass);
            },
            |cluster, key| cluster.devices.see_class(key.name(), false),
        );
        self.feeds.synced.truncate(known);
    }

    fn others<T: Cached>(&mut self, see: fn(&mut Cluster, Key, T), lose: fn(&mut Cluster, &Key))
    where
        T::Kind: kube::Resource<DynamicType = ()>,
    {
        self.sink(Others::new(self.shared.clone(), see, lose));
    }

    fn sink<S: Sink>(&mut self, sink: S)
    where
        <S::Object as Cached>::Kind: kube::Resource<DynamicType = ()>,
    {
        let target = Target::of::<<S::Object as Cached>::Kind>(&(), None);
        let feed = Feed::new(self.client.clone(), target, self.chance, sink);
        self.feeds.synced.push(feed.synced());
        self.feeds.running.push(async move { feed.run().await }.boxed());
    }
}

/// An object of which only counts that it is there.
#[derive(Clone, Debug, Deserialize)]
struct Named<K> {
    metadata: Meta,
    #[serde(skip)]
    kind: std::marker::PhantomData<fn(K)>,
}

impl<K: kube::Resource<DynamicType = ()> + 'static> Cached for Named<K> {
    type Kind = K;

    fn key(&self) -> Key {
        Key::cluster(&self.metadata.name)
    }

    fn resource_version(&self) -> &str {
        &self.metadata.resource_version
    }

    fn uid(&self) -> &str {
        &self.metadata.uid
    }
}

/// What is read of a namespace.
#[derive(Clone, Debug, Deserialize)]
struct Namespace {
    metadata: Meta,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Meta {
    name: Box<str>,
    uid: Box<str>,
    resource_version: Box<str>,
    labels: Pairs,
}

impl Cached for Namespace {
    type Kind = core::Namespace;

    fn key(&self) -> Key {
        Key::cluster(&self.metadata.name)
    }

    fn resource_version(&self) -> &str {
        &self.metadata.resource_version
    }

    fn uid(&self) -> &str {
        &self.metadata.uid
    }
}
