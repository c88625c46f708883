//! The ConfigMaps and Secrets that a pod refers to, and what it waits for because one of them, or a key of it, is not there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ContainerStatus, PodStatus};

use super::behaviour::Role;
use super::container::Restart;
use super::pod::{Container, KeyRef, Named, Pod, Source, Volume};

/// What can be referred to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    ConfigMap,
    Secret,
}

/// An object in the namespace of a pod.
pub type Object<'a> = (Kind, &'a str);

/// The keys of an object: what is behind them is not read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keys {
    pub data: BTreeSet<Box<str>>,
    /// Those of a ConfigMap that are no text: for files only.
    pub binary: BTreeSet<Box<str>>,
}

/// How an object is that was looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    There(Keys),
    Missing,
    /// It can't be read, for this reason.
    Closed(String),
}

/// What was looked for.
pub type Objects<'a> = BTreeMap<Object<'a>, Arc<Found>>;

/// What keeps volumes from being filled, and containers from their start; each by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lacks {
    pub volumes: BTreeMap<Box<str>, String>,
    pub containers: BTreeMap<Box<str>, String>,
}

/// That nothing is missing.
pub static NOTHING: Lacks = Lacks { volumes: BTreeMap::new(), containers: BTreeMap::new() };

impl Lacks {
    pub fn is_nothing(&self) -> bool {
        self.volumes.is_empty() && self.containers.is_empty()
    }

    /// What a pod waits for, when these are the objects that it refers to.
    pub fn of(pod: &Pod, objects: &Objects<'_>) -> Lacks {
        let volumes = mounted(pod).filter_map(|it| Some((it.name.clone(), unfilled(it, objects)?)));
        let containers = starting(pod).filter_map(|it| Some((it.name.clone(), unset(pod, it, objects)?)));
        Lacks { volumes: volumes.collect(), containers: containers.collect() }
    }
}

/// The objects that have to be looked for before anything of a pod starts. Nothing for pods that refer to none, and for what runs.
pub fn wanted(pod: &Pod) -> BTreeSet<Object<'_>> {
    let of_volumes = mounted(pod).flat_map(sources).map(|(kind, source)| (kind, &*source.name));
    let of_containers = starting(pod).flat_map(variables).map(|it| (it.kind, it.name));
    of_volumes.chain(of_containers).collect()
}

/// The volumes that have to be filled: those that a container mounts, until the first of them has started.
fn mounted(pod: &Pod) -> impl Iterator<Item = &Volume> {
    let is_new = pod.spec.volumes.iter().any(|it| sources(it).next().is_some()) && !has_begun(&pod.status);
    let all = || pod.spec.init_containers.iter().chain(&pod.spec.containers);
    let is_mounted = move |it: &&Volume| all().flat_map(|of| &of.volume_mounts).any(|mount| mount.name == it.name);
    pod.spec.volumes.iter().filter(move |_| is_new).filter(is_mounted)
}

fn has_begun(status: &PodStatus) -> bool {
    let all = [&status.init_container_statuses, &status.container_statuses];
    all.into_iter().flatten().flatten().any(|it| it.container_id.is_some())
}

/// The containers that may start next.
fn starting(pod: &Pod) -> impl Iterator<Item = &Container> {
    let policy = Restart::of(&pod.spec.restart_policy);
    let starts = move |container: &Container, role: Role, statuses: &Option<Vec<ContainerStatus>>| {
        let status = statuses.iter().flatten().find(|it| *it.name == *container.name);
        let Some(state) = status.and_then(|it| it.state.as_ref()) else { return true };
        let again = |code: i32| Restart::of_container(container, role, policy).again(container, code);
        state.running.is_none() && state.terminated.as_ref().is_none_or(|ended| again(ended.exit_code))
    };
    let refers = |it: &&Container| variables(it).next().is_some();
    let (init, main) = (&pod.status.init_container_statuses, &pod.status.container_statuses);
    let first = pod.spec.init_containers.iter().filter(refers);
    let then = pod.spec.containers.iter().filter(refers);
    first
        .filter(move |it| starts(it, Role::of_init(it), init))
        .chain(then.filter(move |it| starts(it, Role::Main, main)))
}

/// What variables refer to.
struct Variables<'a> {
    kind: Kind,
    name: &'a str,
    /// All keys, if it names none.
    key: Option<&'a str>,
    optional: bool,
}

impl<'a> Variables<'a> {
    fn all(kind: Kind, of: &'a Named) -> Variables<'a> {
        Variables { kind, name: &of.name, key: None, optional: of.optional }
    }

    fn one(kind: Kind, of: &'a KeyRef) -> Variables<'a> {
        Variables { kind, name: &of.name, key: Some(&of.key), optional: of.optional }
    }
}

/// The references of a container's variables, in the order in which a node reads them.
fn variables(container: &Container) -> impl Iterator<Item = Variables<'_>> {
    let all = container.env_from.iter().flat_map(|it| {
        let map = it.config_map_ref.as_ref().map(|of| Variables::all(Kind::ConfigMap, of));
        map.into_iter().chain(it.secret_ref.as_ref().map(|of| Variables::all(Kind::Secret, of)))
    });
    let one = container.env.iter().filter_map(|it| it.value_from.as_deref()).flat_map(|it| {
        let map = it.config_map_key_ref.as_ref().map(|of| Variables::one(Kind::ConfigMap, of));
        map.into_iter().chain(it.secret_key_ref.as_ref().map(|of| Variables::one(Kind::Secret, of)))
    });
    all.chain(one)
}

/// Why the variables of a container can't be set, in the kubelet's words.
fn unset(pod: &Pod, container: &Container, objects: &Objects<'_>) -> Option<String> {
    variables(container).find_map(|it| match &**objects.get(&(it.kind, it.name))? {
        Found::Closed(why) => Some(why.clone()),
        Found::Missing => (!it.optional).then(|| not_found(it.kind, it.name)),
        Found::There(keys) => {
            let key = it.key.filter(|key| !it.optional && !keys.data.contains(*key))?;
            let (kind, namespace, name) = (it.kind, &pod.metadata.namespace, it.name);
            Some(format!("couldn't find key {key} in {kind:?} {namespace}/{name}"))
        }
    })
}

/// The sources of a volume.
fn sources(volume: &Volume) -> impl Iterator<Item = (Kind, &Source)> {
    let map = volume.config_map.as_deref().map(|of| (Kind::ConfigMap, of));
    let secret = volume.secret.as_deref().map(|of| (Kind::Secret, of));
    let projected = volume.projected.iter().flat_map(|it| &it.sources).flat_map(|it| {
        let secret = it.secret.as_ref().map(|of| (Kind::Secret, of));
        secret.into_iter().chain(it.config_map.as_ref().map(|of| (Kind::ConfigMap, of)))
    });
    map.into_iter().chain(secret).chain(projected)
}

/// Why a volume can't be filled, in the kubelet's words.
fn unfilled(volume: &Volume, objects: &Objects<'_>) -> Option<String> {
    let mut all: Vec<String> = sources(volume).filter_map(|(kind, source)| unread(kind, source, objects)).collect();
    if volume.projected.is_none() {
        return all.pop();
    }
    all.dedup();
    match all.len() {
        0 | 1 => all.pop(),
        _ => Some(format!("[{}]", all.join(", "))),
    }
}

fn unread(kind: Kind, source: &Source, objects: &Objects<'_>) -> Option<String> {
    match &**objects.get(&(kind, &*source.name))? {
        Found::Closed(why) => Some(why.clone()),
        Found::Missing => (!source.optional).then(|| not_found(kind, &source.name)),
        Found::There(keys) => {
            let is_there = |key: &str| keys.data.contains(key) || keys.binary.contains(key);
            let key = source.items.iter().map(|item| &item.key).find(|key| !source.optional && !is_there(key))?;
            Some(match kind {
                Kind::ConfigMap => format!("configmap references non-existent config key: {key}"),
                Kind::Secret => format!("references non-existent secret key: {key}"),
            })
        }
    }
}

fn not_found(kind: Kind, name: &str) -> String {
    let kind = match kind {
        Kind::ConfigMap => "configmap",
        Kind::Secret => "secret",
    };
    format!("{kind} {name:?} not found")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(spec: Value, status: Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "shop"}, "spec": spec, "status": status}))
            .unwrap()
    }

    /// A ConfigMap `there` with the key `a` and the file `picture`, and a Secret `there` with the key `a`.
    fn objects(pod: &Pod) -> Objects<'_> {
        let keys = |keys: &[&str]| keys.iter().map(|key| Box::from(*key)).collect();
        let find = |(kind, name): &Object<'_>| match (kind, *name) {
            (Kind::ConfigMap, "there") => Found::There(Keys { data: keys(&["a"]), binary: keys(&["picture"]) }),
            (Kind::Secret, "there") => Found::There(Keys { data: keys(&["a"]), ..Keys::default() }),
            (_, "closed") => Found::Closed("no".to_owned()),
            _ => Found::Missing,
        };
        wanted(pod).into_iter().map(|object| (object, Arc::new(find(&object)))).collect()
    }

    #[test]
    fn a_container_waits_for_what_its_variables_need() {
        let one = |kind: &str, name: &str, key: &str, optional: bool| json!({"env": [{"name": "V", "valueFrom": {kind: {"name": name, "key": key, "optional": optional}}}]});
        let all =
            |kind: &str, name: &str, optional: bool| json!({"envFrom": [{kind: {"name": name, "optional": optional}}]});
        for (container, expected) in [
            (one("configMapKeyRef", "there", "a", false), None),
            (one("configMapKeyRef", "there", "b", true), None),
            (one("configMapKeyRef", "gone", "a", true), None),
            (one("configMapKeyRef", "there", "b", false), Some("couldn't find key b in ConfigMap shop/there")),
            (
                one("configMapKeyRef", "there", "picture", false),
                Some("couldn't find key picture in ConfigMap shop/there"),
            ),
            (one("configMapKeyRef", "gone", "a", false), Some("configmap \"gone\" not found")),
            (one("secretKeyRef", "there", "b", false), Some("couldn't find key b in Secret shop/there")),
            (one("secretKeyRef", "gone", "a", false), Some("secret \"gone\" not found")),
            (one("secretKeyRef", "closed", "a", true), Some("no")),
            (all("configMapRef", "there", false), None),
            (all("configMapRef", "gone", true), None),
            (all("configMapRef", "gone", false), Some("configmap \"gone\" not found")),
            (all("secretRef", "gone", false), Some("secret \"gone\" not found")),
            (json!({"env": [{"name": "V", "value": "x"}]}), None),
        ] {
            let mut container = container;
            container["name"] = json!("c");
            let pod = pod(json!({"containers": [container]}), json!({}));
            let lacks = Lacks::of(&pod, &objects(&pod));
            assert_eq!(lacks.containers.get("c").map(String::as_str), expected, "{container}");
        }
    }

    #[test]
    fn a_volume_waits_for_what_it_is_filled_with() {
        let items = |key: &str| json!([{"key": key, "path": "p"}]);
        for (volume, expected) in [
            (json!({"configMap": {"name": "there"}}), None),
            (json!({"configMap": {"name": "there", "items": items("picture")}}), None),
            (
                json!({"configMap": {"name": "there", "items": items("b")}}),
                Some("configmap references non-existent config key: b"),
            ),
            (json!({"configMap": {"name": "there", "items": items("b"), "optional": true}}), None),
            (json!({"configMap": {"name": "gone"}}), Some("configmap \"gone\" not found")),
            (json!({"configMap": {"name": "gone", "optional": true}}), None),
            (json!({"secret": {"secretName": "gone"}}), Some("secret \"gone\" not found")),
            (
                json!({"secret": {"secretName": "there", "items": items("b")}}),
                Some("references non-existent secret key: b"),
            ),
            (
                json!({"projected": {"sources": [{"secret": {"name": "gone"}}, {"configMap": {"name": "gone"}}, {"downwardAPI": {}}]}}),
                Some("[secret \"gone\" not found, configmap \"gone\" not found]"),
            ),
            (json!({"projected": {"sources": [{"secret": {"name": "gone"}}]}}), Some("secret \"gone\" not found")),
            (json!({"emptyDir": {}}), None),
        ] {
            let mut volume = volume;
            volume["name"] = json!("v");
            let mounts = json!([{"name": "v", "mountPath": "/v"}]);
            let spec = json!({"volumes": [volume], "containers": [{"name": "c", "volumeMounts": mounts}]});
            let used = pod(spec, json!({}));
            let lacks = Lacks::of(&used, &objects(&used));
            assert_eq!(lacks.volumes.get("v").map(String::as_str), expected, "{volume}");
            let unused = pod(json!({"volumes": [volume], "containers": [{"name": "c"}]}), json!({}));
            assert!(wanted(&unused).is_empty(), "nobody mounts {volume}");
        }
    }

    #[test]
    fn what_runs_or_has_ended_for_good_is_not_looked_for() {
        let env = json!([{"secretRef": {"name": "s"}}]);
        let mounts = json!([{"name": "v", "mountPath": "/v"}]);
        let spec = |policy: &str| {
            json!({"restartPolicy": policy, "volumes": [{"name": "v", "configMap": {"name": "m"}}],
                "containers": [{"name": "c", "envFrom": env, "volumeMounts": mounts}]})
        };
        let status = |id: Value, state: Value| {
            json!({"containerStatuses": [{"name": "c", "containerID": id, "image": "", "imageID": "", "ready": false,
                "restartCount": 0, "state": state}]})
        };
        let both = vec![(Kind::ConfigMap, "m"), (Kind::Secret, "s")];
        let ended = json!({"terminated": {"exitCode": 1}});
        for (policy, status, expected) in [
            ("Always", json!({}), both.clone()),
            ("Always", status(Value::Null, json!({"waiting": {}})), both),
            ("Always", status(json!("id"), json!({"running": {}})), vec![]),
            ("Always", status(json!("id"), ended.clone()), vec![(Kind::Secret, "s")]),
            ("Never", status(json!("id"), ended), vec![]),
        ] {
            let pod = pod(spec(policy), status.clone());
            assert_eq!(wanted(&pod).into_iter().collect::<Vec<_>>(), expected, "{policy} {status}");
        }
    }

    #[test]
    fn the_certificate_that_every_pod_gets_is_not_looked_for() {
        let sources = json!([{"serviceAccountToken": {"path": "token"}}, {"configMap": {"name": "kube-root-ca.crt"}}]);
        let mounts = json!([{"name": "v", "mountPath": "/v"}]);
        let spec = json!({"volumes": [{"name": "v", "projected": {"sources": sources}}],
            "containers": [{"name": "c", "volumeMounts": mounts}]});
        let pod = pod(spec, json!({}));
        assert!(wanted(&pod).is_empty());
        assert!(pod.spec.volumes[0].projected.is_none(), "it takes no room");
    }
}
