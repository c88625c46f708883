"""The Python client against the server that KUBECONFIG names: one function for each fact."""

import json
import threading
import traceback

from kubernetes import client, config, dynamic, watch
from kubernetes.client.exceptions import ApiException

config.load_kube_config()
core = client.CoreV1Api()
apps = client.AppsV1Api()


def config_map(name, /, **labels):
    metadata = client.V1ObjectMeta(name=name, labels={"app": "web", **labels})
    return client.V1ConfigMap(metadata=metadata, data={"color": "red"})


def refused(code, reason, call, *arguments, **options):
    """The call is answered with this HTTP code and reason, in a form that the client understands."""
    try:
        call(*arguments, **options)
    except ApiException as error:
        assert error.status == code, error
        assert json.loads(error.body)["reason"] == reason, error.body
    else:
        raise AssertionError(f"not refused with {code}")


def namespaced(name):
    core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=name)))
    return name


def an_object_is_created_read_and_deleted():
    created = core.create_namespaced_config_map("default", config_map("one"))
    assert created.metadata.uid and created.metadata.resource_version and created.metadata.creation_timestamp
    refused(409, "AlreadyExists", core.create_namespaced_config_map, "default", config_map("one"))
    assert core.read_namespaced_config_map("one", "default") == created
    core.delete_namespaced_config_map("one", "default")
    refused(404, "NotFound", core.read_namespaced_config_map, "one", "default")
    refused(404, "NotFound", core.create_namespaced_config_map, "nowhere", config_map("one"))
    refused(422, "Invalid", core.create_namespaced_config_map, "default", config_map("Not_A_Name"))


def a_list_is_selected_and_paged():
    space = namespaced("paged")
    for name in "abcde":
        core.create_namespaced_config_map(space, config_map(name, name=name))
    names = lambda answer: [item.metadata.name for item in answer.items]
    assert names(core.list_namespaced_config_map(space, label_selector="name in (b,d)")) == ["b", "d"]
    assert names(core.list_namespaced_config_map(space, field_selector="metadata.name=c")) == ["c"]
    page = core.list_namespaced_config_map(space, limit=2)
    assert (names(page), page.metadata.remaining_item_count) == (["a", "b"], 3)
    rest = core.list_namespaced_config_map(space, limit=10, _continue=page.metadata._continue)
    assert names(rest) == ["c", "d", "e"] and not rest.metadata._continue
    every = core.list_config_map_for_all_namespaces(label_selector="name")
    assert len(every.items) == 5


def patches_of_all_types_change_what_they_name():
    space = namespaced("patched")
    core.create_namespaced_config_map(space, config_map("one"))
    send = lambda body, **options: core.patch_namespaced_config_map("one", space, body, **options).data
    assert send({"data": {"color": None, "size": "2"}}, _content_type="application/merge-patch+json") == {"size": "2"}
    assert send([{"op": "add", "path": "/data/shape", "value": "round"}]) == {"size": "2", "shape": "round"}
    assert send({"data": {"size": None}}, _content_type="application/strategic-merge-patch+json") == {"shape": "round"}


def an_update_from_an_old_version_is_a_conflict():
    space = namespaced("updated")
    old = core.create_namespaced_config_map(space, config_map("one"))
    new = core.read_namespaced_config_map("one", space)
    new.data = {"color": "blue"}
    new = core.replace_namespaced_config_map("one", space, new)
    assert int(new.metadata.resource_version) > int(old.metadata.resource_version)
    refused(409, "Conflict", core.replace_namespaced_config_map, "one", space, old)
    assert core.read_namespaced_config_map("one", space).data == {"color": "blue"}


def a_watch_tells_every_change_in_order():
    space = namespaced("watched")
    start = core.list_namespaced_config_map(space).metadata.resource_version
    core.create_namespaced_config_map(space, config_map("one"))
    core.patch_namespaced_config_map("one", space, {"data": {"color": "blue"}})
    late = threading.Thread(target=core.delete_namespaced_config_map, args=("one", space))
    seen = []
    stream = watch.Watch()
    for event in stream.stream(core.list_namespaced_config_map, space, resource_version=start, timeout_seconds=30):
        seen.append((event["type"], event["object"].data["color"]))
        if len(seen) == 2:
            late.start()
        if len(seen) == 3:
            stream.stop()
    late.join()
    assert seen == [("ADDED", "red"), ("MODIFIED", "blue"), ("DELETED", "blue")], seen


def a_deployment_has_defaults_a_scale_and_a_status_of_its_own():
    labels = {"app": "web"}
    pod = client.V1PodSpec(containers=[client.V1Container(name="web", image="nginx")])
    template = client.V1PodTemplateSpec(metadata=client.V1ObjectMeta(labels=labels), spec=pod)
    spec = client.V1DeploymentSpec(selector=client.V1LabelSelector(match_labels=labels), template=template)
    created = apps.create_namespaced_deployment("default", client.V1Deployment(metadata=client.V1ObjectMeta(name="web"), spec=spec))
    assert created.spec.replicas == 1 and created.spec.strategy.type == "RollingUpdate"
    side = {"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "busybox"}]}}}}
    merged = apps.patch_namespaced_deployment("web", "default", side)
    assert [container.name for container in merged.spec.template.spec.containers] == ["side", "web"]
    status = apps.patch_namespaced_deployment_status("web", "default", {"status": {"replicas": 3}, "spec": {"replicas": 9}})
    assert (status.spec.replicas, status.status.replicas) == (1, 3)
    scale = apps.read_namespaced_deployment_scale("web", "default")
    assert (scale.spec.replicas, scale.status.replicas, scale.status.selector) == (1, 3, "app=web")
    scale.spec.replicas = 4
    assert apps.replace_namespaced_deployment_scale("web", "default", scale).spec.replicas == 4
    assert apps.read_namespaced_deployment("web", "default").spec.replicas == 4


def a_collection_is_deleted_by_selector():
    space = namespaced("emptied")
    for name in "abc":
        core.create_namespaced_config_map(space, config_map(name, keep=str(name == "c")))
    core.delete_collection_namespaced_config_map(space, label_selector="keep=False")
    assert [item.metadata.name for item in core.list_namespaced_config_map(space).items] == ["c"]


def the_dynamic_client_finds_kinds_and_uses_them():
    found = dynamic.DynamicClient(client.ApiClient())
    api = found.resources.get(api_version="v1", kind="ConfigMap")
    space = namespaced("dynamic")
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": {"color": "red"}}
    created = api.create(body=body, namespace=space)
    assert created.metadata.uid == api.get(name="one", namespace=space).metadata.uid
    patched = api.patch(body={"data": {"color": "blue"}}, name="one", namespace=space, content_type="application/merge-patch+json")
    assert patched.data.color == "blue"
    for event in api.watch(namespace=space, timeout=10):
        assert (event["type"], event["object"].metadata.name) == ("ADDED", "one")
        break
    stale = {**body, "metadata": {"name": "one", "resourceVersion": created.metadata.resourceVersion}}
    try:
        api.replace(body=stale, namespace=space)
        raise AssertionError("not a conflict")
    except dynamic.exceptions.ConflictError:
        pass
    api.delete(name="one", namespace=space)
    assert api.get(namespace=space).items == []
    api.delete(namespace=space, label_selector="app=web")


def applied_fields_have_owners():
    space = namespaced("applied")
    api = dynamic.DynamicClient(client.ApiClient()).resources.get(api_version="v1", kind="ConfigMap")
    wanted = lambda data: {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": data}
    send = lambda data, manager: api.server_side_apply(body=wanted(data), name="one", namespace=space, field_manager=manager)
    send({"mine": "1"}, "me")
    assert send({"theirs": "2"}, "them").data.to_dict() == {"mine": "1", "theirs": "2"}
    try:
        send({"mine": "3"}, "them")
        raise AssertionError("not a conflict")
    except dynamic.exceptions.ConflictError:
        pass
    assert send({}, "me").data.to_dict() == {"theirs": "2"}


FACTS = [
    an_object_is_created_read_and_deleted,
    a_list_is_selected_and_paged,
    patches_of_all_types_change_what_they_name,
    an_update_from_an_old_version_is_a_conflict,
    a_watch_tells_every_change_in_order,
    a_deployment_has_defaults_a_scale_and_a_status_of_its_own,
    a_collection_is_deleted_by_selector,
    the_dynamic_client_finds_kinds_and_uses_them,
    applied_fields_have_owners,
]
failed = 0
for fact in FACTS:
    try:
        fact()
        print("ok", fact.__name__)
    except Exception:
        failed += 1
        print("FAILED", fact.__name__)
        traceback.print_exc()
raise SystemExit(failed)
