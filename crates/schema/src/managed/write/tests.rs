//! The rules of ownership, seen from outside.

use serde_json::json;

use super::*;
use crate::facts::kind_type;
use crate::managed::{LAST_APPLIED, OneVersion};

const NOW: &str = "2024-01-02T00:00:00Z";

fn write(manager: &str) -> Write<'_> {
    Write {
        ty: kind_type("v1", "ConfigMap").unwrap(),
        api_version: "v1",
        kind: "ConfigMap",
        subresource: "",
        manager,
        time: NOW,
        reset_fields: &[],
        versions: &OneVersion,
    }
}

fn document(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data})
}

fn apply(live: Option<&Value>, manager: &str, data: Value) -> Result<Applied, ApplyError> {
    write(manager).apply(live, &document(data), OnConflict::Refuse)
}

/// The object as it is stored: with an identity.
fn applied(live: Option<&Value>, manager: &str, data: Value) -> Value {
    let mut object = apply(live, manager, data).unwrap().object;
    object["metadata"]["uid"] = json!("u");
    object
}

fn updated(live: Option<&Value>, manager: &str, data: Value) -> Value {
    let mut object = document(data);
    object["metadata"]["uid"] = json!("u");
    write(manager).update(live, &mut object);
    object
}

/// Each manager with its way of writing, its time and its fields.
fn owners(object: &Value) -> Vec<Value> {
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let brief = |e: &Value| json!([e["manager"], e["operation"], e["time"], e["fieldsV1"]]);
    entries.iter().map(brief).collect()
}

fn message(result: Result<Applied, ApplyError>) -> String {
    result.map_or_else(|error| error.to_string(), |applied| format!("applied {}", applied.object["data"]))
}

#[test]
fn a_creation_owns_all_it_sets_and_an_apply_what_it_mentions() {
    let made = updated(None, "one", json!({"a": "1"}));
    assert_eq!(owners(&made), [json!(["one", "Update", NOW, {"f:data": {".": {}, "f:a": {}}}])]);
    let made = applied(None, "one", json!({"a": "1"}));
    assert_eq!(owners(&made), [json!(["one", "Apply", NOW, {"f:data": {"f:a": {}}}])]);
}

#[test]
fn a_manager_without_a_name_is_unknown() {
    assert_eq!(owners(&updated(None, "", json!({"a": "1"})))[0][0], "unknown");
}

#[test]
fn an_update_takes_what_it_changes() {
    let live = applied(None, "one", json!({"a": "1", "b": "1"}));
    let live = updated(Some(&live), "two", json!({"a": "2", "b": "1"}));
    assert_eq!(
        owners(&live),
        [json!(["one", "Apply", NOW, {"f:data": {"f:b": {}}}]), json!(["two", "Update", NOW, {"f:data": {"f:a": {}}}])]
    );
    let conflict = apply(Some(&live), "one", json!({"a": "1"}));
    assert_eq!(message(conflict), r#"Apply failed with 1 conflict: conflict with "two" using v1: .data.a"#);
}

/// Managers that a write doesn't concern are not read: what is written must be the same as if they were.
#[test]
fn leaving_managers_unread_changes_nothing_of_what_is_written() {
    let writer = |manager, subresource| Write {
        ty: kind_type("v1", "Pod").unwrap(),
        kind: "Pod",
        subresource,
        ..write(manager)
    };
    let pod = |labels: Value, image: &str, status: Value| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "uid": "u", "labels": labels},
            "spec": {"containers": [{"name": "c", "image": image}]}, "status": status})
    };
    let mut live = pod(json!({"a": "1"}), "one", json!({}));
    writer("maker", "").update(None, &mut live);
    for (manager, subresource, mut new) in [
        ("kubelet", "status", pod(json!({"a": "1"}), "one", json!({"phase": "Running"}))),
        ("labeller", "", pod(json!({"a": "1", "b": "1"}), "one", json!({"phase": "Running"}))),
        ("kubelet", "status", pod(json!({"a": "1", "b": "1"}), "one", json!({"phase": "Failed", "reason": "x"}))),
        ("maker", "", pod(json!({"b": "2"}), "two", json!({"phase": "Failed", "reason": "x"}))),
        ("other", "status", pod(json!({"b": "2"}), "two", json!({}))),
        ("maker", "", pod(json!({}), "two", json!({}))),
    ] {
        let write = writer(manager, subresource);
        let all = Managers::decode(live["metadata"].get("managedFields")).unwrap();
        let all = write.rules().update(&live, &new, all, &write.writer(manager, Operation::Update), NOW);
        write.update(Some(&live), &mut new);
        assert_eq!(new["metadata"].get("managedFields"), all.encode().as_ref(), "{manager} {subresource}");
        live = new;
    }
}

#[test]
fn an_update_that_changes_nothing_leaves_owners_and_times() {
    let mut live = applied(None, "one", json!({"a": "1"}));
    live["metadata"]["managedFields"][0]["time"] = json!("2024-01-01T00:00:00Z");
    assert_eq!(owners(&updated(Some(&live), "two", json!({"a": "1"}))), owners(&live));
    let again = apply(Some(&live), "one", json!({"a": "1"})).unwrap();
    assert!(!again.changed && again.object == live);
}

#[test]
fn fields_are_shared_by_those_who_agree_and_go_with_the_last_of_them() {
    let live = applied(None, "one", json!({"a": "1", "b": "1"}));
    let shared = apply(Some(&live), "two", json!({"a": "1"})).unwrap();
    assert!(shared.changed);
    let live = shared.object;
    assert_eq!(owners(&live)[0], json!(["two", "Apply", null, {"f:data": {"f:a": {}}}]), "no time: nothing changed");
    let live = applied(Some(&live), "one", json!({"b": "2"}));
    assert_eq!(live["data"], json!({"a": "1", "b": "2"}));
    let live = applied(Some(&live), "two", json!({}));
    assert_eq!(live["data"], json!({"b": "2"}));
}

#[test]
fn what_is_owned_and_not_there_is_in_the_way_too() {
    let mut live = applied(None, "one", json!({"a": "1", "b": "1"}));
    live["data"].remove("a");
    assert!(message(apply(Some(&live), "two", json!({"a": "2"}))).ends_with(r#"conflict with "one": .data.a"#));
}

#[test]
fn what_the_server_set_within_an_item_goes_with_the_item_only() {
    let service = Write { ty: kind_type("v1", "Service").unwrap(), kind: "Service", ..write("one") };
    let config = |ports: Value| json!({"apiVersion": "v1", "kind": "Service", "spec": {"ports": ports}});
    let apply = |live: Option<&Value>, ports| service.apply(live, &config(ports), OnConflict::Refuse).unwrap().object;
    let mut live = apply(None, json!([{"port": 1, "name": "a", "appProtocol": "x"}, {"port": 2, "name": "b"}]));
    live["spec"]["type"] = json!("ClusterIP");
    live["spec"]["ports"][0]["targetPort"] = json!(1);
    let after = apply(Some(&live), json!([{"port": 1, "name": "a"}]));
    assert_eq!(after["spec"]["ports"], json!([{"port": 1, "name": "a", "targetPort": 1}]));
    assert_eq!(after["spec"]["type"], "ClusterIP");
}

/// Two versions with the same fields.
struct Twins;

impl Versions for Twins {
    fn type_in(&self, api_version: &str) -> Option<TypeRef<'_>> {
        ["v1", "v2"].contains(&api_version).then(|| kind_type("v1", "ConfigMap")).flatten()
    }

    fn convert(&self, object: &Value, api_version: &str) -> Value {
        let mut object = object.clone();
        object["apiVersion"] = json!(api_version);
        object
    }
}

#[test]
fn owners_are_compared_in_the_version_they_wrote() {
    let in_version = |version, manager| Write { api_version: version, versions: &Twins, ..write(manager) };
    let config = |version: &str, data: Value| json!({"apiVersion": version, "kind": "ConfigMap", "data": data});
    let apply = |live: Option<&Value>, version: &'static str, manager: &'static str, data: Value| {
        in_version(version, manager).apply(live, &config(version, data), OnConflict::Refuse)
    };
    let live = apply(None, "v1", "one", json!({"a": "1", "b": "1"})).unwrap().object;
    let conflict = apply(Some(&live), "v2", "two", json!({"a": "2"}));
    assert_eq!(message(conflict), r#"Apply failed with 1 conflict: conflict with "one": .data.a"#);
    let live = apply(Some(&live), "v2", "two", json!({"c": "1"})).unwrap().object;
    let live = apply(Some(&live), "v2", "one", json!({"a": "1"})).unwrap().object;
    assert_eq!((&live["data"], &live["apiVersion"]), (&json!({"a": "1", "c": "1"}), &json!("v2")));
    let versions: Vec<_> =
        live["metadata"]["managedFields"].as_array().unwrap().iter().map(|e| e["apiVersion"].clone()).collect();
    assert_eq!(versions, ["v2", "v2"]);
}

#[test]
fn who_insists_takes_the_field() {
    let live = applied(None, "one", json!({"a": "1"}));
    let forced = write("two").apply(Some(&live), &document(json!({"a": "2"})), OnConflict::Take).unwrap();
    assert_eq!(owners(&forced.object), [json!(["two", "Apply", NOW, {"f:data": {"f:a": {}}}])]);
}

#[test]
fn what_was_there_before_anyone_was_tracked_belongs_to_what_came_before() {
    let mut live = document(json!({"a": "1"}));
    live["metadata"]["uid"] = json!("u");
    let conflict = apply(Some(&live), "one", json!({"a": "2"}));
    assert_eq!(
        message(conflict),
        r#"Apply failed with 1 conflict: conflict with "before-first-apply" using v1: .data.a"#
    );
    let names: Vec<_> = owners(&applied(Some(&live), "one", json!({"b": "2"}))).iter().map(|o| o[0].clone()).collect();
    assert_eq!(names, ["before-first-apply", "one"].map(Value::from).iter().rev().cloned().collect::<Vec<_>>());
    assert_eq!(
        owners(&updated(Some(&live), "two", json!({"a": "3"}))),
        Vec::<Value>::new(),
        "an update starts nothing"
    );
}

#[test]
fn clients_may_reset_managers_but_not_break_them() {
    let live = applied(None, "one", json!({"a": "1"}));
    let with = |managed: Value, subresource: &'static str| {
        let mut new = live.clone();
        new["metadata"]["managedFields"] = managed;
        Write { subresource, ..write("two") }.update(Some(&live), &mut new);
        owners(&new)
    };
    let nobody: Vec<Value> = Vec::new();
    assert_eq!(with(json!([{}]), ""), nobody);
    assert_eq!(with(json!([]), ""), nobody);
    assert_eq!(with(json!([{}]), "status"), owners(&live));
    assert_eq!(with(Value::Null, ""), owners(&live));
    let mut bad = live["metadata"]["managedFields"].clone();
    bad[0]["operation"] = json!("Bogus");
    assert_eq!(with(bad, ""), owners(&live));
    let mut odd = live["metadata"]["managedFields"].clone();
    odd[0]["fieldsV1"] = json!({"x:y": {}});
    assert_eq!(with(odd, ""), nobody);
    let mut given = live["metadata"]["managedFields"].clone();
    given[0]["manager"] = json!("three");
    assert_eq!(with(given, "")[0][0], "three");
}

#[test]
fn managers_in_a_version_that_is_gone_go_too() {
    let mut live = applied(None, "one", json!({"a": "1"}));
    live["metadata"]["managedFields"][0]["apiVersion"] = json!("v0");
    assert_eq!(owners(&updated(Some(&live), "two", json!({"a": "1"}))), Vec::<Value>::new());
}

#[test]
fn fields_that_a_way_of_writing_cannot_change_are_not_owned_through_it() {
    let deployment = Write {
        ty: kind_type("apps/v1", "Deployment").unwrap(),
        api_version: "apps/v1",
        kind: "Deployment",
        reset_fields: &["status"],
        ..write("one")
    };
    let config =
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"paused": true}, "status": {"replicas": 3}});
    let made = deployment.apply(None, &config, OnConflict::Refuse).unwrap().object;
    assert_eq!(owners(&made), [json!(["one", "Apply", NOW, {"f:spec": {"f:paused": {}}}])]);
}

#[test]
fn documents_that_cannot_be_applied_are_refused() {
    for (config, code, expected) in [
        (json!({}), 400, "invalid object type: /, Kind="),
        (json!({"kind": "ConfigMap"}), 400, "invalid object type: /, Kind=ConfigMap"),
        (json!({"apiVersion": "a/b/c", "kind": "ConfigMap"}), 400, "invalid object type: /, Kind="),
        (json!({"apiVersion": "v1", "kind": "Secret"}), 400, "invalid object type: /v1, Kind=Secret"),
        (
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"managedFields": []}}),
            400,
            "metadata.managedFields must be nil",
        ),
        (
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": 1}}),
            500,
            "failed to create typed patch object (/c; /v1, Kind=ConfigMap): .data.a: expected string, got \
             &value.valueUnstructured{Value:1}",
        ),
        (json!(null), 400, "invalid object type: /, Kind="),
        (
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": 1}),
            500,
            "failed to create typed patch object (/; /v1, Kind=ConfigMap): .metadata: expected map, got &{1}",
        ),
    ] {
        let error = write("one").apply(None, &config, OnConflict::Refuse).unwrap_err();
        assert_eq!((error.status().code, error.to_string().as_str()), (code, expected));
    }
}

#[test]
fn kubectl_takes_over_what_it_applied_in_the_old_way() {
    let last = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"a":"1","b":"2"}}"#;
    let mut live = document(json!({"a": "1", "b": "2"}));
    live["metadata"]["annotations"] = json!({LAST_APPLIED: last});
    write("kubectl-client-side-apply").update(None, &mut live);
    let conflict = apply(Some(&live), "other", json!({"a": "3"}));
    assert_eq!(
        message(conflict),
        r#"Apply failed with 1 conflict: conflict with "kubectl-client-side-apply" using v1: .data.a"#
    );
    let object = applied(Some(&live), "kubectl", json!({"a": "3"}));
    assert_eq!(object["data"], json!({"a": "3", "b": "2"}));
    assert_eq!(owners(&object)[0], json!(["kubectl", "Apply", NOW, {"f:data": {"f:a": {}}}]));
    let kept: Value = serde_json::from_str(object["metadata"]["annotations"][LAST_APPLIED].as_str().unwrap()).unwrap();
    assert_eq!(kept, document(json!({"a": "3"})));
    live["data"]["a"] = json!("changed");
    assert!(message(apply(Some(&live), "kubectl", json!({"a": "3"}))).contains("conflict with"));
}

#[test]
fn times_are_put_back_where_nothing_else_changed() {
    let live = applied(None, "one", json!({"a": "1"}));
    let mut later = live.clone();
    later["metadata"]["managedFields"][0]["time"] = json!("2030-01-01T00:00:00Z");
    let mut same = later.clone();
    keep_times(&mut same, &live);
    assert_eq!(same, live);
    for (field, value) in [("data", json!({"a": "2"})), ("immutable", json!(true)), ("metadata", json!(null))] {
        let mut other = later.clone();
        match field {
            "metadata" => other["metadata"]["labels"] = json!({"a": "1"}),
            _ => other[field] = value,
        }
        let before = other.clone();
        keep_times(&mut other, &live);
        assert_eq!(other, before);
    }
}

#[test]
fn odd_objects_are_no_trouble() {
    for odd in [json!(null), json!([]), json!("x"), json!({"metadata": 1}), json!({"metadata": {"managedFields": 1}})] {
        write("one").update(Some(&odd), &mut odd.clone());
        write("one").update(None, &mut odd.clone());
        keep_times(&mut odd.clone(), &odd);
        let _ = write("one").apply(Some(&odd), &document(json!({"a": "1"})), OnConflict::Refuse);
        let _ = write("one").apply(None, &odd, OnConflict::Take);
    }
}
