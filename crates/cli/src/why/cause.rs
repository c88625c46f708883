//! From what was gathered to the first cause, without asking anybody anything.

use serde_json::Value;
use setpoint_api::time::Timestamp;
use setpoint_schema::human;

use crate::events::moment;
use crate::family::Family;
use crate::health::{self, Mark};

/// Everything that was gathered.
#[derive(Debug, Default)]
pub struct Facts {
    /// The object and what it owns.
    pub family: Family,
    /// Events of its namespace.
    pub events: Vec<Value>,
    /// The pods that it chooses, if it is a Service.
    pub selected: Option<Vec<Value>>,
    /// Services that it leads to and that are not there, if it is an Ingress.
    pub missing: Vec<String>,
    /// Nodes of its pods.
    pub nodes: Vec<Value>,
    /// Who controls it, who controls that, and so on.
    pub owners: Vec<Value>,
    /// The last runs of controllers, by controller, newest first.
    pub traces: Value,
    /// Seconds since 1970.
    pub now: i64,
}

/// How deep a chain of owners is followed.
const DEPTH_MAX: usize = 16;

/// The first cause, in one sentence.
pub fn sentence(facts: &Facts) -> String {
    let root = facts.family.root();
    let (name, health) = (name(root), health::of(root));
    let cause = facts.cause(0, 0);
    if let (None, Some(owner)) = (&cause, facts.of_owners()) {
        return match health.mark {
            Mark::Well => format!("{name} is as it should be ({}), but {owner}", health.words),
            Mark::Working | Mark::Bad | Mark::Silent => format!("{name} follows its owner: {owner}"),
        };
    }
    match (cause, health.mark) {
        (Some(cause), _) if cause.starts_with(&name) => cause,
        (Some(cause), Mark::Well | Mark::Silent) => format!("{name}: {cause}"),
        (Some(cause), Mark::Working | Mark::Bad) => format!("{name} has {}: {cause}", or(&health.words, "trouble")),
        (None, Mark::Well) => format!("{name} is as it should be ({})", health.words),
        (None, Mark::Silent) => format!("{name} is there, and nothing about it says that anything is wrong"),
        (None, Mark::Working | Mark::Bad) => {
            format!("{name} has {}, and nothing that it says tells why", or(&health.words, "trouble"))
        }
    }
}

impl Facts {
    /// Why the member at a place is not as it should be; None if it is, or if nothing tells.
    fn cause(&self, at: usize, depth: usize) -> Option<String> {
        let object = &self.family.members.get(at)?.object;
        let failing = self.failing(object);
        if let Some(cause) = self.deletion(object) {
            return Some(match failing {
                Some(failing) => format!("{cause}; {failing}"),
                None => cause,
            });
        }
        if health::is_unseen(object) {
            if let Some(failing) = failing {
                return Some(format!("{} waits for its controller: {failing}", name(object)));
            }
            let (now, seen) = (&object["metadata"]["generation"], &object["status"]["observedGeneration"]);
            return Some(format!(
                "{} waits for its controller, which has not looked at the last change yet (generation {now}, seen {seen}): does it run?",
                name(object)
            ));
        }
        if let Some(cause) = self.own_cause(object) {
            return Some(cause);
        }
        let health = health::of(object);
        if health.mark == Mark::Well || depth >= DEPTH_MAX {
            return None;
        }
        let failing = failing.map(|failing| format!("{}: {failing}", name(object)));
        self.of_children(at, depth).or(failing).or_else(|| self.said(object))
    }

    /// What is the matter with whoever controls the object, where that alone is the cause.
    fn of_owners(&self) -> Option<String> {
        self.owners.iter().find_map(|owner| {
            if let Some(gone) = owner["goneName"].as_str() {
                let kind = text(&owner["kind"]).to_lowercase();
                return Some(format!("{kind}/{gone} is gone, and the garbage collector takes away what it owned"));
            }
            let paused = self.own_cause(owner).filter(|_| text(&owner["kind"]) != "Pod");
            let failing = || self.failing(owner).map(|failing| format!("{}: {failing}", name(owner)));
            self.deletion(owner).or(paused).or_else(failing)
        })
    }

    /// What the last run of a controller for this object says, if it did not end well.
    fn failing(&self, object: &Value) -> Option<String> {
        let metadata = &object["metadata"];
        let key = match text(&metadata["namespace"]) {
            "" => text(&metadata["name"]).to_owned(),
            namespace => format!("{namespace}/{}", text(&metadata["name"])),
        };
        let kind = text(&object["kind"]).to_lowercase();
        self.traces.as_object()?.iter().find_map(|(controller, runs)| {
            let last =
                runs.as_array()?.iter().find(|run| run["key"] == key.as_str() && is_about(run, &kind, controller))?;
            failed(controller, last)
        })
    }

    /// The cause of the first child that is not well: of ReplicaSets, the newest that should have pods.
    fn of_children(&self, at: usize, depth: usize) -> Option<String> {
        let mut children: Vec<_> = self.family.children(at).collect();
        children.sort_by_key(|(_, member)| {
            std::cmp::Reverse(text(&member.object["metadata"]["creationTimestamp"]).to_owned())
        });
        children.sort_by_key(|(_, member)| health::of(&member.object).mark != Mark::Bad);
        children.into_iter().find_map(|(at, member)| {
            let is_idle = member.object["kind"] == "ReplicaSet" && member.object["spec"]["replicas"] == 0;
            if is_idle { None } else { self.cause(at, depth + 1) }
        })
    }

    /// What holds an object that is being deleted.
    fn deletion(&self, object: &Value) -> Option<String> {
        let since = object["metadata"].get("deletionTimestamp").filter(|time| !time.is_null())?;
        let ago = human::age(Some(since), self.now);
        let finalizers: Vec<&str> = strings(&object["metadata"]["finalizers"]);
        let spec: Vec<&str> = strings(&object["spec"]["finalizers"]);
        let name = name(object);
        if let Some(rest) = ["NamespaceFinalizersRemaining", "NamespaceContentRemaining"]
            .iter()
            .find_map(|kind| health::condition(object, kind).filter(|one| one["status"] == "True"))
        {
            return Some(format!("{name} is being deleted for {ago} and is not empty: {}", text(&rest["message"])));
        }
        match (&finalizers[..], &spec[..]) {
            ([], []) => Some(format!("{name} is being deleted and ends within its grace period")),
            ([], ["kubernetes"]) if text(&object["kind"]) == "Namespace" => {
                Some(format!("{name} is being deleted for {ago}: what is in it goes first"))
            }
            ([], held) => Some(format!("{name} is being deleted for {ago} and waits for {}", held.join(", "))),
            (["foregroundDeletion"], _) => {
                Some(format!("{name} is being deleted for {ago} and waits for what it owns to be gone first"))
            }
            (held, _) => Some(format!(
                "{name} is being deleted for {ago} and is held by its finalizer {}: whoever put it there has to take it away",
                held.join(", ")
            )),
        }
    }

    fn own_cause(&self, object: &Value) -> Option<String> {
        match text(&object["kind"]) {
            "Pod" => self.pod(object),
            "Service" => self.service(object),
            "Node" => node(object).or_else(|| cordoned(object)),
            "Deployment" if object["spec"]["paused"] == true => {
                Some(format!("{} is paused: its changes wait until it is resumed", name(object)))
            }
            "ReplicaSet" | "ReplicationController" | "StatefulSet" | "DaemonSet" | "Job" => self.creation(object),
            "CronJob" if object["spec"]["suspend"] == true => Some(format!("{} is suspended", name(object))),
            "PersistentVolumeClaim" if text(&object["status"]["phase"]) != "Bound" => {
                let why = self.last_event(object).unwrap_or_else(|| "no volume fits, and nobody makes one".to_owned());
                Some(format!("{} is not bound: {why}", name(object)))
            }
            "ResourceQuota" => used_up(object),
            "PodDisruptionBudget" => undisturbed(object),
            "Ingress" if !self.missing.is_empty() => {
                let missing: Vec<_> = self.missing.iter().map(|name| format!("service/{name}")).collect();
                let verb = if missing.len() == 1 { "is" } else { "are" };
                Some(format!("{} leads nowhere: there {verb} no {}", name(object), missing.join(", ")))
            }
            _ => None,
        }
    }

    /// Why pods are not even made: a quota, a policy, a suspension.
    fn creation(&self, object: &Value) -> Option<String> {
        let holds = |kind: &str| health::condition(object, kind).filter(|one| one["status"] == "True");
        if object["kind"] == "Job" {
            if object["spec"]["suspend"] == true {
                return Some(format!("{} is suspended", name(object)));
            }
            if let Some(failed) = holds("Failed") {
                return Some(format!(
                    "{} failed ({}): {}",
                    name(object),
                    text(&failed["reason"]),
                    text(&failed["message"])
                ));
            }
        }
        if let Some(failure) = holds("ReplicaFailure") {
            return Some(format!("{} can't make its pods: {}", name(object), text(&failure["message"])));
        }
        if health::of(object).mark == Mark::Well {
            return None;
        }
        let failed = self.events_of(object).filter(|event| event["reason"] == "FailedCreate").last()?;
        let has_pods = self.family.members.iter().any(|member| {
            let owners = member.object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
            member.object["kind"] == "Pod" && owners.into_iter().any(|owner| owner["uid"] == object["metadata"]["uid"])
        });
        (!has_pods).then(|| format!("{} can't make its pods: {}", name(object), text(&failed["message"])))
    }

    fn pod(&self, pod: &Value) -> Option<String> {
        let (name, status) = (name(pod), &pod["status"]);
        let gates: Vec<&str> =
            pod["spec"]["schedulingGates"].as_array().into_iter().flatten().map(|gate| text(&gate["name"])).collect();
        if !gates.is_empty() {
            return Some(format!("{name} is held by its scheduling gates: {}", gates.join(", ")));
        }
        if text(&pod["spec"]["nodeName"]).is_empty() && text(&status["phase"]) != "Failed" {
            return Some(match health::condition(pod, "PodScheduled").filter(|one| one["status"] == "False") {
                Some(said) => format!("{name} fits on no node: {}", text(&said["message"])),
                None => format!(
                    "{name} has no node, and no scheduler has looked at it: does {} run?",
                    or(text(&pod["spec"]["schedulerName"]), "default-scheduler")
                ),
            });
        }
        if text(&status["phase"]) == "Failed" {
            let reason = or(text(&status["reason"]), "Failed");
            let message = text(&status["message"]);
            let ended = containers(status).find_map(|one| ended(one, "state"));
            let detail = if message.is_empty() { ended.unwrap_or_default() } else { message.to_owned() };
            return Some(format!("{name} failed ({reason}): {detail}"));
        }
        if let Some(away) = self.node_of(pod).and_then(node) {
            return Some(format!("{name} is on a node that is not ready: {away}"));
        }
        if let Some(cause) = containers(status).find_map(|container| waiting(&name, container)) {
            return Some(cause);
        }
        let unmounted = self.events_of(pod).filter(|event| event["reason"] == "FailedMount").last();
        if let Some(event) = unmounted.filter(|_| text(&status["phase"]) == "Pending") {
            return Some(format!("{name} waits for its volumes: {}", text(&event["message"])));
        }
        if text(&status["phase"]) == "Running" && health::of(pod).mark != Mark::Well {
            let unready = containers(status).find(|one| one["ready"] == false && one["state"]["running"].is_object());
            let probe = self.events_of(pod).filter(|event| event["reason"] == "Unhealthy").last();
            return Some(match (unready, probe) {
                (_, Some(event)) => format!("{name} runs but is not ready: {}", text(&event["message"])),
                (Some(one), None) => format!("{name} runs but its container {} is not ready yet", text(&one["name"])),
                (None, None) => match health::complaint(pod) {
                    Some(said) => format!("{name} runs but is not ready: {}", told(said)),
                    None => format!("{name} runs but is not ready"),
                },
            });
        }
        None
    }

    fn service(&self, service: &Value) -> Option<String> {
        let selector = service["spec"]["selector"].as_object()?;
        let pods = self.selected.as_ref()?;
        let labels: Vec<_> = selector.iter().map(|(name, value)| format!("{name}={}", text(value))).collect();
        if pods.is_empty() {
            return Some(format!("{} leads nowhere: no pod has the labels {}", name(service), labels.join(",")));
        }
        let named = |pod: &Value| {
            let mut pod = pod.clone();
            pod["kind"] = "Pod".into();
            pod["apiVersion"] = "v1".into();
            pod
        };
        let pods: Vec<Value> = pods.iter().map(named).collect();
        if pods.iter().any(|pod| health::of(pod).mark == Mark::Well) {
            return None;
        }
        let cause = pods.iter().find_map(|pod| self.pod(pod)).unwrap_or_else(|| "none of its pods is ready".to_owned());
        Some(format!("{} leads nowhere: {cause}", name(service)))
    }

    /// What an object says of itself, or the last warning about it.
    fn said(&self, object: &Value) -> Option<String> {
        let warning = || self.last_warning(object).map(|said| format!("{}: {said}", name(object)));
        match health::complaint(object) {
            Some(complaint) => Some(format!("{}: {}", name(object), told(complaint))),
            None => warning(),
        }
    }

    fn events_of<'a>(&'a self, object: &'a Value) -> impl Iterator<Item = &'a Value> {
        let mut events: Vec<&Value> =
            self.events.iter().filter(|event| event["involvedObject"]["uid"] == object["metadata"]["uid"]).collect();
        events.sort_by_key(|event| moment(event));
        events.into_iter()
    }

    fn last_warning(&self, object: &Value) -> Option<String> {
        self.events_of(object).filter(|event| event["type"] == "Warning").last().map(line)
    }

    fn last_event(&self, object: &Value) -> Option<String> {
        self.events_of(object).last().map(line)
    }

    fn node_of(&self, pod: &Value) -> Option<&Value> {
        self.nodes.iter().find(|node| node["metadata"]["name"] == pod["spec"]["nodeName"])
    }
}

/// What of a quota is used to its end.
fn used_up(quota: &Value) -> Option<String> {
    let (hard, used) = (&quota["status"]["hard"], &quota["status"]["used"]);
    let is_full = |name: &str| match (amount(&hard[name]), amount(&used[name])) {
        (Some(hard), Some(used)) => used >= hard,
        _ => false,
    };
    let full = hard.as_object()?.keys().filter(|name| is_full(name));
    let told: Vec<String> =
        full.map(|name| format!("{name} ({} of {})", text(&used[name]), text(&hard[name]))).collect();
    let rest = "what would take more of it is refused";
    (!told.is_empty()).then(|| format!("{} is used up: {}; {rest}", name(quota), told.join(", ")))
}

fn amount(quantity: &Value) -> Option<setpoint_api::quantity::Quantity> {
    setpoint_api::quantity::Quantity::parse(text(quantity)).ok()
}

/// A budget that lets no pod go holds up whoever drains a node.
fn undisturbed(budget: &Value) -> Option<String> {
    let count = |name: &str| budget["status"][name].as_i64();
    let (0, expected @ 1..) = (count("disruptionsAllowed")?, count("expectedPods")?) else { return None };
    let (healthy, wanted) = (count("currentHealthy").unwrap_or(0), count("desiredHealthy").unwrap_or(0));
    Some(format!(
        "{} lets no pod go: {healthy} of {expected} are healthy, and {wanted} have to be; whoever drains a node waits",
        name(budget)
    ))
}

/// Whether a run was for an object of a kind: another kind may have one of the same name.
fn is_about(run: &Value, kind: &str, controller: &str) -> bool {
    let accesses = ["reads", "writes"].into_iter().flat_map(|list| run[list].as_array().into_iter().flatten());
    let stem = kind.strip_suffix('y').unwrap_or(kind);
    let mut own = accesses.filter(|access| access["key"] == run["key"]).peekable();
    match own.peek() {
        Some(_) => own.any(|access| text(&access["plural"]).starts_with(stem)),
        None => controller.starts_with(kind),
    }
}

/// How a run of a controller failed, and when it is tried again.
fn failed(controller: &str, run: &Value) -> Option<String> {
    let outcome = &run["outcome"];
    let message = outcome["message"].as_str().map(|message| format!(": {message}")).unwrap_or_default();
    let times = run["attempt"].as_u64().unwrap_or(0) + 1;
    let next = match run["nextRunSeconds"].as_f64() {
        Some(seconds) => format!(", and tries again {seconds:.0} s after that"),
        None => String::new(),
    };
    match text(&outcome["result"]) {
        "transient" | "timedOut" => {
            Some(format!("{controller} waits out a back-off: it failed {times} times in a row{next}{message}"))
        }
        "terminal" | "panicked" => Some(format!("{controller} failed and waits for a change{message}")),
        "givenUp" => Some(format!("{controller} gave up after {times} failures and waits for a change{message}")),
        "staleCache" => Some(format!("{controller} waits until its cache has seen its own last write{next}")),
        _ => None,
    }
}

fn node(node: &Value) -> Option<String> {
    let name = format!("node/{}", text(&node["metadata"]["name"]));
    match health::condition(node, "Ready").filter(|one| one["status"] != "True") {
        Some(said) => {
            let since = text(&said["lastTransitionTime"]);
            let since = if Timestamp::parse(since).is_ok() { format!(" since {since}") } else { String::new() };
            Some(format!("{name} is not ready{since}: {}", told(said)))
        }
        None => None,
    }
}

fn cordoned(node: &Value) -> Option<String> {
    let name = text(&node["metadata"]["name"]);
    let said = format!("node/{name} takes no new pods: it is cordoned, until `kubectl uncordon {name}`");
    (node["spec"]["unschedulable"] == true).then_some(said)
}

/// Why a container does not run.
fn waiting(pod: &str, container: &Value) -> Option<String> {
    let state = &container["state"]["waiting"];
    let (reason, message, own) = (text(&state["reason"]), text(&state["message"]), text(&container["name"]));
    match reason {
        "" | "ContainerCreating" | "PodInitializing" => None,
        "CrashLoopBackOff" => {
            let last = ended(container, "lastState").unwrap_or_else(|| "it ended".to_owned());
            let times = container["restartCount"].as_i64().unwrap_or(0);
            Some(format!(
                "{pod} waits out a back-off: its container {own} ended again and again ({times} restarts; {last})"
            ))
        }
        reason => {
            Some(format!("{pod} can't start its container {own} ({reason}): {}", or(message, "it does not say why")))
        }
    }
}

fn ended(container: &Value, state: &str) -> Option<String> {
    let end = container[state]["terminated"].as_object()?;
    let field = |name: &str| end.get(name).and_then(Value::as_str).unwrap_or_default();
    let code = end.get("exitCode").and_then(Value::as_i64).unwrap_or(0);
    let said = if field("message").is_empty() { String::new() } else { format!(": {}", field("message").trim()) };
    Some(format!("{} with exit code {code}{said}", or(field("reason"), "ended")))
}

fn containers(status: &Value) -> impl Iterator<Item = &Value> {
    let lists = ["initContainerStatuses", "containerStatuses"];
    lists.into_iter().flat_map(|list| status[list].as_array().into_iter().flatten())
}

fn told(condition: &Value) -> String {
    let (kind, status) = (text(&condition["type"]), text(&condition["status"]));
    let reason = or(text(&condition["reason"]), "no reason given");
    match text(&condition["message"]) {
        "" => format!("{kind} is {status} ({reason})"),
        message => format!("{kind} is {status} ({reason}): {message}"),
    }
}

fn line(event: &Value) -> String {
    format!("{}: {}", text(&event["reason"]), text(&event["message"]).trim())
}

fn name(object: &Value) -> String {
    format!("{}/{}", text(&object["kind"]).to_lowercase(), text(&object["metadata"]["name"]))
}

fn strings(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn or<'a>(text: &'a str, other: &'a str) -> &'a str {
    if text.is_empty() { other } else { text }
}

#[cfg(test)]
mod tests;
