"""Clients of Kubernetes pods that the API server has not named yet, or not their namespaces.

1. The kubelet learns of a pod before we do, so its first client may come too early. It waits for a moment
   (``unknown_pod_ns``), and so do others of the same pod, until the pod and what its namespace says are known
   or that moment is over.
2. Then ``NVSHARE_UNKNOWN_POD`` decides. ``unlimited``: the client registers, and is told its limits when they
   come; the pod's next clients do not wait any more. ``wait``: it is refused with a reason that makes it ask
   again, while its program stands at the gate.
3. Those that wait are connections that have not registered, and are bounded as such.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from nvshare.node.dispatcher import Dispatcher

POD_UNKNOWN: Final = "pod_unknown"
"""A refusal that ends by itself."""
_EXCUSED_MAX: Final = 4096
Resume = Callable[[bool], None]
"""Goes on with a registration; the argument: whether it may go on although its pod is not known."""


class UnknownPods:
    def __init__(self, dispatcher: Dispatcher, wait_ns: int) -> None:
        self._dispatcher = dispatcher
        self._wait_ns = wait_ns
        self._waiting: dict[str, list[Resume]] = {}  # by UID
        self._excused: dict[str, None] = {}  # UIDs of pods that need not wait any more
        self.strict = False  # wait, rather than unlimited

    def must_wait(self, uid: str, resume: Resume) -> bool:
        """Whether the registration goes on later, by ``resume``."""
        if uid in self._excused and not self.strict:
            return False
        waiting = self._waiting.get(uid)
        if waiting is None:
            waiting = self._waiting[uid] = []
            self._dispatcher.loop.call_later(self._wait_ns / 1e9, self._over, uid, waiting)
        waiting.append(resume)
        return True

    def waiting(self) -> list[str]:
        """UIDs of pods."""
        return list(self._waiting)

    def became_known(self, uid: str) -> None:
        self._excused.pop(uid, None)
        self._go_on(uid, True)

    def _over(self, uid: str, waiting: list[Resume]) -> None:
        """Rule 2."""
        if self._waiting.get(uid) is not waiting:
            return  # it became known, and others may wait for another pod's sake
        if not self.strict:
            if len(self._excused) >= _EXCUSED_MAX:
                self._excused.clear()
            self._excused[uid] = None
            self._dispatcher.counters.events["pods_started_unknown"] += 1
        self._go_on(uid, not self.strict)

    def _go_on(self, uid: str, permitted: bool) -> None:
        """Each in a callback of its own: there may be hundreds."""
        for resume in self._waiting.pop(uid, ()):
            self._dispatcher.loop.call_soon(partial(resume, permitted))
