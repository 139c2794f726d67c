"""Memory limits that clients' environments state, each with its REGISTER.

1. A pod's newest word counts, and ends with the pod's last process.
2. A limit is told to all of the pod. In a pod of more than FEW it is not changed again before a while has
   passed that is in proportion to their number; then the newest word is taken. Who comes meanwhile is told
   what holds. So nobody can have a crowd told again and again by registering.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from nvshare.core.events import LimitsSet
from nvshare.core.limits import MEMORY_MAX_BYTES
from nvshare.node.dispatcher import Dispatcher

SOURCE: Final = "env"
FEW: Final = 8
EACH_NS: Final = 4_000_000


class EnvironmentLimits:
    def __init__(
        self,
        dispatcher: Dispatcher,
        clients_of: Callable[[str], int],
        set_limits: Callable[[LimitsSet, str], object],
    ) -> None:
        """``clients_of`` tells how many a pod has."""
        self._dispatcher = dispatcher
        self._clients_of = clients_of
        self._set_limits = set_limits
        self._waiting: dict[str, tuple[LimitsSet, str] | None] = {}  # by pod, while nothing is to change

    def state(self, pod: str, memory_bytes: int, owner: str) -> None:
        word = LimitsSet(pod, SOURCE, min(memory_bytes, MEMORY_MAX_BYTES))
        if pod in self._waiting:
            self._waiting[pod] = (word, owner)
        elif self._dispatcher.scheduler.limits.said_by(pod, SOURCE) != word[2:]:
            self._apply(word, owner)

    def withdraw(self, pod: str, owner: str) -> None:
        """Its last process has gone."""
        if pod in self._waiting:
            self._waiting[pod] = None
        if self._dispatcher.scheduler.limits.said_by(pod, SOURCE) != (None, None, None):
            self._set_limits(LimitsSet(pod, SOURCE), owner)

    def _apply(self, word: LimitsSet, owner: str) -> None:
        clients = self._clients_of(word.pod)
        if clients > FEW:
            self._waiting[word.pod] = None
            self._dispatcher.loop.call_later(clients * EACH_NS / 1e9, self._pause_over, word.pod)
        self._set_limits(word, owner)

    def _pause_over(self, pod: str) -> None:
        waiting = self._waiting.pop(pod)
        if waiting is not None:
            self.state(pod, waiting[0].memory_bytes or 0, waiting[1])
