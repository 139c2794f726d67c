"""How much of the clients' memory is not on the GPU.

1. For a process NVML counts what the driver takes for it (context and modules) and what is on the GPU of its
   allocations. While nothing is paged out, the driver's part is the difference to its allocations.
2. The driver's part is learned when two samples in a row find the same amount allocated; otherwise the
   figures are of different moments. While clients have more allocated than fits, some of it may be paged out,
   and the difference may be too small: then the learned figure only rises.
3. For a process without a learned figure the least of another process on the same GPU is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nvshare.exporters.steps import Steps


class Look(NamedTuple):
    """One client in one sample of NVML."""

    client: int
    allocated_bytes: int
    nvml_bytes: int


class _Known(NamedTuple):
    allocated_bytes: int
    driver_bytes: int | None


class Paging:
    """By GPU, what is known of its clients."""

    def __init__(self) -> None:
        self._known: dict[str, dict[int, _Known]] = {}

    def driver_bytes(self, gpu: str, client: int) -> int | None:
        """What the driver takes for a process, as far as it was learned."""
        known = self._known.get(gpu, {}).get(client)
        return None if known is None else known.driver_bytes

    def paged_out_bytes(self, gpu: str, looks: Sequence[Look], fits: bool) -> Steps[int]:
        """Of all that these, who are all of a GPU, have allocated; ``fits``: that can be on it at once."""
        before = self._known.get(gpu, {})
        known: dict[int, _Known] = {}
        found_bytes: list[int] = []
        for look in looks:
            learned = known[look.client] = _learn(look, before.get(look.client), fits)
            if learned.driver_bytes is not None:
                found_bytes.append(learned.driver_bytes)
            yield None
        self._known[gpu] = known
        least_bytes = min(found_bytes, default=0)
        paged_out_bytes = 0
        for look in looks:
            driver_bytes = known[look.client].driver_bytes
            resident_bytes = max(0, look.nvml_bytes - (least_bytes if driver_bytes is None else driver_bytes))
            paged_out_bytes += max(0, look.allocated_bytes - resident_bytes)
            yield None
        return paged_out_bytes


def _learn(look: Look, before: _Known | None, fits: bool) -> _Known:
    driver_bytes = None if before is None else before.driver_bytes
    steady = before is not None and before.allocated_bytes == look.allocated_bytes
    found_bytes = look.nvml_bytes - look.allocated_bytes
    if steady and found_bytes >= 0:
        driver_bytes = found_bytes if fits else max(found_bytes, driver_bytes or 0)
    return _Known(look.allocated_bytes, driver_bytes)
