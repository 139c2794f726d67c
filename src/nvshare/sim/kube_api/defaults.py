"""What an API server fills in, and what it refuses, when an object is written."""

from __future__ import annotations

import re
from typing import Any, Final

from nvshare.sim.kube_api.errors import ApiError, Json, bad_request, invalid
from nvshare.sim.kube_api.resources import BUDGETS, NAMESPACES, NODES, PODS, Resource

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME_MAX: Final = 253
_LABEL: Final = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_LABEL_MAX: Final = 63
_ANNOTATIONS_BYTES_MAX: Final = 256 << 10
_TOLERATED: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_MUTABLE_POD_SPEC: Final = ("activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds")
_POD_SPEC: Final = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "priority": 0,
    "preemptionPolicy": "PreemptLowerPriority",
    "enableServiceLinks": True,
    "securityContext": {},
}
_CONTAINER: Final = {
    "resources": {},
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}


def fill_in(resource: Resource, fields: Json) -> Json:
    """A new object as it is stored."""
    if resource is PODS:
        return _pod(fields)
    if resource is NODES:
        return _node(fields)
    if resource is NAMESPACES:
        labels = {"kubernetes.io/metadata.name": fields["metadata"]["name"]}
        metadata = {**fields["metadata"], "labels": {**fields["metadata"].get("labels", {}), **labels}}
        return {
            **fields,
            "metadata": metadata,
            "spec": {"finalizers": ["kubernetes"]},
            "status": {"phase": "Active"},
        }
    if "spec" in fields and resource is not BUDGETS:
        fields["metadata"].setdefault("generation", 1)
    return {**fields, "status": {}} if "status" in resource.subresources else fields


def _pod(fields: Json) -> Json:
    spec = {**_POD_SPEC, **fields["spec"]}
    spec["containers"] = [_container(item) for item in spec["containers"]]
    spec.setdefault("tolerations", [])
    tolerated = {item.get("key") for item in spec["tolerations"]}
    spec["tolerations"] = [
        *spec["tolerations"],
        *(
            {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            for key in _TOLERATED
            if key not in tolerated
        ),
    ]
    return {**fields, "spec": spec, "status": {"phase": "Pending", "qosClass": quality_of_service(spec)}}


def _container(given: Json) -> Json:
    image = str(given.get("image", ""))
    tagged = ":" in image.rpartition("/")[2] and not image.endswith(":latest")
    return {**_CONTAINER, "imagePullPolicy": "IfNotPresent" if tagged else "Always", **given}


def quality_of_service(spec: Json) -> str:
    needs = [container.get("resources") or {} for container in spec["containers"]]
    if not any(need.get("requests") or need.get("limits") for need in needs):
        return "BestEffort"
    for need in needs:
        limits = need.get("limits") or {}
        if not {"cpu", "memory"} <= limits.keys() or (need.get("requests") or limits) != limits:
            return "Burstable"
    return "Guaranteed"


def _node(fields: Json) -> Json:
    taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    spec = fields.get("spec") or {}
    return {
        **fields,
        "spec": {**spec, "taints": [*spec.get("taints", []), taint]},
        "status": fields.get("status", {}),
    }


def check_shape(given: Json) -> None:
    """400 for what has another type than any object has there."""
    _check_type(given, dict, "")
    metadata = given.get("metadata")
    _check_type(metadata, dict, "metadata")
    for name in ("spec", "status"):
        _check_type(given.get(name, {}), dict, name)
    for name in ("name", "generateName", "namespace", "uid", "resourceVersion"):
        _check_type((metadata or {}).get(name), str, f"metadata.{name}")
    for name, of in (("finalizers", str), ("ownerReferences", dict), ("managedFields", dict)):
        _check_list(metadata or {}, name, of, "metadata")
    for owner in (metadata or {}).get("ownerReferences") or ():
        _check_type(owner.get("uid", 0), str, "metadata.ownerReferences.uid")
    spec = given.get("spec") or {}
    for name in ("containers", "tolerations"):
        for item in _check_list(spec, name, dict, "spec"):
            _check_type(item.get("resources"), dict, f"spec.{name}.resources")
            _check_type(item.get("key"), str, f"spec.{name}.key")


def _check_list(given: Json, name: str, of: type, place: str) -> list[Any]:
    """Its elements, none of which is null."""
    found = given.get(name)
    _check_type(found, list, f"{place}.{name}")
    for item in found or ():
        _check_type(item if item is not None else ..., of, f"{place}.{name}")
    return found or []


def _check_type(given: Any, wanted: type, place: str) -> None:
    """Null stands for nothing."""
    if given is not None and not isinstance(given, wanted):
        raise bad_request(f"json: cannot unmarshal {type(given).__name__} into {place or 'an object'}")


def check(resource: Resource, fields: Json) -> None:
    """400 or 422 for what no object may be."""
    check_shape(fields)
    metadata = fields["metadata"]
    name = metadata.get("name")
    if not isinstance(name, str) or not name:
        raise _invalid(resource, "", "metadata.name", "Required value: name or generateName is required")
    if not _NAME.fullmatch(name) or len(name) > _NAME_MAX:
        rule = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.'"
        raise _invalid(resource, name, "metadata.name", f'Invalid value: "{name}": {rule}')
    for field in ("labels", "annotations"):
        _check_texts(metadata.get(field), field)
    for value in (metadata.get("labels") or {}).values():
        if len(value) > _LABEL_MAX or not _LABEL.fullmatch(value):
            raise _invalid(resource, name, "metadata.labels", f'Invalid value: "{value}"')
    if (
        sum(len(key) + len(value) for key, value in (metadata.get("annotations") or {}).items())
        > _ANNOTATIONS_BYTES_MAX
    ):
        raise _invalid(
            resource, name, "metadata.annotations", f"Too long: may not be more than {_ANNOTATIONS_BYTES_MAX}"
        )
    if resource is PODS:
        _check_pod(name, fields.get("spec"))


def _check_texts(given: Any, field: str) -> None:
    if given is None:
        return
    if not isinstance(given, dict):
        raise bad_request(f"json: cannot unmarshal {type(given).__name__} into ObjectMeta.metadata.{field}")
    for value in given.values():
        if not isinstance(value, str):
            raise bad_request(
                f"json: cannot unmarshal {type(value).__name__} into a metadata.{field} of type string"
            )


def _check_pod(name: str, spec: Any) -> None:
    containers = spec.get("containers") if isinstance(spec, dict) else None
    if not isinstance(containers, list) or not containers:
        raise invalid("Pod", name, "spec.containers", "Required value")
    for number, container in enumerate(containers):
        if not isinstance(container, dict) or not container.get("name"):
            raise invalid("Pod", name, f"spec.containers[{number}].name", "Required value")


def check_update(resource: Resource, before: Json, after: Json) -> None:
    """A pod's program is decided when it is made."""
    if resource is not PODS:
        return

    def fixed(spec: Json) -> Json:
        kept = {name: value for name, value in spec.items() if name not in _MUTABLE_POD_SPEC}
        return {**kept, "containers": [{**item, "image": ""} for item in spec["containers"]]}

    if fixed(before["spec"]) != fixed(after["spec"]):
        problem = (
            "Forbidden: pod updates may not change fields other than `spec.containers[*].image`, "
            + ", ".join(f"`spec.{name}`" for name in _MUTABLE_POD_SPEC)
        )
        raise invalid("Pod", after["metadata"]["name"], "spec", problem)


def _invalid(resource: Resource, name: str, field: str, problem: str) -> ApiError:
    return invalid(resource.kind, name, field, problem, resource.group)
