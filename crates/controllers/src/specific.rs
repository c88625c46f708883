//! Settings that only one controller has, under the names that the configuration of kube-controller-manager has for them.

use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use setpoint_api::time::parse_duration;
use setpoint_runtime::config::Config;

const NODE_LIFECYCLE: &str = "nodeLifecycleController";
const POD_GC: &str = "podGCController";

/// The keys of a configuration file under which these settings are.
pub const PARTS: [&str; 2] = [NODE_LIFECYCLE, POD_GC];

/// What can be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Specific {
    /// A node that isn't heard of for so long is unreachable.
    pub node_monitor_grace_period: Duration,
    /// How long a new node may take until it says how it is.
    pub node_startup_grace_period: Duration,
    /// So many pods that have ended are kept; none for all.
    pub ended_pods_max: Option<usize>,
}

/// As in kube-controller-manager.
impl Default for Specific {
    fn default() -> Specific {
        Specific {
            node_monitor_grace_period: Duration::from_secs(50),
            node_startup_grace_period: Duration::from_secs(60),
            ended_pods_max: Some(12_500),
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct NodeLifecycle {
    node_monitor_grace_period: Option<String>,
    node_startup_grace_period: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct PodGc {
    #[serde(rename = "terminatedPodGCThreshold")]
    terminated_pod_gc_threshold: Option<i64>,
}

impl Specific {
    /// What a configuration says that was read with [`PARTS`]; the first mistake in words.
    pub fn of(config: &Config) -> Result<Specific, String> {
        let usual = Specific::default();
        let nodes: NodeLifecycle = part(config, NODE_LIFECYCLE)?;
        let pods: PodGc = part(config, POD_GC)?;
        let span = |name: &str, text: Option<String>, usual: Duration| match text {
            None => Ok(usual),
            Some(text) => {
                let nanos = parse_duration(&text).ok().and_then(|nanos| u64::try_from(nanos).ok());
                nanos.filter(|nanos| *nanos > 0).map(Duration::from_nanos).ok_or_else(|| {
                    format!("{NODE_LIFECYCLE}.{name}: must be a duration greater than zero, such as 30s or 5m")
                })
            }
        };
        let (grace, startup) = (nodes.node_monitor_grace_period, nodes.node_startup_grace_period);
        Ok(Specific {
            node_monitor_grace_period: span("nodeMonitorGracePeriod", grace, usual.node_monitor_grace_period)?,
            node_startup_grace_period: span("nodeStartupGracePeriod", startup, usual.node_startup_grace_period)?,
            ended_pods_max: match pods.terminated_pod_gc_threshold {
                None => usual.ended_pods_max,
                Some(count) => usize::try_from(count).ok().filter(|count| *count > 0),
            },
        })
    }
}

fn part<T: Default + DeserializeOwned>(config: &Config, key: &str) -> Result<T, String> {
    let read = |written: &serde_json::Value| serde_json::from_value(written.clone());
    config
        .part(key)
        .map_or_else(|| Ok(T::default()), |written| read(written).map_err(|error| format!("{key}: {error}")))
}

#[cfg(test)]
mod tests {
    use setpoint_runtime::config::Sources;

    use super::*;

    fn read(file: &str) -> Result<Specific, String> {
        let sources = PARTS.iter().fold(Sources::new(), |sources, part| sources.part(part));
        Specific::of(&Config::load(&sources.file(file)).unwrap())
    }

    #[test]
    fn what_is_not_set_is_as_in_kubernetes() {
        assert_eq!(read("workers: 2"), Ok(Specific::default()));
        let set = read(
            "nodeLifecycleController: {nodeMonitorGracePeriod: 12s}\npodGCController: {terminatedPodGCThreshold: 3}",
        );
        let grace = Duration::from_secs(12);
        assert_eq!(
            set,
            Ok(Specific { node_monitor_grace_period: grace, ended_pods_max: Some(3), ..Specific::default() })
        );
        let all = read("podGCController: {terminatedPodGCThreshold: 0}").unwrap();
        assert_eq!(all.ended_pods_max, None);
    }

    #[test]
    fn a_mistake_is_told_with_its_key() {
        for (file, said) in [
            (
                "nodeLifecycleController: {nodeMonitorGracePeriod: soon}",
                "nodeLifecycleController.nodeMonitorGracePeriod: must be a duration",
            ),
            ("nodeLifecycleController: {grace: 1s}", "nodeLifecycleController: unknown field `grace`"),
            ("podGCController: {terminatedPodGCThreshold: many}", "podGCController: invalid type: string"),
        ] {
            let error = read(file).unwrap_err();
            assert!(error.starts_with(said), "{error}");
        }
    }
}
