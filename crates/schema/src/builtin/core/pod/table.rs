//! The table of pods: what `kubectl get pods` shows.

use serde_json::{Value, json};
use setpoint_api::time::Timestamp;

use crate::columns::Column;
use crate::edit::Edit;
use crate::human;

const SPEC: &str = "io.k8s.api.core.v1.PodSpec";
const STATUS: &str = "io.k8s.api.core.v1.PodStatus";

/// The columns.
pub const COLUMNS: &[Column<'static>] = &[
    Column::NAME,
    Column::new("Ready", "string", |pod, _| json!(Row::of(pod).ready()))
        .about("The aggregate readiness state of this pod for accepting traffic."),
    Column::new("Status", "string", |pod, _| json!(Row::of(pod).reason))
        .about("The aggregate status of the containers in this pod."),
    Column::new("Restarts", "string", |pod, now| json!(Row::of(pod).restarts(now))).about(
        "The number of times the containers in this pod have been restarted and when the last container in this pod has \
         restarted.",
    ),
    Column::AGE,
    Column::new("IP", "string", |pod, _| or_none(pod.find(&["status", "podIP"]))).wide().about_field(STATUS, "podIP"),
    Column::new("Node", "string", |pod, _| or_none(pod.find(&["spec", "nodeName"]))).wide().about_field(SPEC, "nodeName"),
    Column::new("Nominated Node", "string", |pod, _| or_none(pod.find(&["status", "nominatedNodeName"])))
        .wide()
        .about_field(STATUS, "nominatedNodeName"),
    Column::new("Readiness Gates", "string", |pod, _| json!(readiness_gates(pod)))
        .wide()
        .about_field(SPEC, "readinessGates"),
];

/// That a pod is done, for better or worse.
pub fn row_conditions(pod: &Value) -> Vec<Value> {
    let (reason, message) = match pod["status"].text("phase") {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return Vec::new(),
    };
    vec![json!({"type": "Completed", "status": "True", "reason": reason, "message": message})]
}

/// What the cells of a row have in common.
#[derive(Debug, Default)]
struct Row {
    ready: usize,
    total: usize,
    reason: String,
    restarts: i64,
    last_restart: Option<i64>,
}

impl Row {
    fn of(pod: &Value) -> Self {
        let status = &pod["status"];
        let mut row = Self { total: items(&pod["spec"], "containers").count(), ..Self::default() };
        row.reason = [status.text("reason"), status.text("phase")]
            .into_iter()
            .find(|text| !text.is_empty())
            .unwrap_or("")
            .to_owned();
        let gated = |c: &Value| c.text("type") == "PodScheduled" && c.text("reason") == "SchedulingGated";
        if items(status, "conditions").any(gated) {
            row.reason = "SchedulingGated".to_owned();
        }
        let sidecars = row.read_init_containers(pod);
        let initialized = items(status, "conditions").find(|c| c.text("type") == "Initialized");
        if sidecars.done || initialized.is_some_and(|condition| condition.text("status") == "True") {
            row.read_containers(status, &sidecars);
        }
        if pod["metadata"].has("deletionTimestamp") {
            if status.text("reason") == "NodeLost" {
                row.reason = "Unknown".to_owned();
            } else if !matches!(status.text("phase"), "Succeeded" | "Failed") {
                row.reason = "Terminating".to_owned();
            }
        }
        row
    }

    fn ready(&self) -> String {
        format!("{}/{}", self.ready, self.total)
    }

    fn restarts(&self, now: i64) -> String {
        match self.last_restart {
            Some(last) if self.restarts != 0 => format!("{} ({} ago)", self.restarts, human::duration(now - last)),
            _ => self.restarts.to_string(),
        }
    }

    fn count(&mut self, container: &Value) {
        self.restarts += container.number("restartCount").unwrap_or(0);
        self.last_restart = self.last_restart.max(last_end(container));
    }

    fn read_init_containers(&mut self, pod: &Value) -> Sidecars {
        let specs: Vec<&Value> = items(&pod["spec"], "initContainers").collect();
        let is_sidecar = |container: &Value| container.text("restartPolicy") == "Always";
        self.total += specs.iter().filter(|container| is_sidecar(container)).count();
        let mut sidecars = Sidecars { done: true, restarts: 0, last_restart: None };
        for (index, container) in items(&pod["status"], "initContainerStatuses").enumerate() {
            self.count(container);
            let sidecar =
                specs.iter().rfind(|spec| spec.text("name") == container.text("name")).is_some_and(|c| is_sidecar(c));
            if sidecar {
                sidecars.restarts += container.number("restartCount").unwrap_or(0);
                sidecars.last_restart = sidecars.last_restart.max(last_end(container));
            }
            let ended = container.find(&["state", "terminated"]);
            if ended.is_some_and(|ended| ended.number("exitCode").unwrap_or(0) == 0) {
                continue;
            }
            if sidecar && container.flag("started") {
                self.ready += usize::from(container.flag("ready"));
                continue;
            }
            let waiting = container.find(&["state", "waiting", "reason"]).and_then(Value::as_str).unwrap_or("");
            self.reason = match ended {
                Some(ended) => format!("Init:{}", end_reason(ended)),
                None if !waiting.is_empty() && waiting != "PodInitializing" => format!("Init:{waiting}"),
                None => format!("Init:{index}/{}", specs.len()),
            };
            sidecars.done = false;
            break;
        }
        sidecars
    }

    fn read_containers(&mut self, status: &Value, sidecars: &Sidecars) {
        (self.restarts, self.last_restart) = (sidecars.restarts, sidecars.last_restart);
        let (mut running, mut error) = (false, None);
        let containers: Vec<&Value> = items(status, "containerStatuses").collect();
        for container in containers.into_iter().rev() {
            self.count(container);
            let waiting = container.find(&["state", "waiting", "reason"]).and_then(Value::as_str).unwrap_or("");
            let ended = container.find(&["state", "terminated"]);
            if !waiting.is_empty() {
                waiting.clone_into(&mut self.reason);
            } else if let Some(ended) = ended {
                self.reason = end_reason(ended);
                if ended.number("exitCode").unwrap_or(0) != 0 {
                    error = Some(self.reason.clone());
                }
            } else if container.flag("ready") && container.find(&["state", "running"]).is_some() {
                running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" {
            let ready = |c: &Value| c.text("type") == "Ready" && c.text("status") == "True";
            let is_ready = items(status, "conditions").any(ready);
            self.reason = match error {
                _ if running && is_ready => "Running".to_owned(),
                Some(error) => error,
                None if running => "NotReady".to_owned(),
                None => return,
            };
        }
    }
}

/// What init containers leave for the rest: whether they are done, and the restarts of those that run on.
#[derive(Debug)]
struct Sidecars {
    done: bool,
    restarts: i64,
    last_restart: Option<i64>,
}

fn end_reason(ended: &Value) -> String {
    let signal = ended.number("signal").unwrap_or(0);
    match ended.text("reason") {
        "" if signal != 0 => format!("Signal:{signal}"),
        "" => format!("ExitCode:{}", ended.number("exitCode").unwrap_or(0)),
        reason => reason.to_owned(),
    }
}

fn last_end(container: &Value) -> Option<i64> {
    let end = container.find(&["lastState", "terminated", "finishedAt"])?.as_str()?;
    Timestamp::parse(end).ok().map(|time| time.seconds)
}

fn readiness_gates(pod: &Value) -> String {
    let gates: Vec<&Value> = items(&pod["spec"], "readinessGates").collect();
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let is_true = |gate: &&&Value| {
        let mut conditions = items(&pod["status"], "conditions");
        conditions.find(|c| c.text("type") == gate.text("conditionType")).is_some_and(|c| c.text("status") == "True")
    };
    format!("{}/{}", gates.iter().filter(is_true).count(), gates.len())
}

fn items<'a>(object: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> {
    object.get(list).and_then(Value::as_array).into_iter().flatten()
}

fn or_none(value: Option<&Value>) -> Value {
    json!(value.and_then(Value::as_str).filter(|text| !text.is_empty()).unwrap_or("<none>"))
}
