"""What Grafana would not understand in a dashboard, by its own types.

The SDK reads a field it knows and passes over one it does not, and believes any value. So what it has read
must give all that was written, and every value must be what the types say.
"""

from __future__ import annotations

import enum
import json
import types
import typing
from collections.abc import Iterator
from typing import Any

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models import units

UNITS = {value for name, value in vars(units).items() if isinstance(value, str) and name[0].isupper()}

register_default_plugins()


def faults(content: dict[str, Any]) -> list[str]:
    found = list(_faults_of(content))
    for panel in content["panels"]:
        found += [
            f"{panel['title']}: override: {fault}"
            for override in panel.get("fieldConfig", {}).get("overrides", ())
            for fault in _faults_of({"panels": [{**panel, "fieldConfig": _as_defaults(override)}]})
        ]
        found += [f"{panel['title']}: no unit of Grafana's: {unit}" for unit in _units(panel) - UNITS]
    return found


def _faults_of(content: dict[str, Any]) -> Iterator[str]:
    read = model.Dashboard.from_json(content)
    yield from _lost(content, _encoded(read), "")
    yield from _mistyped(read, model.Dashboard, "")


def _as_defaults(override: dict[str, Any]) -> dict[str, Any]:
    """An override's properties are those of the defaults; the types leave them open."""
    defaults: dict[str, Any] = {}
    for one in override["properties"]:
        place, _, name = one["id"].rpartition(".")
        (defaults.setdefault(place, {}) if place else defaults)[name] = one["value"]
    return {"defaults": defaults, "overrides": []}


def _units(panel: dict[str, Any]) -> set[str]:
    config = panel.get("fieldConfig", {"defaults": {}, "overrides": []})
    properties = [one for override in config["overrides"] for one in override["properties"]]
    given = [one["value"] for one in properties if one["id"] == "unit"]
    return {*given, config["defaults"].get("unit", "short")}


def _lost(written: Any, read: Any, path: str) -> Iterator[str]:
    if isinstance(written, dict) and isinstance(read, dict):
        for key, value in written.items():
            if key in read:
                yield from _lost(value, read[key], f"{path}.{key}")
            elif value is not None:
                yield f"unknown: {path}.{key}"
    elif isinstance(written, list) and isinstance(read, list) and len(written) == len(read):
        for index, (one, other) in enumerate(zip(written, read, strict=True)):
            yield from _lost(one, other, f"{path}[{index}]")
    elif written != read:
        yield f"read as {read!r}: {path}"


def _mistyped(value: Any, hint: Any, path: str) -> Iterator[str]:
    options = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    unread = [option for option in options if isinstance(value, dict) and _of_sdk(option)]
    if unread:
        read = unread[0].from_json(value)
        yield from _lost(value, _encoded(read), path)
        yield from _mistyped(read, unread[0], path)
    elif not any(_fits(value, option) for option in options):
        yield f"{value!r} is not {hint}: {path}"
    elif isinstance(value, (list, dict)):
        held = [typing.get_args(option) for option in options if typing.get_origin(option) is type(value)]
        item = held[0][-1] if held else object
        for key, one in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _mistyped(one, item, f"{path}[{key}]")
    elif _of_sdk(type(value)) and not isinstance(value, enum.Enum):
        hints = typing.get_type_hints(type(value))
        for name, inner in vars(value).items():
            yield from _mistyped(inner, hints[name], f"{path}.{name}")


def _of_sdk(kind: Any) -> bool:
    return isinstance(kind, type) and kind.__module__.startswith("grafana_foundation_sdk.models")


def _encoded(read: object) -> Any:
    return json.loads(json.dumps(read, cls=JSONEncoder))


def _fits(value: Any, hint: Any) -> bool:
    kind = typing.get_origin(hint) or hint
    if kind is typing.Literal:
        return value in typing.get_args(hint)
    if not isinstance(kind, type) or kind is object:
        return True  # open: Any, type variables, forward names of plug-ins
    if issubclass(kind, enum.Enum):
        return value in [member.value for member in kind]
    if kind in (int, float):
        return isinstance(value, (int, kind)) and not isinstance(value, bool)
    return isinstance(value, kind)
