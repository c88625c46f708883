//! What a pod as a whole asks for: the most that its containers take at one moment.

use serde_json::Value;
use setpoint_schema::Edit;

use super::amounts::Amounts;

/// Which side of a container's resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Requests,
    Limits,
}

impl Side {
    fn field(self) -> &'static str {
        match self {
            Side::Requests => "requests",
            Side::Limits => "limits",
        }
    }
}

/// Items of a list field.
pub(super) fn items<'v>(object: &'v Value, list: &str) -> impl Iterator<Item = &'v Value> {
    object[list].as_array().into_iter().flatten()
}

/// What a container's spec says.
pub(super) fn stated(container: &Value, side: Side) -> Amounts {
    Amounts::read(&container["resources"][side.field()])
}

/// The total of what specs say. Overhead is not in it.
pub(super) fn total_stated(pod: &Value, side: Side) -> Amounts {
    total(pod, side, &|container| stated(container, side))
}

/// The total of what the pod holds or will hold: while it is resized, the larger of both; with its overhead.
pub(super) fn total_held(pod: &Value, side: Side) -> Amounts {
    let statuses = ["containerStatuses", "initContainerStatuses"];
    let status = |name: &str| {
        statuses.iter().flat_map(|list| items(&pod["status"], list)).find(|status| status.text("name") == name)
    };
    let conditions = || items(&pod["status"], "conditions");
    let infeasible = conditions().any(|c| c.text("type") == "PodResizePending" && c.text("reason") == "Infeasible");
    let held = |container: &Value| {
        let mut held = stated(container, side);
        let Some(status) = status(container.text("name")) else { return held };
        let actual = Amounts::read(&status["resources"][side.field()]);
        if infeasible && !actual.is_empty() {
            held = actual.clone();
        }
        held.at_least(&actual);
        if side == Side::Requests {
            held.at_least(&Amounts::read(&status["allocatedResources"]));
        }
        held
    };
    let total = total(pod, side, &held);
    add_overhead(pod, side, total)
}

/// The total of what specs say, with the pod's overhead.
pub(super) fn total_with_overhead(pod: &Value, side: Side) -> Amounts {
    add_overhead(pod, side, total_stated(pod, side))
}

fn add_overhead(pod: &Value, side: Side, mut total: Amounts) -> Amounts {
    for (name, amount) in Amounts::read(&pod["spec"]["overhead"]).iter() {
        // A limit that isn't there isn't made by what is added to it.
        if side == Side::Requests || total.get(name).is_some_and(|limit| !limit.is_zero()) {
            total.add(name, amount);
        }
    }
    total
}

fn total(pod: &Value, side: Side, of: &dyn Fn(&Value) -> Amounts) -> Amounts {
    let spec = &pod["spec"];
    let mut total = Amounts::default();
    items(spec, "containers").for_each(|container| total.extend(&of(container)));
    let (mut sidecars, mut starting) = (Amounts::default(), Amounts::default());
    for container in items(spec, "initContainers") {
        let own = of(container);
        if container.text("restartPolicy") == "Always" {
            total.extend(&own);
            sidecars.extend(&own);
            starting.at_least(&sidecars);
        } else {
            let mut moment = own;
            moment.extend(&sidecars);
            starting.at_least(&moment);
        }
    }
    total.at_least(&starting);
    // What is said of the pod as a whole counts more.
    for (name, amount) in Amounts::read(&spec["resources"][side.field()]).iter() {
        if matches!(name, "cpu" | "memory") || name.starts_with("hugepages-") {
            total.set(name, amount.clone());
        }
    }
    total
}
