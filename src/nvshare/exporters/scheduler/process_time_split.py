"""GPU time that NVML reports for a process, divided among its clients on that GPU.

A process usually has one client there. With several, its time is divided in proportion to what they have
reported since the last sample, or evenly if none has. The sum is what NVML reports.
"""

from __future__ import annotations

from collections.abc import Sequence

from nvshare.core.client import Client


class ProcessTimeSplit:
    def __init__(self) -> None:
        self._reported_ns: dict[int, int] = {}  # by client, as of the last sample; only clients with siblings

    def divide(self, clients: Sequence[Client], worked_ns: int) -> list[tuple[int, int]]:
        if len(clients) == 1:
            return [(clients[0].key, worked_ns)]
        weights = [max(0, c.work.reported_ns - self._reported_ns.get(c.key, 0)) for c in clients]
        self._reported_ns.update((c.key, c.work.reported_ns) for c in clients)
        if not any(weights):
            weights = [1] * len(clients)
        parts_ns = [worked_ns * weight // sum(weights) for weight in weights]
        parts_ns[weights.index(max(weights))] += worked_ns - sum(parts_ns)
        return [(client.key, part_ns) for client, part_ns in zip(clients, parts_ns, strict=True)]

    def known(self) -> list[int]:
        return list(self._reported_ns)

    def forget(self, client: int) -> None:
        del self._reported_ns[client]
