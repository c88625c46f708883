//! Facts of strategic merge patches.

use serde_json::json;

use super::*;
use crate::facts::kind_type;

/// A pod template whose lists are of every sort: merged by key, by two names, atomic.
const TEMPLATE: &str = r#"{
    "containers": [
        {"name": "a", "image": "a:1", "args": ["x", "y"], "ports": [{"containerPort": 80, "name": "http"}, {"containerPort": 443}],
         "env": [{"name": "E1", "value": "1"}, {"name": "E2", "value": "2"}], "volumeMounts": [{"mountPath": "/v1", "name": "v1"}]},
        {"name": "b", "image": "b:1"},
        {"name": "c", "image": "c:1"}
    ],
    "nodeSelector": {"d": "ssd", "z": "a"},
    "tolerations": [{"key": "t"}],
    "volumes": [{"name": "v1", "emptyDir": {}}, {"name": "v2", "configMap": {"name": "m"}}]
}"#;

const METADATA: &str = r#"{
    "name": "c", "labels": {"l": "1"}, "finalizers": ["x/a", "x/b"],
    "ownerReferences": [{"kind": "K", "name": "o1", "uid": "u1"}, {"kind": "K", "name": "o2", "uid": "u2"}]
}"#;

#[track_caller]
fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[track_caller]
fn merged(version: &str, kind: &str, original: Value, patch: &str) -> Result<Merged, PatchError> {
    let patch = StrategicPatch::decode(patch.as_bytes(), Strictness::Checked)?;
    patch.apply(original, kind_type(version, kind).unwrap())
}

/// A patch of a pod's spec, and the field of the spec that it changes.
#[track_caller]
fn check(patch: &str, field: &str, expected: &str) {
    let original = json!({"template": {"spec": parse(TEMPLATE)}});
    let patch = format!(r#"{{"template":{{"spec":{patch}}}}}"#);
    let mut result = merged("v1", "PodTemplate", original, &patch).unwrap().value;
    let mut spec = parse(TEMPLATE);
    assert_eq!(result["template"]["spec"][field].take(), parse(expected));
    spec[field] = Value::Null;
    result["template"]["spec"][field] = Value::Null;
    assert_eq!(result["template"]["spec"], spec, "nothing else changes");
}

/// A patch of the first container, and the field of it that it changes.
#[track_caller]
fn check_container(patch: &str, field: &str, expected: &str) {
    let mut containers = parse(TEMPLATE)["containers"].clone();
    containers[0][field] = parse(expected);
    if containers[0][field].is_null() {
        containers[0].as_object_mut().unwrap().remove(field);
    }
    let patch = format!(r#"{{"containers":[{{"name":"a",{patch}}}]}}"#);
    check(&patch, "containers", &containers.to_string());
}

/// A patch of metadata, and the field of it that it changes.
#[track_caller]
fn check_metadata(patch: &str, field: &str, expected: &str) {
    let original = json!({"metadata": parse(METADATA)});
    let result = merged("v1", "ConfigMap", original, &format!(r#"{{"metadata":{patch}}}"#)).unwrap();
    assert_eq!(result.value["metadata"][field], parse(expected));
}

/// The names of the containers after a patch of the spec.
#[track_caller]
fn order(patch: &str, expected: &str) {
    let original = json!({"template": {"spec": parse(TEMPLATE)}});
    let patch = format!(r#"{{"template":{{"spec":{patch}}}}}"#);
    let result = merged("v1", "PodTemplate", original, &patch).unwrap().value;
    let names: Vec<_> = result["template"]["spec"]["containers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["name"].as_str().unwrap())
        .collect();
    assert_eq!(names.join(" "), expected);
}

#[track_caller]
fn fails(patch: &str, expected: &str) {
    let original = json!({"template": {"spec": parse(TEMPLATE)}});
    let patch = format!(r#"{{"template":{{"spec":{patch}}}}}"#);
    let error = merged("v1", "PodTemplate", original, &patch).unwrap_err();
    assert_eq!(format!("{} {error}", error.code()), expected);
}

#[test]
fn lists_are_merged_by_their_key() {
    check_container(r#""image":"a:2""#, "image", r#""a:2""#);
    check_container(
        r#""ports":[{"containerPort":80,"name":"web"}]"#,
        "ports",
        r#"[{"containerPort":80,"name":"web"},{"containerPort":443}]"#,
    );
    check_container(
        r#""ports":[{"containerPort":80,"protocol":"UDP"}]"#,
        "ports",
        r#"[{"containerPort":80,"name":"http","protocol":"UDP"},{"containerPort":443}]"#,
    );
    check_container(
        r#""ports":[{"containerPort":"80"}]"#,
        "ports",
        r#"[{"containerPort":"80"},{"containerPort":80,"name":"http"},{"containerPort":443}]"#,
    );
    check_container(
        r#""env":[{"name":"E3","value":"3"}]"#,
        "env",
        r#"[{"name":"E3","value":"3"},{"name":"E1","value":"1"},{"name":"E2","value":"2"}]"#,
    );
    check_container(r#""env":[{"name":"E2","value":null}]"#, "env", r#"[{"name":"E1","value":"1"},{"name":"E2"}]"#);
    check_container(
        r#""volumeMounts":[{"mountPath":"/v1","name":"v2"}]"#,
        "volumeMounts",
        r#"[{"mountPath":"/v1","name":"v2"}]"#,
    );
    check(r#"{"containers":[]}"#, "containers", &parse(TEMPLATE)["containers"].to_string());
    check_metadata(
        r#"{"ownerReferences":[{"uid":"u2","name":"n"}]}"#,
        "ownerReferences",
        r#"[{"kind":"K","name":"o1","uid":"u1"},{"kind":"K","name":"n","uid":"u2"}]"#,
    );
}

#[test]
fn atomic_lists_are_replaced() {
    check_container(r#""args":["only"]"#, "args", r#"["only"]"#);
    check_container(r#""args":[]"#, "args", "[]");
    check_container(r#""args":null"#, "args", "null");
    check(r#"{"tolerations":[{"key":"n"}]}"#, "tolerations", r#"[{"key":"n"}]"#);
}

#[test]
fn a_delete_directive_takes_an_item_out() {
    order(r#"{"containers":[{"name":"a","$patch":"delete"}]}"#, "b c");
    order(r#"{"containers":[{"name":"zz","$patch":"delete"}]}"#, "a b c");
    order(r#"{"containers":[{"name":"a","$patch":"delete"},{"name":"n"},{"name":"c","$patch":"delete"}]}"#, "n b");
    check_container(
        r#""ports":[{"containerPort":443,"$patch":"delete"}]"#,
        "ports",
        r#"[{"containerPort":80,"name":"http"}]"#,
    );
    check_container(r#""env":[{"name":"E2","$patch":"delete"}]"#, "env", r#"[{"name":"E1","value":"1"}]"#);
}

#[test]
fn a_replace_directive_replaces_a_list() {
    check(
        r#"{"containers":[{"$patch":"replace"},{"name":"n","image":"n"}]}"#,
        "containers",
        r#"[{"name":"n","image":"n"}]"#,
    );
    check(
        r#"{"containers":[{"name":"n"},{"$patch":"replace"},{"name":"a","$patch":"delete"}]}"#,
        "containers",
        r#"[{"name":"n"}]"#,
    );
    check_metadata(
        r#"{"ownerReferences":[{"$patch":"replace"},{"uid":"u9"}]}"#,
        "ownerReferences",
        r#"[{"uid":"u9"}]"#,
    );
}

#[test]
fn maps_are_merged_and_null_deletes() {
    check(r#"{"nodeSelector":{"n":"1"}}"#, "nodeSelector", r#"{"d":"ssd","n":"1","z":"a"}"#);
    check(r#"{"nodeSelector":{"d":null,"none":null}}"#, "nodeSelector", r#"{"z":"a"}"#);
    check(r#"{"nodeSelector":null}"#, "nodeSelector", "null");
    check(r#"{"nodeSelector":{"$patch":"replace","q":"1"}}"#, "nodeSelector", r#"{"q":"1"}"#);
    check(r#"{"nodeSelector":{"$patch":"delete","q":"1"}}"#, "nodeSelector", "{}");
    check(r#"{"affinity":{"$patch":"delete"}}"#, "affinity", "null");
    check(r#"{"affinity":{"nodeAffinity":null,"podAffinity":{}}}"#, "affinity", r#"{"podAffinity":{}}"#);
    check(r#"{"containers":{"name":"a"}}"#, "containers", r#"{"name":"a"}"#);
    check_metadata(r#"{"labels":{"$patch":"replace","q":"1"}}"#, "labels", r#"{"q":"1"}"#);
}

#[test]
fn the_root_takes_directives() {
    let patched = |patch: &str| merged("v1", "ConfigMap", json!({"data": {"a": "1"}}), patch).unwrap().value;
    assert_eq!(patched(r#"{"$patch":"delete"}"#), json!({}));
    assert_eq!(patched(r#"{"$patch":"replace","data":{"b":"2"}}"#), json!({"data": {"b": "2"}}));
    assert_eq!(patched("null"), json!({"data": {"a": "1"}}));
    assert_eq!(patched("{}"), json!({"data": {"a": "1"}}));
}

#[test]
fn retain_keys_clears_the_rest() {
    check(
        r#"{"volumes":[{"name":"v1","$retainKeys":["name","hostPath"],"hostPath":{"path":"/x"}}]}"#,
        "volumes",
        r#"[{"name":"v1","hostPath":{"path":"/x"}},{"name":"v2","configMap":{"name":"m"}}]"#,
    );
    check(r#"{"nodeSelector":{"$retainKeys":["d"]}}"#, "nodeSelector", r#"{"d":"ssd"}"#);
    let original = json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}});
    let patch = r#"{"spec":{"strategy":{"$retainKeys":["type"],"type":"Recreate"}}}"#;
    let result = merged("apps/v1", "Deployment", original, patch).unwrap();
    assert_eq!(result.value["spec"]["strategy"], json!({"type": "Recreate"}));
    assert_eq!(result.patch, json!({"spec": {"strategy": {"type": "Recreate"}}}));
    fails(
        r#"{"volumes":[{"name":"v1","$retainKeys":["name"],"hostPath":{}}]}"#,
        "400 invalid patch format of retainKeys",
    );
    fails(r#"{"volumes":[{"name":"v1","$retainKeys":"name"}]}"#, "400 invalid patch format of retainKeys");
}

#[test]
fn scalars_are_merged_as_a_set() {
    check_metadata(r#"{"finalizers":["x/c"]}"#, "finalizers", r#"["x/c","x/a","x/b"]"#);
    check_metadata(r#"{"finalizers":["x/b"]}"#, "finalizers", r#"["x/a","x/b"]"#);
    check_metadata(r#"{"finalizers":[]}"#, "finalizers", r#"["x/a","x/b"]"#);
    check_metadata(r#"{"finalizers":null}"#, "finalizers", "null");
    check_metadata(r#"{"$deleteFromPrimitiveList/finalizers":["x/a"]}"#, "finalizers", r#"["x/b"]"#);
    check_metadata(r#"{"$deleteFromPrimitiveList/finalizers":["x/z"]}"#, "finalizers", r#"["x/a","x/b"]"#);
    check_metadata(
        r#"{"$deleteFromPrimitiveList/finalizers":["x/a"],"finalizers":["x/d"]}"#,
        "finalizers",
        r#"["x/d","x/b"]"#,
    );
    check_metadata(r#"{"$setElementOrder/finalizers":["x/b","x/a"]}"#, "finalizers", r#"["x/b","x/a"]"#);
}

#[test]
fn merged_lists_have_the_order_of_kubernetes() {
    order(r#"{"containers":[{"name":"n"}]}"#, "n a b c");
    order(r#"{"containers":[{"name":"c"},{"name":"n"}]}"#, "a b c n");
    order(r#"{"containers":[{"name":"c"},{"name":"a"}]}"#, "b c a");
    order(r#"{"$setElementOrder/containers":[{"name":"c"},{"name":"b"},{"name":"a"}]}"#, "c b a");
    order(r#"{"$setElementOrder/containers":[{"name":"b"},{"name":"n"}],"containers":[{"name":"n"}]}"#, "a b n c");
    // An added item takes the room of a deleted one, so what the patch doesn't name goes before it.
    order(
        r#"{"$setElementOrder/containers":[{"name":"n"}],"containers":[{"name":"n"},{"name":"a","$patch":"delete"}]}"#,
        "b c n",
    );
    order(r#"{"$setElementOrder/containers":[],"containers":[{"name":"n"},{"name":"m"}]}"#, "a b c m n");
    check_container(
        r#""$setElementOrder/env":[{"name":"E2"},{"name":"E3"},{"name":"E1"}],"env":[{"name":"E3"}]"#,
        "env",
        r#"[{"name":"E2","value":"2"},{"name":"E3"},{"name":"E1","value":"1"}]"#,
    );
}

#[test]
fn what_is_new_loses_its_directives() {
    let patch = r#"{"initContainers":[{"name":"n","env":[{"name":"E","$patch":"delete"},{"name":"F","value":null}]},{"name":"m","$patch":"delete"}]}"#;
    check(patch, "initContainers", r#"[{"name":"n","env":[{"name":"F"}]}]"#);
    // Of a directive for what isn't there, nothing is left.
    check_container(
        r#""env":[{"name":"E1","valueFrom":{"$patch":"delete"}}]"#,
        "env",
        r#"[{"name":"E1","value":"1"},{"name":"E2","value":"2"}]"#,
    );
    // An item that joins a list is taken as it is.
    check_container(
        r#""env":[{"name":"E1"},{"name":"E3","valueFrom":{"$patch":"delete"},"value":null}]"#,
        "env",
        r#"[{"name":"E1","value":"1"},{"name":"E3","valueFrom":{"$patch":"delete"},"value":null},{"name":"E2","value":"2"}]"#,
    );
}

#[test]
fn unknown_fields_and_opaque_values_are_taken_whole() {
    check(r#"{"bogus":[{"name":"a"}]}"#, "bogus", r#"[{"name":"a"}]"#);
    let data = |patch: &str| merged("apps/v1", "ControllerRevision", json!({"data": {"x": {"y": 1}, "l": [1]}}), patch);
    assert_eq!(data(r#"{"data":{"x":1,"n":{"a":null}}}"#).unwrap().value, json!({"data": {"x": 1, "n": {}, "l": [1]}}));
    assert_eq!(
        data(r#"{"data":{"x":{"y":2}}}"#).unwrap_err().to_string(),
        r#"unable to find api field in struct RawExtension for the json field "x""#
    );
}

#[test]
fn mistakes_are_answered_in_the_words_of_kubernetes() {
    fails(
        r#"{"containers":[{"name":"a","$patch":"merge"}]}"#,
        "500 merging lists cannot yet be specified in the patch",
    );
    fails(r#"{"containers":[{"image":"q"}]}"#, "500 map: map[image:q] does not contain declared merge key: name");
    fails(
        r#"{"containers":[{"$patch":"delete"}]}"#,
        "500 map: map[$patch:delete] does not contain declared merge key: name",
    );
    fails(
        r#"{"containers":[{"name":"a","ports":[{"name":"http","hostPort":1}]}]}"#,
        "500 map: map[hostPort:1 name:http] does not contain declared merge key: containerPort",
    );
    fails(r#"{"nodeSelector":{"$patch":"bogus"}}"#, "500 unknown patch type: bogus in map: map[$patch:bogus]");
    fails(r#"{"nodeSelector":{"$patch":1}}"#, "500 unknown patch type: %!s(int64=1) in map: map[$patch:1]");
    fails(
        r#"{"tolerations":[{"key":"t"}],"volumes":["v1"]}"#,
        "500 list element types are not identical: [[map[emptyDir:map[] name:v1] map[configMap:map[name:m] name:v2]] [v1]]",
    );
    fails(
        r#"{"$setElementOrder/containers":[{"name":"b"}],"containers":[{"name":"n","image":"n"}]}"#,
        "500 The order in patch list:\n[map[image:n name:n]]\n doesn't match $setElementOrder list:\n[map[name:b]]\n",
    );
    fails(r#"{"$setElementOrder/containers":"x"}"#, "500 expected a []interface {}, but received a string");
    fails(r#"{"$setElementOrder/containers":null}"#, "500 expected a []interface {}, but received a %!s(<nil>)");
    fails(r#"{"$setElementOrderx":[]}"#, "400 invalid patch format of setElementOrder list");
    fails(r#"{"$deleteFromPrimitiveListx":[]}"#, "400 invalid patch format of primitive list");
    fails(
        r#"{"$setElementOrder/bogus":[]}"#,
        r#"500 unable to find api field in struct PodSpec for the json field "bogus""#,
    );
    fails(r#"{"$setElementOrder/hostname":[]}"#, "500 expected slice or array type, but got: struct");
    fails(
        r#"{"initContainers":[],"volumes":[null]}"#,
        "500 list element types are not identical: [[map[emptyDir:map[] name:v1] map[configMap:map[name:m] name:v2]] [<nil>]]",
    );
}

#[test]
fn a_list_of_lists_is_refused() {
    let original = json!({"metadata": {"finalizers": []}});
    let error = merged("v1", "ConfigMap", original, r#"{"metadata":{"finalizers":[["a"]]}}"#).unwrap_err();
    assert_eq!(error, PatchError::Unprocessable("lists of lists are not supported".to_owned()));
}

#[test]
fn bodies_that_are_no_objects_are_refused() {
    let refused = |body: &str| StrategicPatch::decode(body.as_bytes(), Strictness::Checked).unwrap_err();
    let bad = |text: &str| PatchError::BadRequest(text.to_owned());
    assert_eq!(refused(r#"{"data":"#), bad("unexpected end of JSON input"));
    assert_eq!(refused("data: {}"), bad("invalid character 'd' looking for beginning of value"));
    assert_eq!(refused("[]"), bad("json: cannot unmarshal array into Go value of type map[string]interface {}"));
    let doubled = StrategicPatch::decode(br#"{"data":{"a":"5","a":"6"}}"#, Strictness::Checked).unwrap();
    assert_eq!(doubled.complaints(), [r#"duplicate field "data.a""#]);
}

#[test]
fn merging_long_lists_costs_their_length() {
    let item = |n: usize| json!({"name": format!("c{n}")});
    let live: Vec<_> = (0..30_000).map(item).collect();
    let changes: Vec<_> = (15_000..45_000).map(item).collect();
    let deleted = (0..10_000).map(|n| json!({"name": format!("c{n}"), "$patch": "delete"}));
    let patch: Vec<_> = changes.into_iter().chain(deleted).collect();
    let patch = json!({"spec": {"containers": patch}}).to_string();
    let result = merged("v1", "Pod", json!({"spec": {"containers": live}}), &patch).unwrap();
    assert_eq!(result.value["spec"]["containers"].as_array().unwrap().len(), 35_000);
}
