//! What simulated containers would use: a share of what they ask for, a little different from minute to minute.

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::jiff::Timestamp;
use setpoint_api::quantity::Quantity;

/// What something uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The container.
    pub container: String,
    /// Processors, in billionths of one.
    pub cpu_nanos: u64,
    /// Memory.
    pub memory_bytes: u64,
}

/// What a container asks for that doesn't say: an idle process.
const IDLE_MILLIS: u64 = 4;
const IDLE_BYTES: u64 = 32 << 20;

/// What a node uses beside its pods: an agent and a kernel.
pub const NODE: (u64, u64) = (60_000_000, 512 << 20);

/// What each running container of a pod uses.
pub fn usage(pod: &Pod, now: Timestamp) -> Vec<Usage> {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
    let running =
        statuses.into_iter().flatten().filter(|it| it.state.as_ref().is_some_and(|state| state.running.is_some()));
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    running
        .map(|status| {
            let mut all = pod.spec.iter().flat_map(|spec| &spec.containers);
            let spec = all.find(|container| container.name == status.name);
            let share = share(uid, &status.name, now);
            let (millis, bytes) = (asked(spec, "cpu", IDLE_MILLIS), asked(spec, "memory", IDLE_BYTES));
            Usage {
                container: status.name.clone(),
                cpu_nanos: millis.saturating_mul(10_000).saturating_mul(share),
                memory_bytes: bytes / 100 * (share / 4 + 50),
            }
        })
        .collect()
}

/// What a container asks for: thousandths of a processor, or bytes.
fn asked(container: Option<&Container>, what: &str, idle: u64) -> u64 {
    let resources = container.and_then(|container| container.resources.as_ref());
    let asked = resources.and_then(|it| it.requests.as_ref().and_then(|requests| requests.get(what)));
    let asked = asked.and_then(|quantity| Quantity::parse(&quantity.0).ok());
    let number = asked.map(|it| if what == "cpu" { it.milli_value() } else { it.value() });
    number.and_then(|number| u64::try_from(number).ok()).filter(|number| *number > 0).unwrap_or(idle)
}

/// Percent: from 20 to 79, by container and minute.
fn share(uid: &str, container: &str, now: Timestamp) -> u64 {
    let minute = now.as_second() / 60;
    let bytes = uid.bytes().chain(container.bytes()).chain(minute.to_le_bytes());
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    20 + (hash >> 16) % 60
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_runs_uses_something_and_less_than_it_asks_for() {
        let pod = json!({
            "metadata": {"uid": "u"},
            "spec": {"containers": [
                {"name": "large", "resources": {"requests": {"cpu": "2", "memory": "1Gi"}}},
                {"name": "idle"},
                {"name": "over"},
            ]},
            "status": {"containerStatuses": [
                {"name": "large", "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": {"running": {}}},
                {"name": "idle", "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": {"running": {}}},
                {"name": "over", "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": {"terminated": {"exitCode": 0}}},
            ]},
        });
        let pod: Pod = serde_json::from_value(pod).unwrap();
        for minute in 0..100 {
            let used = usage(&pod, Timestamp::from_second(minute * 60).unwrap());
            let [large, idle] = used.as_slice() else { panic!("{used:?}") };
            assert!((400_000_000..1_600_000_000).contains(&large.cpu_nanos), "{large:?}");
            assert!((1 << 29..1 << 30).contains(&large.memory_bytes), "{large:?}");
            assert!((800_000..4_000_000).contains(&idle.cpu_nanos), "{idle:?}");
        }
    }
}
