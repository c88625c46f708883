//! Facts about pods, as tables.

use serde_json::{Value, json};

use crate::behaviour::Context;
use crate::builtin::testing::{columns, create, create_fails, selected, try_create, try_update, update, warnings};
use crate::edit::Edit;

/// A pod with one container, whose fields and whose pod's fields are given.
fn pod(container: Value, spec: Value) -> Value {
    let mut pod = json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    merge(&mut pod["spec"]["containers"][0], container);
    merge(&mut pod["spec"], spec);
    pod
}

fn merge(target: &mut Value, more: Value) {
    if let Value::Object(fields) = more {
        fields.into_iter().for_each(|(name, value)| target.set(&name, value));
    }
}

#[track_caller]
fn container_fails(container: Value, expected: &str) {
    create_fails("v1", "pods", pod(container, json!({})), expected);
}

#[track_caller]
fn spec_fails(spec: Value, expected: &str) {
    create_fails("v1", "pods", pod(json!({}), spec), expected);
}

#[track_caller]
fn accepted(container: Value, spec: Value) -> Value {
    create("v1", "pods", pod(container, spec))
}

#[track_caller]
fn sub_fails(sub: &str, old: Value, new: Value, expected: &str) {
    assert_eq!(try_update("v1", "pods", sub, old, new).1.as_deref(), Some(expected));
}

#[test]
fn a_pod_gets_what_its_author_left_out() {
    let object = accepted(json!({}), json!({"serviceAccount": "robot"}));
    assert_eq!(
        object["spec"],
        json!({
            "containers": [{
                "name": "c", "image": "i", "resources": {}, "imagePullPolicy": "Always",
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            }],
            "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
            "securityContext": {}, "schedulerName": "default-scheduler", "enableServiceLinks": true,
            "serviceAccount": "robot", "serviceAccountName": "robot",
        })
    );
    assert_eq!(object["status"], json!({"phase": "Pending", "qosClass": "BestEffort"}));
    assert_eq!(object["metadata"]["generation"], 1);
}

#[test]
fn limits_are_asked_for_and_decide_the_quality_of_service() {
    for (resources, quality) in [
        (json!({}), "BestEffort"),
        (json!({"limits": {"cpu": "1", "memory": "1Gi"}}), "Guaranteed"),
        (json!({"limits": {"cpu": "1"}}), "Burstable"),
        (json!({"requests": {"cpu": "1"}}), "Burstable"),
        (json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "1Gi"}}), "Burstable"),
    ] {
        let object = accepted(json!({"resources": resources}), json!({}));
        assert_eq!(object["status"]["qosClass"], quality, "{resources}");
    }
    let object = accepted(json!({"resources": {"limits": {"cpu": "0.0001"}}}), json!({}));
    assert_eq!(
        object["spec"]["containers"][0]["resources"],
        json!({"limits": {"cpu": "1m"}, "requests": {"cpu": "1m"}})
    );
}

#[test]
fn a_pod_as_a_whole_asks_for_what_its_containers_ask_for() {
    let spec = json!({"resources": {"limits": {"cpu": "4", "memory": "1Gi"}}});
    let object = accepted(json!({"resources": {"requests": {"cpu": "1"}}}), spec);
    assert_eq!(object["spec"]["resources"]["requests"], json!({"cpu": "1", "memory": "1Gi"}));
}

#[test]
fn resources_have_names_and_amounts() {
    let resources = |resources| json!({"resources": resources});
    for (given, expected) in [
        (
            json!({"limits": {"example.com/gpu": "500m"}}),
            "[spec.containers[0].resources.limits[example.com/gpu]: Invalid value: \"500m\": must be an integer, \
             spec.containers[0].resources.requests[example.com/gpu]: Invalid value: \"500m\": must be an integer]",
        ),
        (
            json!({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}),
            "spec.containers[0].resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1",
        ),
        (
            json!({"claims": [{"name": "x"}]}),
            "spec.containers[0].resources.claims[0]: Not found: \"x\": must be one of the names in pod.spec.resourceClaims \
             which is empty",
        ),
    ] {
        container_fails(resources(given), expected);
    }
}

#[test]
fn ports_are_numbers_and_belong_to_one_container() {
    let two = json!({"ports": [{"containerPort": 1, "hostPort": 8080}, {"containerPort": 2, "hostPort": 8080}]});
    container_fails(two, "spec.containers[0].ports[1].hostPort: Duplicate value: \"TCP//8080\"");
    spec_fails(
        json!({"hostNetwork": true, "containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 1, "hostPort": 2}]}]}),
        "spec.containers[0].ports[0].hostPort: Invalid value: 2: must match `containerPort` when `hostNetwork` is true",
    );
}

#[test]
fn variables_come_from_somewhere() {
    let from = |from| json!({"env": [{"name": "E", "valueFrom": from}]});
    for (given, expected) in [
        (
            json!({"fieldRef": {"fieldPath": "spec.x"}}),
            "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Invalid value: \"spec.x\": error converting fieldPath: \
             field label not supported: spec.x",
        ),
        (
            json!({"fieldRef": {"fieldPath": "metadata.labels"}}),
            "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Unsupported value: \"metadata.labels\": supported \
             values: \"metadata.name\", \"metadata.namespace\", \"metadata.uid\", \"spec.nodeName\", \
             \"spec.serviceAccountName\", \"status.hostIP\", \"status.hostIPs\", \"status.podIP\", \"status.podIPs\"",
        ),
        (
            json!({"resourceFieldRef": {"resource": "limits.cpu", "divisor": "2"}}),
            "spec.containers[0].env[0].valueFrom.resourceFieldRef.divisor: Invalid value: \"limits.cpu\": only divisor's \
             values 1m and 1 are supported with the cpu resource",
        ),
        (
            json!({"fileKeyRef": {"key": "k", "path": "p", "volumeName": "v"}}),
            "spec.containers[0].env[0].valueFrom.fileKeyRef.volumeName: Not found: \"v\"",
        ),
    ] {
        container_fails(from(given), expected);
    }
    let labels = json!({"fieldRef": {"fieldPath": "metadata.labels['a']"}});
    assert_eq!(
        accepted(from(labels), json!({}))["spec"]["containers"][0]["env"][0]["valueFrom"]["fieldRef"]["apiVersion"],
        "v1"
    );
}

#[test]
fn probes_have_one_handler_and_sensible_numbers() {
    let probe = |field: &str, probe: Value| json!({field: probe});
    let tcp = |more: Value| {
        let mut probe = json!({"tcpSocket": {"port": 80}});
        merge(&mut probe, more);
        probe
    };
    container_fails(
        probe("livenessProbe", tcp(json!({"successThreshold": 2}))),
        "spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1",
    );
    container_fails(
        probe("startupProbe", tcp(json!({"terminationGracePeriodSeconds": 0}))),
        "spec.containers[0].startupProbe.terminationGracePeriodSeconds: Invalid value: 0: must be greater than 0",
    );
    container_fails(
        probe("readinessProbe", json!({"tcpSocket": {"port": "no_name"}})),
        "spec.containers[0].readinessProbe.tcpSocket.port: Invalid value: \"no_name\": must contain only alpha-numeric \
         characters (a-z, 0-9), and hyphens (-)",
    );
}

#[test]
fn init_containers_are_alone_unless_they_run_on() {
    let with = |init: Value| {
        let mut container = json!({"name": "init", "image": "i"});
        merge(&mut container, init);
        pod(json!({}), json!({"initContainers": [container]}))
    };
    let probe = json!({"tcpSocket": {"port": 1}});
    create_fails(
        "v1",
        "pods",
        with(json!({"startupProbe": probe})),
        "spec.initContainers[0].startupProbe: Forbidden: may not be set for init containers without restartPolicy=Always",
    );
    create("v1", "pods", with(json!({"startupProbe": probe, "restartPolicy": "Always"})));
    let rules = json!([{"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}]);
    create_fails(
        "v1",
        "pods",
        with(json!({"restartPolicyRules": rules})),
        "spec.initContainers[0].restartPolicy: Required value: must specify restartPolicy when restart rules are used",
    );
    create_fails(
        "v1",
        "pods",
        with(json!({"resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]})),
        "spec.initContainers[0].resizePolicy[0].restartPolicy: Invalid value: \"RestartContainer\": must not be set to \
         'RestartContainer' for non-sidecar initContainers",
    );
}

#[test]
fn a_volume_has_one_source() {
    let volume = |source: Value| {
        let mut volume = json!({"name": "v"});
        merge(&mut volume, source);
        json!({"volumes": [volume]})
    };
    for (source, expected) in [
        (
            json!({"emptyDir": {}, "downwardAPI": {}}),
            "spec.volumes[0].downwarAPI: Forbidden: may not specify more than 1 volume type",
        ),
        (json!({"gcePersistentDisk": {"pdName": ""}}), "spec.volumes[0].persistentDisk.pdName: Required value"),
        (
            json!({"azureDisk": {"diskName": "d", "diskURI": "x", "kind": "Managed"}}),
            "spec.volumes[0].azureDisk.diskURI: Unsupported value: \"x\": supported values: \
             \"/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}\"",
        ),
        (
            json!({"iscsi": {"targetPortal": "p", "iqn": "iqn.bad", "lun": 0}}),
            "spec.volumes[0].iscsi.iqn: Invalid value: \"iqn.bad\": must be valid format",
        ),
        (
            json!({"secret": {"secretName": "s", "defaultMode": 512}}),
            "spec.volumes[0].secret.defaultMode: Invalid value: 512: must be a number between 0 and 0777 (octal), both inclusive",
        ),
        (
            json!({"downwardAPI": {"items": [{"path": "../x", "fieldRef": {"fieldPath": "metadata.name"}}]}}),
            "spec.volumes[0].downwardAPI.path: Invalid value: \"../x\": must not contain '..'",
        ),
        (
            json!({"ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}}}),
            "spec.volumes[0].ephemeral.volumeClaimTemplate.spec.resources[storage]: Required value",
        ),
        (json!({"image": {}}), "spec.volumes[0].image.reference: Required value"),
    ] {
        spec_fails(volume(source), expected);
    }
    let iqn = json!({"iscsi": {"targetPortal": "p", "iqn": "iqn.2020-01.org.example:disk", "lun": 0}});
    assert_eq!(accepted(json!({}), volume(iqn))["spec"]["volumes"][0]["iscsi"]["iscsiInterface"], "default");
    assert_eq!(accepted(json!({}), volume(json!({})))["spec"]["volumes"][0]["emptyDir"], json!({}));
}

#[test]
fn security_contexts_do_not_contradict_themselves() {
    container_fails(
        json!({"securityContext": {"procMount": "Unmasked"}}),
        "spec.containers[0].securityContext.procMount: Invalid value: \"Unmasked\": `hostUsers` must be false to use `Unmasked`",
    );
    spec_fails(json!({"hostUsers": false, "hostPID": true}), "spec.HostPID: Forbidden: when `hostUsers` is false");
    spec_fails(
        json!({"securityContext": {"sysctls": [{"name": "net/ipv4.x", "value": "1"}]}, "hostNetwork": true}),
        "spec.securityContext.sysctls[0].name: Invalid value: \"net/ipv4.x\": may not be specified when 'hostNetwork' is true",
    );
    spec_fails(
        json!({"os": {"name": "windows"}, "securityContext": {"runAsUser": 1}, "hostPID": true}),
        "[spec.hostPID: Forbidden: cannot be set for a windows pod, \
         spec.securityContext.runAsUser: Forbidden: cannot be set for a windows pod]",
    );
    container_fails(
        json!({"securityContext": {"windowsOptions": {"runAsUserName": "a\\b\\c"}}}),
        "spec.containers[0].securityContext.windowsOptions.runAsUserName: Invalid value: \"a\\\\b\\\\c\": runAsUserName \
         cannot contain more than one backslash",
    );
    spec_fails(
        json!({"securityContext": {"seLinuxChangePolicy": "MountOption"}}),
        "spec.securityContext.seLinuxChangePolicy: Unsupported value: \"MountOption\": supported values: \"Recursive\"",
    );
}

#[test]
fn where_a_pod_runs_is_said_in_known_words() {
    let term = |term| {
        json!({"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 101, "podAffinityTerm": term}]}}})
    };
    spec_fails(
        term(json!({"topologyKey": "zone", "labelSelector": {}})),
        "spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value: 101: must be \
         in the range 1-100",
    );
    spec_fails(
        json!({"tolerations": [{"key": "a", "operator": "Gt", "value": "1"}]}),
        "spec.tolerations[0].operator: Unsupported value: \"Gt\": supported values: \"Equal\", \"Exists\", \"Lt\", \"Gt\"",
    );
    spec_fails(
        json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "ScheduleAnyway", "minDomains": 2}]}),
        "spec.topologySpreadConstraints[0].minDomains: Invalid value: 2: can only use minDomains if \
         whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway",
    );
    spec_fails(
        json!({"dnsConfig": {"nameservers": ["1.1.1.1", "2.2.2.2", "3.3.3.3", "4.4.4.4"]}}),
        "spec.dnsConfig.nameservers: Invalid value: [\"1.1.1.1\",\"2.2.2.2\",\"3.3.3.3\",\"4.4.4.4\"]: must not have more \
         than 3 nameservers",
    );
}

#[test]
fn label_keys_take_the_values_of_the_pod() {
    let mut body = pod(
        json!({}),
        json!({"topologySpreadConstraints": [{
            "maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {},
            "matchLabelKeys": ["tier", "absent"],
        }]}),
    );
    body["metadata"]["labels"] = json!({"tier": "front"});
    let selector = &create("v1", "pods", body)["spec"]["topologySpreadConstraints"][0]["labelSelector"];
    assert_eq!(*selector, json!({"matchExpressions": [{"key": "tier", "operator": "In", "values": ["front"]}]}));
}

#[test]
fn features_that_are_off_leave_no_trace() {
    let object = accepted(
        json!({"lifecycle": {"stopSignal": "SIGUSR1"}}),
        json!({"os": {"name": "linux"}, "schedulingGroup": {"podGroupName": "g"}}),
    );
    assert!(!object["spec"]["containers"][0].has("lifecycle"));
    assert!(!object["spec"].has("schedulingGroup"));
}

#[test]
fn a_gated_pod_says_so_and_may_still_be_narrowed() {
    let gated = |selector: Value| pod(json!({}), json!({"schedulingGates": [{"name": "g"}], "nodeSelector": selector}));
    let old = gated(json!({"a": "b"}));
    let (object, _) = try_create("v1", "pods", old.clone());
    assert_eq!(object["status"]["conditions"][0]["reason"], "SchedulingGated");
    assert_eq!(columns("v1", "pods", &object)[2], "SchedulingGated");
    let new = update("v1", "pods", old.clone(), gated(json!({"a": "b", "c": "d"})));
    assert_eq!(new["metadata"]["generation"], 2);
    sub_fails(
        "",
        old,
        gated(json!({"a": "c"})),
        "spec.nodeSelector: Invalid value: {\"a\":\"c\"}: only additions to spec.nodeSelector are allowed (no mutations or \
         deletions)",
    );
}

#[test]
fn little_may_change_and_the_rest_is_shown() {
    let (plain, named) = (pod(json!({}), json!({})), pod(json!({}), json!({"hostname": "h"})));
    let errors = try_update("v1", "pods", "", plain.clone(), named).1.unwrap();
    let (message, diff) = errors.split_once('\n').unwrap();
    assert_eq!(
        message,
        "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,\
         `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing \
         tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
    );
    assert_eq!(
        diff,
        "@@ -64,7 +64,7 @@\n   \"SELinuxChangePolicy\": null\n  },\n  \"ImagePullSecrets\": null,\n- \"Hostname\": \"\",\n\
         + \"Hostname\": \"h\",\n  \"Subdomain\": \"\",\n  \"SetHostnameAsFQDN\": null,\n  \"Affinity\": null,\n"
    );
    update("v1", "pods", plain, pod(json!({"image": "other:1", "imagePullPolicy": "Always"}), json!({})));
}

#[test]
fn containers_are_resized_within_their_quality_of_service() {
    let sized = |cpu: &str| pod(json!({"resources": {"requests": {"cpu": cpu}}}), json!({}));
    let (object, errors) = try_update("v1", "pods", "resize", sized("1"), sized("2"));
    assert_eq!((errors, &object["spec"]["containers"][0]["resources"]["requests"]["cpu"]), (None, &json!("2")));
    sub_fails(
        "resize",
        sized("1"),
        pod(json!({}), json!({})),
        "[spec: Invalid value: \"Burstable\": Pod QOS Class may not change as a result of resizing, \
         spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed]",
    );
    let with_memory = pod(json!({"resources": {"requests": {"cpu": "1", "ephemeral-storage": "1"}}}), json!({}));
    sub_fails("resize", sized("1"), with_memory, "spec: Forbidden: only cpu and memory resources are mutable");
}

#[test]
fn containers_are_added_for_looking_in_only() {
    let debug = |more: Value| {
        let mut container = json!({"name": "debug", "image": "i"});
        merge(&mut container, more);
        pod(json!({}), json!({"ephemeralContainers": [container]}))
    };
    let plain = pod(json!({}), json!({}));
    let (object, errors) =
        try_update("v1", "pods", "ephemeralcontainers", plain.clone(), debug(json!({"targetContainerName": "c"})));
    assert_eq!((errors, object["spec"]["ephemeralContainers"][0]["name"].as_str()), (None, Some("debug")));
    sub_fails(
        "ephemeralcontainers",
        plain,
        debug(json!({"targetContainerName": "x"})),
        "spec.ephemeralContainers[0].targetContainerName: Not found: \"x\"",
    );
}

#[test]
fn the_dead_stay_dead() {
    let never = pod(json!({}), json!({"restartPolicy": "Never"}));
    let kind = crate::builtin::testing::find("v1", "pods");
    let (mut old, _) = try_create("v1", "pods", never);
    let state = |state: Value| json!([{"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state}]);
    old["status"]["containerStatuses"] = state(json!({"terminated": {"exitCode": 1}}));
    old["metadata"]["resourceVersion"] = json!("1");
    let mut new = old.clone();
    new["status"]["containerStatuses"] = state(json!({"running": {}}));
    let errors = kind.check_update("status", &new, &old);
    assert_eq!(
        errors[0].to_string(),
        "status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state"
    );
    new["spec"]["restartPolicy"] = json!("Always");
    assert!(kind.check_update("status", &new, &new.clone()).is_empty());
}

#[test]
fn a_row_tells_what_is_going_on() {
    let status = |status: Value| {
        json!({"metadata": {"name": "a"}, "status": status,
        "spec": {"containers": [{"name": "c"}], "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}]}})
    };
    let waiting = |reason: &str| json!({"waiting": {"reason": reason}});
    let ended = json!({"terminated": {"exitCode": 0, "reason": "Completed"}});
    for (given, expected) in [
        (json!({"phase": "Pending"}), json!(["0/2", "Pending", "0"])),
        (
            json!({"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": {"running": {}}}]}),
            json!(["0/2", "Init:0/2", "0"]),
        ),
        (
            json!({"phase": "Pending", "initContainerStatuses": [
                {"name": "i", "restartCount": 4, "state": {"terminated": {"exitCode": 3}}}]}),
            json!(["0/2", "Init:ExitCode:3", "4"]),
        ),
        (
            json!({"phase": "Running", "initContainerStatuses": [
                {"name": "i", "state": ended}, {"name": "s", "started": true, "ready": true, "state": {"running": {}}}],
                "containerStatuses": [{"name": "c", "restartCount": 2, "state": waiting("CrashLoopBackOff"),
                    "lastState": {"terminated": {"exitCode": 1, "finishedAt": "2023-11-14T22:12:20Z"}}}]}),
            json!(["1/2", "CrashLoopBackOff", "2 (60s ago)"]),
        ),
        (
            json!({"phase": "Succeeded", "initContainerStatuses": [{"name": "i", "state": ended}],
                "containerStatuses": [{"name": "c", "state": ended}]}),
            json!(["0/2", "Completed", "0"]),
        ),
        (json!({"phase": "Failed", "reason": "Evicted"}), json!(["0/2", "Evicted", "0"])),
    ] {
        let row = columns("v1", "pods", &status(given));
        assert_eq!(json!([row[1], row[2], row[3]]), expected);
    }
    let mut deleted = status(json!({"phase": "Running"}));
    deleted["metadata"]["deletionTimestamp"] = json!("2023-11-14T22:12:20Z");
    assert_eq!(columns("v1", "pods", &deleted)[2], "Terminating");
}

#[test]
fn fields_can_be_selected() {
    let object = accepted(json!({}), json!({"nodeName": "n", "hostNetwork": true}));
    for (field, expected) in
        [("spec.nodeName", "n"), ("spec.host", "n"), ("spec.hostNetwork", "true"), ("status.phase", "Pending")]
    {
        assert_eq!(selected("v1", "pods", &object, field), expected);
    }
}

#[test]
fn what_is_allowed_but_odd_is_warned_about() {
    let warned = |container, spec| warnings("v1", "pods", pod(container, spec));
    assert_eq!(warned(json!({}), json!({})), [""; 0]);
    assert_eq!(
        warned(json!({"ports": [{"containerPort": 1}, {"containerPort": 1}]}), json!({})),
        ["spec.containers[0].ports[1]: duplicate port definition with spec.containers[0].ports[0]"]
    );
    assert_eq!(
        warned(
            json!({"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}, {"name": "A", "value": "x$(A)"}]}),
            json!({})
        ),
        ["spec.containers[0].env[1]: hides previous definition of \"A\", which may be dropped when using apply"]
    );
    assert_eq!(
        warned(
            json!({}),
            json!({"volumes": [{"name": "v", "configMap": {"name": "m", "items": [
            {"key": "a", "path": "x"}, {"key": "b", "path": "x/y"}]}}]})
        ),
        ["volume \"v\" (ConfigMap \"m\"): overlapping paths: \"x/y\" with \"x\""]
    );
    assert_eq!(
        warned(json!({"resources": {"limits": {"memory": "1m"}}}), json!({}))[0],
        "spec.containers[0].resources.limits[memory]: fractional byte value \"1m\" is invalid, must be an integer"
    );
    assert_eq!(
        warned(json!({}), json!({"nodeSelector": {"beta.kubernetes.io/os": "linux"}})),
        ["spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use \"kubernetes.io/os\" instead"]
    );
}

#[test]
fn a_pod_that_never_ran_goes_at_once() {
    let kind = crate::builtin::testing::find("v1", "pods");
    let grace = |node: &str, phase: &str, asked| {
        let pod = json!({"spec": {"nodeName": node, "terminationGracePeriodSeconds": 30}, "status": {"phase": phase}});
        kind.behaviour.grace_seconds(&pod, asked)
    };
    assert_eq!(grace("", "Pending", None), Some(0));
    assert_eq!(grace("n", "Running", None), Some(30));
    assert_eq!(grace("n", "Running", Some(5)), Some(5));
    assert_eq!(grace("n", "Running", Some(-1)), Some(1));
    assert_eq!(grace("n", "Failed", Some(5)), Some(0));
}

#[test]
fn a_template_follows_the_rules_of_pods_under_its_own_path() {
    let template = |spec: Value| json!({"metadata": {"name": "a"}, "template": {"metadata": {"labels": {"a b": "c"}}, "spec": spec}});
    create_fails(
        "v1",
        "podtemplates",
        template(json!({"containers": []})),
        "[template.labels: Invalid value: \"a b\": name part must consist of alphanumeric characters, '-', '_' or '.', and \
         must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for \
         validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]'), template.spec.containers: Required value]",
    );
}

/// A value of a type with every field set, every text being `text`.
fn full(ty: crate::types::TypeRef<'_>, text: &str, depth: usize) -> Value {
    use crate::types::Shape;
    match ty.shape() {
        Shape::Struct(_) if depth == 0 => json!({}),
        Shape::Struct(_) => {
            ty.fields().iter().map(|f| (f.name.to_string(), full(ty.to(f.ty), text, depth - 1))).collect()
        }
        Shape::Map(map) => json!({text: full(ty.to(map.value), text, depth - 1)}),
        // Two items where rules compare them; deeper down one is enough.
        Shape::List(list) => vec![full(ty.to(list.item), text, depth); if depth > 9 { 2 } else { 1 }].into(),
        Shape::Bool => json!(text != "Always"),
        Shape::Int32 | Shape::Int64 | Shape::Float => json!(-1),
        Shape::IntOrString => json!(text),
        Shape::Quantity => json!("1500m"),
        Shape::Time | Shape::MicroTime => json!("2023-11-14T22:12:20Z"),
        _ => json!(text),
    }
}

/// Rules that ask for a field which a type doesn't have panic when they run, so all of them run here.
#[test]
fn every_field_that_a_rule_reads_exists() {
    let kind = crate::builtin::testing::find("v1", "pods");
    for (text, os) in [("x", "linux"), ("Always", "windows"), ("Localhost", "linux"), ("In", "x"), ("", "linux")] {
        let mut object = full(kind.root_type(), text, 12);
        object["spec"]["os"]["name"] = json!(os);
        object["metadata"]["annotations"] = json!({"container.apparmor.security.beta.kubernetes.io/x": text});
        kind.behaviour.default(&mut object);
        kind.prepare_create(&mut object.clone(), &Context::default());
        assert!(!kind.check_create(&object).is_empty());
        let mut old = object.clone();
        old["spec"]["ephemeralContainers"][0]["image"] = json!("other");
        old["spec"]["nodeSelector"] = json!({"kept": "no"});
        old["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] = json!([]);
        old["status"]["containerStatuses"][0]["state"] = json!({"terminated": {"exitCode": 1}});
        for sub in ["", "status", "resize", "ephemeralcontainers"] {
            assert!(!kind.check_update(sub, &object, &old).is_empty());
            kind.prepare_update(sub, &mut object.clone(), &old, &Context::default());
        }
        let node = kind.node(&object);
        assert!(!kind.behaviour.warnings(&node, None).is_empty());
        kind.behaviour.warnings(&node, Some(&kind.node(&old)));
        columns("v1", "pods", &object);
    }
}

#[test]
fn a_write_to_a_part_of_a_pod_records_all_that_it_says() {
    let kind = crate::builtin::by_plural("", "v1", "pods").unwrap();
    for part in ["ephemeralcontainers", "resize"] {
        assert!(kind.behaviour.reset_fields(part).is_empty(), "{part}");
    }
}
