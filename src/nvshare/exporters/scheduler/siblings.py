"""What NVML tells of a process, divided among its clients on that GPU.

A process is one client there, as a rule. Where it is several, its work is divided as they have told of theirs
since the last look, or evenly if none has: in all it is what NVML tells, and never that for each of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from nvshare.core.client import Client


class Siblings:
    def __init__(self) -> None:
        self._told_ns: dict[int, int] = {}  # by client, at the last look; of those that have siblings

    def divide(self, clients: Sequence[Client], worked_ns: int) -> list[tuple[int, int]]:
        if len(clients) == 1:
            return [(clients[0].key, worked_ns)]
        weights = [max(0, c.work.told_ns - self._told_ns.get(c.key, 0)) for c in clients]
        self._told_ns.update((c.key, c.work.told_ns) for c in clients)
        if not any(weights):
            weights = [1] * len(clients)
        parts_ns = [worked_ns * weight // sum(weights) for weight in weights]
        parts_ns[weights.index(max(weights))] += worked_ns - sum(parts_ns)
        return [(client.key, part_ns) for client, part_ns in zip(clients, parts_ns, strict=True)]

    def known(self) -> list[int]:
        return list(self._told_ns)

    def forget(self, client: int) -> None:
        del self._told_ns[client]
