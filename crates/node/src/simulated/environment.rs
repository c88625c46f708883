//! The variables of a container, and which of its files are known, by its spec and its pod.

use std::collections::BTreeMap;

use super::container::mixed;
use super::pod::{Container, EnvVar, Pod};
use super::shell::Environment;

/// Directories that every container has for itself, and that begin empty.
const SCRATCH: [&str; 2] = ["/tmp", "/var/tmp"];

/// What the container finds around it in its n-th run. The first is 0.
pub fn of(pod: &Pod, container: &Container, run: u32) -> Environment {
    let host = pod.spec.hostname.as_deref().unwrap_or(&pod.metadata.name).to_owned();
    let mut variables = BTreeMap::from([("HOSTNAME".to_owned(), Some(host))]);
    for variable in &container.env {
        let value = value(pod, variable).map(|value| expanded(&value, &variables));
        variables.insert(variable.name.to_string(), value);
    }
    let is_empty = |name: &str| pod.spec.volumes.iter().any(|it| *it.name == *name && it.empty_dir.is_some());
    let mounts = container.volume_mounts.iter().filter(|mount| is_empty(&mount.name) && mount.sub_path.is_empty());
    let volumes = mounts.map(|mount| mount.mount_path.to_string()).collect();
    let scratch = SCRATCH.map(str::to_owned).to_vec();
    let seed = mixed(&[&pod.metadata.uid, &container.name, &run.to_string()], 0);
    Environment { variables, volumes, scratch, seed, until: None }
}

/// The value of a variable; none if it is not told here.
fn value(pod: &Pod, variable: &EnvVar) -> Option<String> {
    let Some(source) = &variable.value_from else { return Some(variable.value.to_string()) };
    let path = &*source.field_ref.as_ref()?.field_path;
    let meta = &pod.metadata;
    let told = match path {
        "metadata.name" => &meta.name,
        "metadata.namespace" => &meta.namespace,
        "metadata.uid" => &meta.uid,
        "spec.nodeName" => &pod.spec.node_name,
        "spec.serviceAccountName" => &pod.spec.service_account_name,
        "status.podIP" | "status.podIPs" => return pod.status.pod_ip.clone(),
        "status.hostIP" | "status.hostIPs" => return pod.status.host_ip.clone(),
        _ => {
            let (pairs, rest) =
                match (path.strip_prefix("metadata.labels['"), path.strip_prefix("metadata.annotations['")) {
                    (Some(rest), _) => (&meta.labels, rest),
                    (_, Some(rest)) => (&meta.annotations, rest),
                    _ => return None,
                };
            return Some(pairs.get(rest.strip_suffix("']")?).unwrap_or_default().to_owned());
        }
    };
    Some(told.to_string())
}

/// A text with `$(NAME)` replaced by the values of variables, as a node does it before it starts a container. What has no value stays as it is;
/// `$$` is a plain `$`.
pub fn expanded(text: &str, variables: &BTreeMap<String, Option<String>>) -> String {
    let (mut found, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find('$') {
        let (before, from) = rest.split_at(at);
        found.push_str(before);
        let named = from.strip_prefix("$(").and_then(|inside| inside.split_once(')'));
        rest = match (from.strip_prefix("$$"), named) {
            (Some(rest), _) => {
                found.push('$');
                rest
            }
            (None, Some((name, rest))) if variables.get(name).is_some_and(Option::is_some) => {
                found.push_str(variables[name].as_deref().unwrap_or_default());
                rest
            }
            _ => {
                found.push('$');
                &from[1..]
            }
        };
    }
    found + rest
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn variables_have_the_values_that_the_pod_tells() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "shop", "uid": "u", "labels": {"a": "b"}, "annotations": {"index": "3"}},
            "spec": {
                "nodeName": "n", "hostname": "h-3", "serviceAccountName": "s", "volumes": [{"name": "d", "emptyDir": {}}, {"name": "e"}],
                "containers": [{
                    "name": "c",
                    "env": [
                        {"name": "PLAIN", "value": "x"},
                        {"name": "FROM", "value": "$(PLAIN)-$$(PLAIN)-$(NONE)"},
                        {"name": "INDEX", "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['index']"}}},
                        {"name": "LABEL", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a']"}}},
                        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                        {"name": "ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                        {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                    ],
                    "volumeMounts": [{"name": "d", "mountPath": "/data"}, {"name": "e", "mountPath": "/other"}],
                }],
            },
            "status": {"podIP": "10.0.0.7"},
        }))
        .unwrap();
        let found = of(&pod, &pod.spec.containers[0], 0);
        let told: Vec<String> =
            found.variables.iter().map(|(name, value)| format!("{name}={}", value.as_deref().unwrap_or("?"))).collect();
        let expected = [
            "ADDRESS=10.0.0.7",
            "FROM=x-$(PLAIN)-$(NONE)",
            "HOSTNAME=h-3",
            "INDEX=3",
            "LABEL=b",
            "NODE=n",
            "PLAIN=x",
            "SECRET=?",
        ];
        assert_eq!(told, expected);
        assert_eq!(found.volumes, ["/data"]);
        assert_ne!(found.seed, of(&pod, &pod.spec.containers[0], 1).seed);
    }
}
