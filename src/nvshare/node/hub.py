"""Feeds the core with events and performs its effects.

1. Events reach the core one after the other, never from within the performing of an effect. A connection that
   cannot take a message is ended by the loop's next round, so nothing here recurses.
2. The clock is CLOCK_MONOTONIC: steps of the wall clock are nobody's turn.
3. The loop's timers have whole milliseconds and may be early. A deadline's timer is rounded up and armed
   again when it was early, so the daemon never spins and is late by two milliseconds at most.
4. The timer is looked at once for all that one callback brings, and only if something may be due before it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from nvshare.core.account import NEVER
from nvshare.core.effects import Effect
from nvshare.core.events import Event, Woken
from nvshare.core.scheduler import Scheduler
from nvshare.node.counters import Counters

if TYPE_CHECKING:
    from nvshare.node.connection import Connection

NS_PER_MS: Final = 1_000_000
_WOKEN: Final = Woken()


class Hub:
    def __init__(
        self,
        scheduler: Scheduler,
        loop: asyncio.AbstractEventLoop,
        counters: Counters,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.scheduler = scheduler
        self.loop = loop
        self.counters = counters
        self.clock = clock
        self.told: dict[int, Connection] = {}  # by client id
        self.changed = False  # since the last checkpoint
        self._timer: asyncio.TimerHandle | None = None
        self._armed_ns = NEVER

    def feed(self, event: Event, now_ns: int) -> None:
        self.take(event, now_ns)
        self.arm(now_ns)

    def take(self, event: Event, now_ns: int) -> None:
        """One of several events; ``arm`` must follow the last."""
        effects = self.scheduler.handle(event, now_ns)
        self.changed = True
        if effects:
            self.perform(effects)

    def perform(self, effects: list[Effect]) -> None:
        told = self.told
        for effect in effects:
            receiver = told.get(effect[0])  # its client
            if receiver is not None:
                receiver.tell(effect)

    def arm(self, now_ns: int) -> None:
        """After anything the core was told."""
        if self.scheduler.deadline_bound_ns < self._armed_ns:
            deadline_ns = self.scheduler.next_deadline_ns()
            if deadline_ns is not None and deadline_ns < self._armed_ns:
                self._arm(deadline_ns, now_ns)

    def _arm(self, deadline_ns: int, now_ns: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        delay_ms = max(1, -((now_ns - deadline_ns) // NS_PER_MS))
        self._armed_ns = deadline_ns
        self._timer = self.loop.call_later(delay_ms / 1000, self._wake)

    def _wake(self) -> None:
        self._timer, self._armed_ns = None, NEVER
        now_ns = self.clock()
        deadline_ns = self.scheduler.next_deadline_ns()
        if deadline_ns is None:
            return
        if deadline_ns > now_ns:
            self._arm(deadline_ns, now_ns)
            return
        self.feed(_WOKEN, now_ns)
        self.counters.callbacks.add(self.clock() - now_ns)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
