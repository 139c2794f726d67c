"""The devices that HAMi's plugin registers for a node: the annotation ``hami.io/node-nvidia-register``.

Three forms have been written, told apart by the first character and by the number of fields::

    registration = json | text
    json   = "[" { object } "]"        since v2.8.0; a field with its zero value is left out
    text   = device ":" { device ":" }
    device = uuid "," count "," memory-MiB "," cores "," type "," numa "," healthy [ "," index "," mode ]
    healthy = "true" | "false"         7 fields up to v2.4, 9 fields up to v2.7.1

Empty segments of the text are ignored; any other segment with another number of fields spoils the
annotation. A type may have spaces, but neither comma nor colon.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from nvshare.hami.annotation_error import AnnotationError, whole_number, wrong

REGISTER: Final = "hami.io/node-nvidia-register"
DEVICES_MAX: Final = 1024
DEFAULT_MODE: Final = "hami-core"
MIG_MODE: Final = "mig"
_INT_MAX: Final = 1 << 53


class TemplatePart(NamedTuple):
    """So many MIG instances of one profile."""

    profile: str
    instances: int


class NodeDevice(NamedTuple):
    uuid: str
    slots: int = 0  # containers that may share it
    memory_mib: int = 0
    cores: int = 0  # 100: the whole card
    type: str = ""
    numa: int = 0
    healthy: bool = False
    number: int = 0  # NVML's index
    mode: str = DEFAULT_MODE
    templates: tuple[tuple[TemplatePart, ...], ...] = ()  # how the card may be split into MIG instances


def parse_node_devices(text: str) -> tuple[NodeDevice, ...]:
    """Raises AnnotationError."""
    found = _from_json(text) if text.lstrip().startswith("[") else _from_text(text)
    if len(found) > DEVICES_MAX:
        raise wrong(f"more than {DEVICES_MAX} devices", len(found))
    seen: set[str] = set()
    for device in found:
        if device.uuid in seen:
            raise wrong("a device is registered twice", device.uuid)
        seen.add(device.uuid)
    return found


# ---- text ------------------------------------------------------------------------------------


def _from_text(text: str) -> tuple[NodeDevice, ...]:
    if ":" not in text:
        raise wrong("neither JSON nor devices that end with a colon", text)
    return tuple(_device_of(segment) for segment in text.split(":") if segment.strip())


def _device_of(segment: str) -> NodeDevice:
    fields = segment.strip().split(",")
    if len(fields) not in (7, 9):
        raise wrong(f"a device of {len(fields)} fields instead of 7 or 9", segment)
    uuid, count, memory, cores, kind, numa, healthy = fields[:7]
    if not uuid or healthy not in ("true", "false"):
        raise wrong("no device", segment)
    index, mode = (whole_number(fields[7], "index"), fields[8]) if len(fields) == 9 else (0, DEFAULT_MODE)
    return NodeDevice(
        uuid,
        whole_number(count, "count"),
        whole_number(memory, "memory"),
        whole_number(cores, "cores"),
        kind,
        whole_number(numa, "numa"),
        healthy == "true",
        index,
        mode,
    )


def format_text(devices: Iterable[NodeDevice], fields: int = 9) -> str:
    """As the plugin of v2.5 to v2.7.1 writes it, or with 7 fields an earlier one."""
    rows = []
    for one in devices:
        row = [one.uuid, one.slots, one.memory_mib, one.cores, one.type, one.numa, str(one.healthy).lower()]
        row += [one.number, one.mode] if fields == 9 else []
        rows.append(",".join(map(str, row)) + ":")
    return "".join(rows)


# ---- JSON ------------------------------------------------------------------------------------


def _from_json(text: str) -> tuple[NodeDevice, ...]:
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise wrong(f"no JSON ({error})", text) from error
    if not isinstance(rows, list):
        raise wrong("no list of devices", text)
    return tuple(map(_device_of_object, rows))


def _device_of_object(row: Any) -> NodeDevice:
    if not isinstance(row, dict):
        raise wrong("a device that is no object", row)
    healthy = row.get("health", False)
    if not isinstance(healthy, bool):
        raise wrong("health is neither true nor false", healthy)
    uuid = _text(row, "id")
    if not uuid:
        raise wrong("a device without id", row)
    return NodeDevice(
        uuid,
        _number(row, "count"),
        _number(row, "devmem"),
        _number(row, "devcore"),
        _text(row, "type"),
        _number(row, "numa"),
        healthy,
        _number(row, "index"),
        _text(row, "mode") or DEFAULT_MODE,
        _templates(row.get("migtemplate") or []),
    )


def _number(row: dict[str, Any], name: str) -> int:
    value = row.get(name, 0)
    if type(value) is not int or not 0 <= value <= _INT_MAX:
        raise wrong(f"{name} is no whole number", value)
    return value


def _text(row: dict[str, Any], name: str) -> str:
    value = row.get(name, "")
    if not isinstance(value, str):
        raise wrong(f"{name} is no text", value)
    return value


def _templates(geometries: Any) -> tuple[tuple[TemplatePart, ...], ...]:
    """Go writes the fields of a template with capitals."""
    try:
        return tuple(
            tuple(
                TemplatePart(_text(part, "name"), _number(part, "count"))
                for part in ({name.lower(): value for name, value in one.items()} for one in geometry)
            )
            for geometry in geometries
        )
    except (TypeError, AttributeError) as error:
        raise wrong("migtemplate is no list of lists of profiles", geometries) from error


def format_json(devices: Iterable[NodeDevice]) -> str:
    """As the plugin writes it since v2.8.0."""
    rows = []
    for one in devices:
        row: dict[str, Any] = {
            "id": one.uuid,
            "index": one.number,
            "count": one.slots,
            "devmem": one.memory_mib,
            "devcore": one.cores,
            "type": one.type,
            "numa": one.numa,
            "mode": one.mode,
            "health": one.healthy,
            "migtemplate": [
                [{"Name": part.profile, "Count": part.instances} for part in geometry]
                for geometry in one.templates
            ],
        }
        rows.append({name: value for name, value in row.items() if value})
    return json.dumps(rows, separators=(",", ":"), ensure_ascii=False)


__all__ = [
    "AnnotationError",
    "NodeDevice",
    "TemplatePart",
    "format_json",
    "format_text",
    "parse_node_devices",
]
