"""The MIG instances of a pod since v2.10: the annotation ``hami.io/vgpu-mig-allocations``.

A JSON list, whose objects have ``containerIndex`` (init containers come first), ``deviceIndex``, ``gpuUUID``,
``profile``, ``placement`` (``start``, ``size``), and, once the instance is made, all three of ``migUUID``,
``gpuInstanceID`` and ``computeInstanceID``. Some of the three without the others, one place named twice, a
size of 0, or no UUID or profile spoil the annotation. Before v2.10 the instance is named in the allocation.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from nvshare.hami.annotation_error import wrong

MIG_ALLOCATIONS: Final = "hami.io/vgpu-mig-allocations"
_INSTANCES_MAX: Final = 1024
_RUNTIME: Final = ("migUUID", "gpuInstanceID", "computeInstanceID")


class MigInstance(NamedTuple):
    """As the driver made it."""

    uuid: str
    gpu_instance: int
    compute_instance: int


class MigAllocation(NamedTuple):
    container: int
    device: int
    gpu_uuid: str
    profile: str
    start: int
    size: int
    instance: MigInstance | None = None


def parse_mig_allocations(text: str) -> tuple[MigAllocation, ...]:
    """Raises AnnotationError."""
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise wrong(f"no JSON ({error})", text) from error
    if not isinstance(rows, list) or len(rows) > _INSTANCES_MAX:
        raise wrong("no list of MIG allocations", text)
    found = tuple(map(_allocation_of, rows))
    if len({(one.container, one.device) for one in found}) < len(found):
        raise wrong("one device of a container is named twice", text)
    return found


def _allocation_of(row: Any) -> MigAllocation:
    if not isinstance(row, dict) or not isinstance(row.get("placement", {}), dict):
        raise wrong("no MIG allocation", row)
    placement = row.get("placement", {})
    found = MigAllocation(
        _number(row, "containerIndex"),
        _number(row, "deviceIndex"),
        _text(row, "gpuUUID"),
        _text(row, "profile"),
        _number(placement, "start"),
        _number(placement, "size"),
    )
    if not found.size:
        raise wrong("a MIG allocation of size 0", row)
    present = [name for name in _RUNTIME if row.get(name) is not None and row.get(name) != ""]
    if not present:
        return found
    if len(present) < len(_RUNTIME):
        raise wrong(f"only {' and '.join(present)} of {', '.join(_RUNTIME)}", row)
    numbers = (_number(row, name) for name in _RUNTIME[1:])
    return found._replace(instance=MigInstance(_text(row, _RUNTIME[0]), *numbers))


def _number(row: dict[str, Any], name: str) -> int:
    value = row.get(name, 0)
    if type(value) is not int or not 0 <= value < 1 << 31:
        raise wrong(f"{name} is no whole number", value)
    return value


def _text(row: dict[str, Any], name: str) -> str:
    value = row.get(name, "")
    if not isinstance(value, str) or not value:
        raise wrong(f"{name} is no text", value)
    return value


def format_mig_allocations(allocations: Iterable[MigAllocation]) -> str:
    rows = []
    for one in allocations:
        row: dict[str, Any] = {
            "containerIndex": one.container,
            "deviceIndex": one.device,
            "gpuUUID": one.gpu_uuid,
            "profile": one.profile,
            "placement": {"start": one.start, "size": one.size},
        }
        if one.instance is not None:
            row |= dict(zip(_RUNTIME, one.instance, strict=True))
        rows.append(row)
    return json.dumps(rows, separators=(",", ":"), ensure_ascii=False)
