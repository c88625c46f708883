//! Facts about services.

use super::super::super::testing::{
    columns, create, create_fails, selected, status_update_fails, update, update_fails, warnings,
};
use super::*;

fn service(spec: Value) -> Value {
    let mut body = json!({"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}});
    for (field, value) in spec.as_object().into_iter().flatten() {
        body["spec"].set(field, value.clone());
    }
    body
}

/// As the server has it before addresses are given out.
fn begun(spec: Value, cluster: &[&str]) -> Result<Value, String> {
    let mut object = service(spec);
    Service.default(&mut object);
    match setpoint_api::field::aggregate(&begin_create(&mut object, cluster)) {
        None => Ok(object["spec"].clone()),
        Some(errors) => Err(errors),
    }
}

#[test]
fn a_service_is_a_cluster_ip_for_tcp() {
    let object = create("v1", "services", service(json!({})));
    assert_eq!(
        object["spec"],
        json!({
            "type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
            "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
        })
    );
    assert_eq!(
        columns("v1", "services", &object),
        json!(["a", "ClusterIP", "<none>", "<none>", "80/TCP", "<unknown>", "<none>"])
    );
    assert_eq!(selected("v1", "services", &object, "spec.type"), "ClusterIP");
}

#[test]
fn types_need_and_refuse_fields() {
    for (spec, expected) in [
        (json!({"type": "ExternalName"}), "spec.externalName: Required value"),
        (
            json!({"clusterIP": "None", "clusterIPs": ["None"], "type": "NodePort"}),
            "spec.clusterIPs[0]: Invalid value: \"None\": may not be set to 'None' for NodePort services",
        ),
        (
            json!({"loadBalancerClass": "a/b"}),
            "spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'",
        ),
        (
            json!({"type": "Odd"}),
            "spec.type: Unsupported value: \"Odd\": supported values: \"ClusterIP\", \"ExternalName\", \"LoadBalancer\", \
             \"NodePort\"",
        ),
        (
            json!({"ports": [{"port": 80, "nodePort": 30000}]}),
            "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'",
        ),
        (
            json!({"ports": [{"name": "a", "port": 1}, {"name": "b", "port": 1}]}),
            "spec.ports[1]: Duplicate value: {\"Name\":\"\",\"Protocol\":\"TCP\",\"AppProtocol\":null,\"Port\":1,\
             \"TargetPort\":0,\"NodePort\":0}",
        ),
        (
            json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 0}}}),
            "spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 0: must be greater than 0 and less than 86400",
        ),
        (
            json!({"type": "LoadBalancer", "loadBalancerSourceRanges": ["x"]}),
            "spec.LoadBalancerSourceRanges[0]: Invalid value: \"x\": must be a valid CIDR value, \
             (e.g. 10.9.8.0/24 or 2001:db8::/64)",
        ),
    ] {
        create_fails("v1", "services", service(spec), expected);
    }
}

#[test]
fn families_follow_addresses_policy_and_cluster() {
    let one = ["IPv4"];
    let two = ["IPv4", "IPv6"];
    for (spec, cluster, families) in [
        (json!({}), &one[..], json!(["IPv4"])),
        (json!({"ipFamilyPolicy": "PreferDualStack"}), &one[..], json!(["IPv4"])),
        (json!({"ipFamilyPolicy": "PreferDualStack"}), &two[..], json!(["IPv4", "IPv6"])),
        (json!({"clusterIP": "fd00::1"}), &two[..], json!(["IPv6"])),
        (json!({"clusterIP": "None"}), &one[..], json!(["IPv4", "IPv6"])),
        (json!({"clusterIP": "None", "selector": {"a": "b"}}), &one[..], json!(["IPv4"])),
    ] {
        assert_eq!(begun(spec.clone(), cluster).unwrap()["ipFamilies"], families, "{spec}");
    }
    for (spec, expected) in [
        (
            json!({"clusterIP": "fd00::1"}),
            "spec.clusterIPs[0]: Invalid value: [\"fd00::1\"]: IPv6 is not configured on this cluster",
        ),
        (
            json!({"ipFamilyPolicy": "RequireDualStack"}),
            "spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not configured for dual-stack services",
        ),
        (
            json!({"ipFamilies": ["IPv6"]}),
            "spec.ipFamilies[0]: Invalid value: \"IPv6\": not configured on this cluster",
        ),
        (
            json!({"ipFamilies": ["IPv4", "IPv6"]}),
            "spec.ipFamilyPolicy: Invalid value: \"SingleStack\": must be 'RequireDualStack' or 'PreferDualStack' when \
             multiple IP families are specified",
        ),
    ] {
        assert_eq!(begun(spec, &one), Err(expected.to_owned()));
    }
}

#[test]
fn what_was_given_out_is_kept() {
    let old = json!({"spec": {"type": "NodePort", "clusterIP": "10.0.0.9", "clusterIPs": ["10.0.0.9"], "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack", "ports": [{"name": "a", "port": 80, "nodePort": 30000}]}});
    let mut new =
        json!({"spec": {"type": "NodePort", "ports": [{"name": "a", "port": 81}, {"name": "b", "port": 82}]}});
    assert_eq!(begin_update(&mut new, &old, &["IPv4"]), []);
    assert_eq!(new["spec"]["clusterIPs"], json!(["10.0.0.9"]));
    assert_eq!(new["spec"]["ports"], json!([{"name": "a", "port": 81, "nodePort": 30000}, {"name": "b", "port": 82}]));
}

#[test]
fn a_new_type_drops_what_it_does_not_need() {
    let ip = json!({"clusterIP": "10.0.0.9", "clusterIPs": ["10.0.0.9"], "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"});
    let mut name = ip.clone();
    name.set("type", "ExternalName");
    name.set("externalName", "a.b");
    let object = update("v1", "services", service(ip), service(name));
    assert_eq!(object["spec"].get("clusterIPs"), None);
    assert_eq!(object["spec"].get("ipFamilies"), None);
    assert_eq!(object["spec"].get("internalTrafficPolicy"), None);
}

#[test]
fn addresses_and_classes_stay() {
    let ip = |ip: &str| service(json!({"clusterIP": ip, "clusterIPs": [ip]}));
    update_fails(
        "v1",
        "services",
        ip("10.0.0.9"),
        ip("10.0.0.8"),
        "spec.clusterIPs[0]: Invalid value: [\"10.0.0.8\"]: may not change once set",
    );
    update_fails(
        "v1",
        "services",
        service(json!({"type": "LoadBalancer"})),
        service(json!({"type": "LoadBalancer", "loadBalancerClass": "a/b"})),
        "spec.loadBalancerClass: Invalid value: \"a/b\": may not change once set",
    );
}

#[test]
fn only_a_load_balancer_has_ingress() {
    let status = |body: Value, ingress: Value| {
        let mut body = body;
        body.set("status", json!({"loadBalancer": {"ingress": ingress}}));
        body
    };
    let plain = || service(json!({}));
    let balanced = || service(json!({"type": "LoadBalancer"}));
    for (old, ingress, expected) in [
        (
            plain(),
            json!([{"ip": "1.2.3.4"}]),
            "status.loadBalancer.ingress: Forbidden: may only be used when `spec.type` is 'LoadBalancer'",
        ),
        (
            balanced(),
            json!([{"hostname": "1.2.3.4"}]),
            "status.loadBalancer.ingress[0].hostname: Invalid value: \"1.2.3.4\": must be a DNS name, not an IP address",
        ),
    ] {
        status_update_fails("v1", "services", old.clone(), status(old, ingress), expected);
    }
}

#[test]
fn ignored_fields_warn() {
    let headless = json!({"clusterIP": "None", "clusterIPs": ["None"], "sessionAffinity": "ClientIP"});
    assert_eq!(
        warnings("v1", "services", service(headless)),
        ["spec.SessionAffinity is ignored for headless services"]
    );
    let named = json!({"externalName": "a.b", "trafficDistribution": "PreferClose"});
    assert_eq!(
        warnings("v1", "services", service(named)),
        [
            "spec.externalName is ignored when spec.type is not \"ExternalName\"",
            "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"",
        ]
    );
}
