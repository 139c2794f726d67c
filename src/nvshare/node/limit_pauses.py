"""Pauses between changes of a pod's limits that its own processes, its user or its annotations ask for.

All clients of a pod are sent a new limit. In a pod of more than FEW_CLIENTS clients, the next change has to
wait for a time in proportion to their number, so that nobody can keep the daemon busy by changing limits.

Annotations change at any rate, in pods of any size, and are to hold soon. So their next change has to wait
for less time, but in small pods too, and for longer the more pods there are whose limits change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from nvshare.node.dispatcher import Dispatcher

FEW_CLIENTS: Final = 8
PER_CLIENT_NS: Final = 4_000_000
PER_CLIENT_ANNOTATED_NS: Final = 600_000
"""To tell a client takes about 40 us: so all annotations together take some 7 % of a core at most."""
LEAST_ANNOTATED_NS: Final = 50_000_000


class LimitPauses:
    def __init__(self, dispatcher: Dispatcher, clients_of: Callable[[str], int]) -> None:
        """``clients_of`` returns how many clients a pod has."""
        self._dispatcher = dispatcher
        self._clients_of = clients_of
        self._over: dict[str, dict[str, Callable[[], None]]] = {}  # by pod and source, what to do then

    def may_change(self, pod: str) -> bool:
        """Whether a change is permitted now; if so, the pod's next pause begins."""
        clients = self._clients_of(pod)
        return self._begin(pod, clients * PER_CLIENT_NS if clients > FEW_CLIENTS else 0)

    def may_annotate(self, pod: str) -> bool:
        """The same for a change of annotations."""
        clients = self._clients_of(pod)
        cost_ns = clients * PER_CLIENT_ANNOTATED_NS * (len(self._over) + 1)
        return self._begin(pod, max(LEAST_ANNOTATED_NS, cost_ns) if clients else 0)

    def _begin(self, pod: str, pause_ns: int) -> bool:
        if pod in self._over:
            return False
        if pause_ns:
            self._over[pod] = {}
            self._dispatcher.loop.call_later(pause_ns / 1e9, self._end, pod)
        return True

    def when_over(self, pod: str, source: str, action: Callable[[], None] | None) -> None:
        """Instead of an earlier action of the same source; only during a pause."""
        self._over[pod].pop(source, None)
        if action is not None:
            self._over[pod][source] = action

    def __contains__(self, pod: str) -> bool:
        return pod in self._over

    def _end(self, pod: str) -> None:
        for action in self._over.pop(pod).values():
            action()
