"""Changes of pods' limits: written to the journal, logged, given to the core, announced to clients.

A pod's limits come from several sources: a run, an operator, a user, the environment of a program, settings.
``core.limit_sources`` decides which source counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from nvshare.core import events
from nvshare.core.limit_sources import PodLimits
from nvshare.node.dispatcher import Dispatcher
from nvshare.node.journal import Entry, LimitsStated
from nvshare.runtime import logs
from nvshare.wire.messages import LIMIT_SOURCES

UNKNOWN_LIMITS: Final = PodLimits(memory_bytes=0, core_percent=0)
"""Of a client whose pod is not known: it keeps to the limits it already has."""


class LimitUpdates:
    """``record`` writes an entry to the journal; ``display`` returns what people call a pod."""

    def __init__(
        self, dispatcher: Dispatcher, record: Callable[[Entry], None], display: Callable[[str], str]
    ) -> None:
        self._dispatcher = dispatcher
        self._record = record
        self._display = display

    def of(self, pod: str) -> PodLimits:
        return self._dispatcher.scheduler.limits.of(pod)

    def set(self, change: events.LimitsSet, owner: str = logs.OPERATOR) -> PodLimits:
        """What one source states for a pod; the limits that then hold. Operators' tools look for these lines.

        Raises ValueError without any effect.
        """
        before, after = self.of(change.pod), self._dispatcher.scheduler.limits.after(*change)
        if self._dispatcher.scheduler.limits.from_source(change.pod, change.source) != change[2:]:
            self._record(LimitsStated(*change))
        self._log(change.pod, before, after, owner)
        self._dispatcher.announcing = owner  # each connection logs what it sends
        try:
            self._dispatcher.feed(change)
        finally:
            self._dispatcher.announcing = ""
        if (after.memory_source, after.core_source) != (before.memory_source, before.core_source):
            self._send_terms(change.pod)
        return after

    def withdraw(self, pod: str, sources: tuple[str, ...], owner: str = logs.OPERATOR) -> None:
        """Take back whatever these sources state for a pod."""
        for source in sources:
            if self._dispatcher.scheduler.limits.from_source(pod, source) != (None, None, None):
                self.set(events.LimitsSet(pod, source), owner)

    def terms(self, pod: str, gpu_key: str) -> tuple[int, int, int]:
        """The arguments of TERMS: who set the memory limit and the quota, and the GPU's memory."""
        limits, gpu = self.of(pod), self._dispatcher.scheduler.gpus.get(gpu_key)
        sources = (limits.memory_source, limits.core_source)
        memory_source, core_source = (LIMIT_SOURCES.index(source) for source in sources)
        return memory_source, core_source, gpu.resident_set.total_bytes if gpu is not None else 0

    def _log(self, pod: str, before: PodLimits, after: PodLimits, owner: str) -> None:
        info, pod = self._dispatcher.repeats.info, self._display(pod)
        if after.memory_bytes != before.memory_bytes:
            words = f"Memory limit changed for pod {pod}"
            figures = {"from_bytes": before.memory_bytes, "to_bytes": after.memory_bytes}
            info("Memory limit changed", owner, words, source=after.memory_source, **figures)
        if after.core_percent != before.core_percent:
            words = f"Compute limit changed for pod {pod}"
            figures = {"from_percent": before.core_percent, "to_percent": after.core_percent}
            info("Compute limit changed", owner, words, source=after.core_source, **figures)

    def _send_terms(self, pod: str) -> None:
        """To all clients of a pod."""
        for gpu in self._dispatcher.scheduler.gpus.values():
            tenant = gpu.tenants.get(pod)
            for client in tenant.clients if tenant is not None else ():
                connection = self._dispatcher.connections.get(client)
                if connection is not None:
                    connection.send_terms()
