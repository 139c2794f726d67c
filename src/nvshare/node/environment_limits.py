"""Memory limits that the environments of programs state in REGISTER.

1. A pod's latest statement counts, until the pod's last process ends.
2. All clients of a pod are sent a new limit. In a pod of more than FEW_CLIENTS clients it does not change
   again before a pause in proportion to their number; then the latest statement is taken. A client that
   registers meanwhile gets the limit in force. So nobody can make the daemon notify a large pod again and
   again by registering.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from nvshare.core.events import LimitsSet
from nvshare.core.limits import MEMORY_MAX_BYTES
from nvshare.node.dispatcher import Dispatcher

SOURCE: Final = "env"
FEW_CLIENTS: Final = 8
PER_CLIENT_NS: Final = 4_000_000


class EnvironmentLimits:
    def __init__(
        self,
        dispatcher: Dispatcher,
        clients_of: Callable[[str], int],
        set_limits: Callable[[LimitsSet, str], object],
    ) -> None:
        """``clients_of`` returns how many clients a pod has."""
        self._dispatcher = dispatcher
        self._clients_of = clients_of
        self._set_limits = set_limits
        self._waiting: dict[str, tuple[LimitsSet, str] | None] = {}  # by pod, during its pause

    def state(self, pod: str, memory_bytes: int, owner: str) -> None:
        change = LimitsSet(pod, SOURCE, min(memory_bytes, MEMORY_MAX_BYTES))
        if pod in self._waiting:
            self._waiting[pod] = (change, owner)
        elif self._dispatcher.scheduler.limits.said_by(pod, SOURCE) != change[2:]:
            self._apply(change, owner)

    def withdraw(self, pod: str, owner: str) -> None:
        """The pod's last process has ended."""
        if pod in self._waiting:
            self._waiting[pod] = None
        if self._dispatcher.scheduler.limits.said_by(pod, SOURCE) != (None, None, None):
            self._set_limits(LimitsSet(pod, SOURCE), owner)

    def _apply(self, change: LimitsSet, owner: str) -> None:
        clients = self._clients_of(change.pod)
        if clients > FEW_CLIENTS:
            self._waiting[change.pod] = None
            self._dispatcher.loop.call_later(clients * PER_CLIENT_NS / 1e9, self._pause_over, change.pod)
        self._set_limits(change, owner)

    def _pause_over(self, pod: str) -> None:
        waiting = self._waiting.pop(pod)
        if waiting is not None:
            self.state(pod, waiting[0].memory_bytes or 0, waiting[1])
