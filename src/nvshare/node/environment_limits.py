"""Memory limits that the environments of programs state in REGISTER.

1. A pod's latest statement counts, until the pod's last process ends.
2. A large pod's limit changes only after a pause (``limit_pauses``); then the latest statement is taken. A
   client that registers meanwhile gets the limit in force. So nobody can make the daemon notify a large pod
   again and again by registering.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from nvshare.core.events import LimitsSet
from nvshare.core.limit_sources import MEMORY_MAX_BYTES
from nvshare.node.dispatcher import Dispatcher
from nvshare.node.limit_pauses import LimitPauses

SOURCE: Final = "env"


class EnvironmentLimits:
    def __init__(
        self, dispatcher: Dispatcher, pauses: LimitPauses, set_limits: Callable[[LimitsSet, str], object]
    ) -> None:
        self._dispatcher = dispatcher
        self._pauses = pauses
        self._set_limits = set_limits

    def state(self, pod: str, memory_bytes: int, owner: str) -> None:
        change = LimitsSet(pod, SOURCE, min(memory_bytes, MEMORY_MAX_BYTES))
        if pod in self._pauses:
            self._pauses.when_over(pod, SOURCE, partial(self.state, pod, memory_bytes, owner))
        elif self._dispatcher.scheduler.limits.from_source(pod, SOURCE) != change[2:]:
            self._pauses.may_change(pod)
            self._set_limits(change, owner)

    def withdraw(self, pod: str, owner: str) -> None:
        """The pod's last process has ended."""
        if pod in self._pauses:
            self._pauses.when_over(pod, SOURCE, None)
        if self._dispatcher.scheduler.limits.from_source(pod, SOURCE) != (None, None, None):
            self._set_limits(LimitsSet(pod, SOURCE), owner)
