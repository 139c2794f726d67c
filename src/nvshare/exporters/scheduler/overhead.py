"""Memory that the driver takes for a process beside its allocations.

The baseline follows the memory that NVML reports for the process, smoothed, but only while the process does
little and has little allocated: then nearly all of it is context and modules. For a process that was never
seen like that, it is the memory that NVML reports beside its allocations. It is kept within bounds that hold
for any GPU. A process that NVML has not reported has none.
"""

from __future__ import annotations

from typing import Final

LEAST_BYTES: Final = 256 << 20
MOST_BYTES: Final = 4 << 30
SMALL_BYTES: Final = 256 << 20
LIGHT_PERCENT: Final = 10
_WEIGHT_PERCENT: Final = 20


class Overheads:
    """The baseline of each client."""

    def __init__(self) -> None:
        self.baselines: dict[int, int] = {}

    def note(self, client: int, allocated_bytes: int, nvml_bytes: int, sm_percent: int | None) -> None:
        if allocated_bytes >= SMALL_BYTES or (sm_percent or 0) >= LIGHT_PERCENT:
            return
        before = self.baselines.get(client)
        smoothed = nvml_bytes if before is None else before + (nvml_bytes - before) * _WEIGHT_PERCENT // 100
        self._set(client, smoothed)

    def presume(self, client: int, beside_bytes: int | None) -> None:
        """The memory that NVML reports beside its allocations, if known; a measured baseline takes
        precedence.
        """
        if client not in self.baselines and beside_bytes is not None:
            self._set(client, beside_bytes)

    def _set(self, client: int, baseline_bytes: int) -> None:
        self.baselines[client] = min(MOST_BYTES, max(LEAST_BYTES, baseline_bytes))

    def forget(self, client: int) -> None:
        self.baselines.pop(client, None)
