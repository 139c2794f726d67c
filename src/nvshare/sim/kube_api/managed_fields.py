"""Who set which field: what server-side apply decides by.

A set of fields is a tree of objects, as in ``fieldsV1``: ``f:name`` is a member, ``k:{"name":"c"}`` an
element of a list with a merge key, and an empty object is a leaf. A list without a merge key is one leaf.
"""

from __future__ import annotations

from typing import Any, Final

from nvshare.sim.kube_api.errors import ApiError, Json
from nvshare.sim.kube_api.patches import merge_key
from nvshare.sim.kube_api.store import encode

Fields = dict[str, Any]
MANAGERS_MAX: Final = 20
_MISSING: Final = object()
_SERVERS_OWN: Final = (
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "generation",
    "managedFields",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "name",
    "namespace",
)


def _members(value: Any, field: str) -> dict[str, tuple[Any, str]] | None:
    """The parts of a value by their names in a tree; None: it is a leaf."""
    if isinstance(value, dict) and value:
        return {f"f:{name}": (part, name) for name, part in value.items()}
    if isinstance(value, list):
        key = merge_key(field, value)
        if key and all(key in item for item in value):
            return {f"k:{encode({key: item[key]}).decode()}": (item, "") for item in value}
    return None


def fields_of(value: Any, field: str = "") -> Fields:
    members = _members(value, field)
    if members is None:
        return {}
    return {name: fields_of(part, inner) for name, (part, inner) in members.items()}


def own_fields(given: Json) -> Fields:
    """Without what the server itself sets."""
    rest = {name: value for name, value in given.items() if name not in ("kind", "apiVersion")}
    metadata = given.get("metadata", {})
    rest["metadata"] = {name: value for name, value in metadata.items() if name not in _SERVERS_OWN}
    return fields_of({name: value for name, value in rest.items() if value != {}})


def changed_fields(before: Any, after: Any, field: str = "") -> Fields | None:
    """What ``after`` has that is new or other than before; None: nothing."""
    if before == after:
        return None
    members = _members(after, field)
    if members is None:
        return {}
    former = _members(before, field) or {}
    found = {}
    for name, (part, inner) in members.items():
        changed = changed_fields(former.get(name, (_MISSING, ""))[0], part, inner)
        if changed is not None:
            found[name] = changed
    return found or None


def union(one: Fields, other: Fields) -> Fields:
    merged = dict(one)
    for name, part in other.items():
        merged[name] = union(merged.get(name, {}), part)
    return merged


def without(fields: Fields, taken: Fields) -> Fields:
    left = {}
    for name, part in fields.items():
        if name not in taken:
            left[name] = part
        elif part and taken[name]:
            rest = without(part, taken[name])
            if rest:
                left[name] = rest
    return left


def remove_fields(value: Any, fields: Fields, field: str = "") -> Any:
    """The value without these fields; what becomes empty by that goes too."""
    members = _members(value, field)
    if members is None:
        return value
    kept = []
    for name, (part, inner) in members.items():
        if name in fields and not fields[name]:
            continue
        rest = remove_fields(part, fields[name], inner) if name in fields else part
        if name in fields and rest in ({}, []) and part not in ({}, []):
            continue
        kept.append((inner, rest))
    return [rest for _, rest in kept] if isinstance(value, list) else dict(kept)


def entries_of(metadata: Json) -> list[Json]:
    found = metadata.get("managedFields")
    return found if isinstance(found, list) else []


def _present(fields: Fields, there: Fields) -> Fields:
    """Those that are still there."""
    return {name: _present(part, there[name]) for name, part in fields.items() if name in there}


def forget_removed(metadata: Json, there: Fields) -> None:
    """What an object no longer has is nobody's."""
    entries = [{**entry, "fieldsV1": _present(entry["fieldsV1"], there)} for entry in entries_of(metadata)]
    if entries:
        metadata["managedFields"] = [entry for entry in entries if entry["fieldsV1"]]


def record_update(
    metadata: Json, manager: str, api_version: str, changed: Fields | None, time: str, subresource: str = ""
) -> None:
    """These fields are this manager's from now on, and nobody else's."""
    if not changed:
        return
    entries, own = [], changed
    for entry in entries_of(metadata):
        mine = (entry["manager"], entry["operation"], entry.get("subresource", "")) == (
            manager,
            "Update",
            subresource,
        )
        if mine:
            own = union(entry["fieldsV1"], changed)
            continue
        left = without(entry["fieldsV1"], changed)
        if left:
            entries.append({**entry, "fieldsV1": left})
    entries.append(_entry(manager, "Update", api_version, own, time, subresource))
    metadata["managedFields"] = entries[-MANAGERS_MAX:]


def record_apply(
    metadata: Json, manager: str, api_version: str, applied: Fields, time: str, *, force: bool
) -> None:
    entries = [entry for entry in entries_of(metadata) if not _applied_by(entry, manager)]
    if force:
        left = [{**entry, "fieldsV1": without(entry["fieldsV1"], applied)} for entry in entries]
        entries = [entry for entry in left if entry["fieldsV1"]]
    entries.append(_entry(manager, "Apply", api_version, applied, time))
    metadata["managedFields"] = entries[-MANAGERS_MAX:]


def formerly_applied(metadata: Json, manager: str) -> Fields:
    found: Fields = {}
    for entry in entries_of(metadata):
        if _applied_by(entry, manager):
            found = entry["fieldsV1"]
    return found


def others_fields(metadata: Json, manager: str) -> Fields:
    found: Fields = {}
    for entry in entries_of(metadata):
        if not _applied_by(entry, manager):
            found = union(found, entry["fieldsV1"])
    return found


def check_conflicts(metadata: Json, manager: str, changed: Fields) -> None:
    """409 if what this manager changes belongs to others."""
    causes = []
    for entry in entries_of(metadata):
        if not _applied_by(entry, manager):
            causes += [
                {
                    "reason": "FieldManagerConflict",
                    "message": f'conflict with "{entry["manager"]}" using {entry["apiVersion"]}',
                    "field": path,
                }
                for path in _shared(changed, entry["fieldsV1"])
            ]
    if causes:
        noun = "conflict" if len(causes) == 1 else "conflicts"
        shown = ", ".join(f"{cause['message']}: {cause['field']}" for cause in causes)
        message = f"Apply failed with {len(causes)} {noun}: {shown}"
        raise ApiError(409, message, details={"causes": causes})


def _shared(one: Fields, other: Fields, path: str = "") -> list[str]:
    found = []
    for name in one.keys() & other.keys():
        here = f"{path}.{name[2:]}" if name.startswith("f:") else f"{path}[{name[2:]}]"
        if not one[name] or not other[name]:
            found.append(here)
        else:
            found += _shared(one[name], other[name], here)
    return sorted(found)


def _applied_by(entry: Json, manager: str) -> bool:
    return bool(entry["operation"] == "Apply" and entry["manager"] == manager)


def _entry(
    manager: str, operation: str, api_version: str, fields: Fields, time: str, subresource: str = ""
) -> Json:
    entry = {
        "manager": manager,
        "operation": operation,
        "apiVersion": api_version,
        "time": time,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
    return {**entry, "subresource": subresource} if subresource else entry
