"""Our own GPUs of a node: the annotation ``nvshare.com/node-gpus`` of the device plugin.

A JSON list with an object for each GPU::

    {"uuid": text, "index": number, "type": text, "memory": bytes, "slots": number,
     "unhealthy": [reason, ...], "allocations": {"namespace/pod": devices, ...}}

Where that would be too long for an annotation, ``allocated`` has the sum in the place of ``allocations``. It
is here beside HAMi's, because both fill the same metrics; fields that are not named above are ignored.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from nvshare.hami.annotation_error import wrong

NODE_GPUS: Final = "nvshare.com/node-gpus"
_GPUS_MAX: Final = 1024
_INT_MAX: Final = 1 << 53


class NodeGpu(NamedTuple):
    uuid: str
    number: int  # NVML's index
    type: str
    memory_bytes: int
    slots: int
    allocations: tuple[tuple[str, str, int], ...]  # namespace, pod, devices
    allocated: int
    healthy: bool = True


def parse_node_gpus(text: str) -> tuple[NodeGpu, ...]:
    """Raises AnnotationError."""
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise wrong(f"no JSON ({error})", text) from error
    if not isinstance(rows, list) or len(rows) > _GPUS_MAX:
        raise wrong("no list of GPUs", text)
    found = tuple(map(_gpu_of, rows))
    if len({gpu.uuid for gpu in found}) < len(found):
        raise wrong("a GPU is named twice", text)
    return found


def _gpu_of(row: Any) -> NodeGpu:
    if not isinstance(row, dict):
        raise wrong("a GPU that is no object", row)
    uuid, kind = row.get("uuid"), row.get("type", "")
    holders, faults = row.get("allocations", {}), row.get("unhealthy", [])
    if not isinstance(uuid, str) or not uuid or not isinstance(kind, str):
        raise wrong("a GPU without uuid, or with a type that is no text", row)
    if not isinstance(holders, dict) or not isinstance(faults, list):
        raise wrong("allocations is no object, or unhealthy is no list", row)
    allocations = tuple(_holding(name, holders) for name in holders)
    allocated = sum(count for _, _, count in allocations) or _number(row, "allocated")
    memory_bytes, slots = _number(row, "memory"), _number(row, "slots")
    return NodeGpu(uuid, _number(row, "index"), kind, memory_bytes, slots, allocations, allocated, not faults)


def _holding(name: str, holders: dict[str, Any]) -> tuple[str, str, int]:
    namespace, slash, pod = name.partition("/")
    if not slash or not namespace or not pod:
        raise wrong("no namespace/pod", name)
    return namespace, pod, _number(holders, name)


def _number(row: dict[str, Any], name: str) -> int:
    value = row.get(name, 0)
    if type(value) is not int or not 0 <= value <= _INT_MAX:
        raise wrong(f"{name} is no whole number", value)
    return value


def format_node_gpus(gpus: tuple[NodeGpu, ...]) -> str:
    rows = [
        {
            "uuid": gpu.uuid,
            "index": gpu.number,
            "type": gpu.type,
            "memory": gpu.memory_bytes,
            "slots": gpu.slots,
            "unhealthy": [] if gpu.healthy else ["unknown"],
            "allocations": {f"{namespace}/{pod}": count for namespace, pod, count in gpu.allocations},
        }
        for gpu in gpus
    ]
    return json.dumps(rows, separators=(",", ":"), ensure_ascii=False)
