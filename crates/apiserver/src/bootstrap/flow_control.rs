//! Default priorities of requests, the same as upstream makes: people find them, and can build on them.

use serde_json::{Value, json};

use super::Wanted;

const GROUP: &str = "flowcontrol.apiserver.k8s.io";

/// A level of priority: its name, its shares, how much of them it lends, and its queues (how many, how many a flow is dealt).
struct Level(&'static str, i64, i64, Option<(i64, i64)>);

const LEVELS: [Level; 7] = [
    Level(CATCH_ALL, 5, 0, None),
    Level("system", 30, 33, Some((64, 6))),
    Level("node-high", 40, 25, Some((64, 6))),
    Level("leader-election", 10, 0, Some((16, 4))),
    Level("workload-high", 40, 50, Some((128, 6))),
    Level("workload-low", 100, 90, Some((128, 6))),
    Level("global-default", 20, 50, Some((128, 6))),
];

/// What always counts, also where somebody deleted it.
const MANDATORY: [&str; 2] = ["exempt", CATCH_ALL];

/// The schema, and its level, of whoever no other takes.
pub(crate) const CATCH_ALL: &str = "catch-all";

/// Requests that wait in one queue.
const QUEUE_LENGTH: i64 = 50;

const MASTERS: &str = "system:masters";
const EVERYONE: [&str; 2] = ["system:unauthenticated", "system:authenticated"];

/// Levels and the schemas that lead to them.
pub(super) fn objects(now: String) -> impl Iterator<Item = Wanted> {
    let exempt = json!({"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}});
    let levels = LEVELS.iter().map(|level| (level.0, limited(level))).chain([("exempt", exempt)]);
    let levels = levels.map(|(name, spec)| {
        let object = json!({"metadata": metadata(name), "spec": spec});
        Wanted::new(GROUP, "v1", "prioritylevelconfigurations", object)
    });
    levels.chain(schemas().into_iter().map(move |schema| schema.wanted(&now)))
}

/// The schemas and levels that always count, each with the resource that it is of.
pub(crate) fn mandatory() -> impl Iterator<Item = (&'static str, Value)> {
    let is_meant = |wanted: &Wanted| MANDATORY.iter().any(|name| wanted.object["metadata"]["name"] == *name);
    objects(String::new()).filter(is_meant).map(|wanted| (wanted.plural, wanted.object))
}

fn metadata(name: &str) -> Value {
    json!({"name": name, "annotations": {"apf.kubernetes.io/autoupdate-spec": "true"}})
}

fn limited(&Level(_, shares, lent, queues): &Level) -> Value {
    let response = match queues {
        None => json!({"type": "Reject"}),
        Some((queues, hand)) => json!({
            "type": "Queue",
            "queuing": {"queues": queues, "handSize": hand, "queueLengthLimit": QUEUE_LENGTH},
        }),
    };
    json!({
        "type": "Limited",
        "limited": {"nominalConcurrencyShares": shares, "lendablePercent": lent, "limitResponse": response},
    })
}

/// Which requests go to which level.
struct Schema {
    name: &'static str,
    level: &'static str,
    precedence: i64,
    flows_by: Option<&'static str>,
    rules: Value,
}

impl Schema {
    fn wanted(self, now: &str) -> Wanted {
        let mut spec = json!({
            "priorityLevelConfiguration": {"name": self.level}, "matchingPrecedence": self.precedence,
            "rules": [self.rules],
        });
        if let Some(by) = self.flows_by {
            spec["distinguisherMethod"] = json!({"type": by});
        }
        let message = format!(
            "This FlowSchema references the PriorityLevelConfiguration object named \"{}\" and it exists",
            self.level
        );
        let found = json!({
            "type": "Dangling", "status": "False", "reason": "Found", "message": message, "lastTransitionTime": now,
        });
        Wanted::new(GROUP, "v1", "flowschemas", json!({"metadata": metadata(self.name), "spec": spec}))
            .with_status(json!({"conditions": [found]}))
    }
}

fn schemas() -> Vec<Schema> {
    let schema = |name, level, precedence, flows_by, rules| Schema { name, level, precedence, flows_by, rules };
    let (user, namespace) = (Some("ByUser"), Some("ByNamespace"));
    let controllers = users(&["system:kube-controller-manager"]);
    let scheduler = users(&["system:kube-scheduler"]);
    let mut leaders = users(&["system:kube-controller-manager", "system:kube-scheduler"]);
    leaders.push(kube_system_accounts());
    let leases = |verbs: Value| json!({"verbs": verbs, "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "namespaces": ["*"]});
    let nodes = json!({
        "verbs": ["*"], "apiGroups": [""], "resources": ["nodes", "nodes/status"], "clusterScope": true, "namespaces": ["*"],
    });
    let probes = json!({
        "subjects": groups(&EVERYONE),
        "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"]}],
    });
    let lead = json!({"subjects": leaders, "resourceRules": [leases(json!(["get", "create", "update"]))]});
    let node_work = json!({"subjects": groups(&["system:nodes"]), "resourceRules": [nodes, leases(json!(["*"]))]});
    vec![
        schema("exempt", "exempt", 1, None, everything(groups(&[MASTERS]))),
        schema(CATCH_ALL, CATCH_ALL, 10000, user, everything(groups(&EVERYONE))),
        schema("probes", "exempt", 2, None, probes),
        schema("system-leader-election", "leader-election", 100, user, lead),
        schema("system-node-high", "node-high", 400, user, node_work),
        schema("system-nodes", "system", 500, user, everything(groups(&["system:nodes"]))),
        schema("kube-controller-manager", "workload-high", 800, namespace, everything(controllers)),
        schema("kube-scheduler", "workload-high", 800, namespace, everything(scheduler)),
        schema(
            "kube-system-service-accounts",
            "workload-high",
            900,
            namespace,
            everything(vec![kube_system_accounts()]),
        ),
        schema("service-accounts", "workload-low", 9000, user, everything(groups(&["system:serviceaccounts"]))),
        schema("global-default", "global-default", 9900, user, everything(groups(&EVERYONE))),
    ]
}

fn everything(subjects: Vec<Value>) -> Value {
    json!({
        "subjects": subjects,
        "resourceRules": [
            {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true, "namespaces": ["*"]},
        ],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    })
}

fn groups(names: &[&str]) -> Vec<Value> {
    names.iter().map(|name| json!({"kind": "Group", "group": {"name": name}})).collect()
}

fn users(names: &[&str]) -> Vec<Value> {
    names.iter().map(|name| json!({"kind": "User", "user": {"name": name}})).collect()
}

fn kube_system_accounts() -> Value {
    json!({"kind": "ServiceAccount", "serviceAccount": {"name": "*", "namespace": "kube-system"}})
}
