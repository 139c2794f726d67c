"""Changes of an object by patch. Nothing here changes what it is given."""

from __future__ import annotations

import copy
from typing import Any, Final

from nvshare.sim.kube_api.errors import ApiError, Json, bad_request

OPERATIONS_MAX: Final = 10_000

# Which member identifies an element of a list that is merged; the same in every kind.
MERGE_KEYS: Final = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "conditions": "type",
    "addresses": "type",
    "ownerReferences": "uid",
    "podIPs": "ip",
    "secrets": "name",
}
PORT_KEYS: Final = ("containerPort", "port")
# Lists of plain values that are merged as sets.
MERGED_SETS: Final = frozenset({"finalizers"})


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7396: null removes, objects merge, anything else replaces."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged


def merge_key(field: str, items: list[Any]) -> str:
    """What identifies the elements of a list in this field; empty: the list is replaced as a whole."""
    if not items or not all(isinstance(item, dict) for item in items):
        return ""
    if field == "ports":
        return next((key for key in PORT_KEYS if key in items[0]), "")
    return MERGE_KEYS.get(field, "")


def strategic_merge(target: Any, patch: Any, field: str = "") -> Any:
    """Like a merge, but lists with a merge key are merged element by element, and ``$`` members direct it."""
    if isinstance(patch, list):
        return _merged_list(target if isinstance(target, list) else [], patch, field)
    if not isinstance(patch, dict):
        return patch
    if patch.get("$patch") == "replace":
        return {name: value for name, value in patch.items() if name != "$patch"}
    if patch.get("$patch") == "delete":
        return {}
    merged = dict(target) if isinstance(target, dict) else {}
    if isinstance(patch.get("$retainKeys"), list):
        merged = {name: value for name, value in merged.items() if name in patch["$retainKeys"]}
    for name, value in patch.items():
        if name.startswith("$deleteFromPrimitiveList/"):
            listed = name.partition("/")[2]
            merged[listed] = [item for item in merged.get(listed, []) if item not in value]
        elif name.startswith("$"):
            continue
        elif value is None:
            merged.pop(name, None)
        else:
            merged[name] = strategic_merge(merged.get(name), value, name)
    return merged


def _merged_list(target: list[Any], patch: list[Any], field: str) -> list[Any]:
    if field in MERGED_SETS:
        return [*target, *(item for item in patch if item not in target)]
    items = [item for item in patch if item != {"$patch": "replace"}]
    key = merge_key(field, [*target, *items])
    if not key or len(items) < len(patch):
        return items
    merged = {item.get(key): item for item in target}
    for item in patch:
        if item.get("$patch") == "delete":
            merged.pop(item.get(key), None)
        else:
            merged[item.get(key)] = strategic_merge(merged.get(item.get(key)), item)
    return list(merged.values())


def json_patch(target: Json, operations: Any) -> Any:
    """RFC 6902."""
    if not isinstance(operations, list) or len(operations) > OPERATIONS_MAX:
        raise bad_request(f"a JSON patch is a list of at most {OPERATIONS_MAX} operations")
    document: Any = copy.deepcopy(target)
    for operation in operations:
        try:
            document = _operate(document, operation)
        except (KeyError, IndexError, ValueError, TypeError, AttributeError) as error:
            raise ApiError(
                422, f"the server rejected our request due to an error in our request: {error}"
            ) from None
    return document


def _operate(document: Any, operation: Json) -> Any:
    kind, path = operation["op"], operation["path"]
    if kind in ("add", "replace"):
        return _put(document, path, operation["value"], replace=kind == "replace")
    if kind == "remove":
        _take(document, path)
        return document
    if kind == "test":
        if _at(document, path) != operation["value"]:
            raise ValueError(f"testing value {path} failed")
        return document
    if kind == "move":
        return _put(document, path, _take(document, operation["from"]))
    if kind == "copy":
        return _put(document, path, copy.deepcopy(_at(document, operation["from"])))
    raise ValueError(f"op is {kind!r}; accepted: add, replace, remove, test, move, copy")


def _parts(path: str) -> list[str]:
    if path and not path.startswith("/"):
        raise ValueError(f"path {path!r} does not start with /")
    return [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]


def _at(document: Any, path: str) -> Any:
    for part in _parts(path):
        document = document[int(part)] if isinstance(document, list) else document[part]
    return document


def _put(document: Any, path: str, value: Any, *, replace: bool = False) -> Any:
    parts = _parts(path)
    if not parts:
        return value
    parent = _at(document, path.rpartition("/")[0])
    if isinstance(parent, list):
        place = len(parent) if parts[-1] == "-" else int(parts[-1])
        if not 0 <= place <= len(parent) - replace:
            raise IndexError(f"no element {place} at {path}")
        parent[place : place + replace] = [value]
    elif replace and parts[-1] not in parent:
        raise KeyError(f"nothing to replace at {path}")
    else:
        parent[parts[-1]] = value
    return document


def _take(document: Any, path: str) -> Any:
    parent, last = _at(document, path.rpartition("/")[0]), _parts(path)[-1]
    return parent.pop(int(last)) if isinstance(parent, list) else parent.pop(last)
