"""Feeds the core with events and performs its effects.

1. Events reach the core one after the other, never from within the performing of an effect. A connection that
   cannot take a message is ended by the loop's next round, so nothing here recurses.
2. Effects are each receiver's own. One for who is gone is dropped and counted; one that cannot be told ends
   its receiver, and neither the rest of the list nor whoever caused it notices. Who was granted the GPU and
   cannot know it is disconnected in the core by the loop's next round, so that the GPU goes on.
3. The clock is CLOCK_MONOTONIC: steps of the wall clock are nobody's turn. An event's time is read here, when
   it is fed. Only a callback that brings many events reads it once for them, and again after anything that
   may have fed others meanwhile, so no event carries a time before the last one's.
4. The loop's timers have whole milliseconds and may be early. A deadline's timer is rounded up and armed
   again when it was early, so the daemon never spins and is late by two milliseconds at most.
5. The timer is looked at once for all that one callback brings, and only if something may be due before it.
6. A daemon that was stopped, or whose machine gave it no time, tells the core so before anything else: see
   ``core.policy.standstill``. Something of ours runs every PROBE_NS, so nothing for longer than STANDSTILL_NS
   is a standstill. It began when the first timer was due that did not fire. A loop that is merely busy is
   none, or whoever keeps it busy would be rewarded: time for which its thread had a processor is left out.
   CLOCK_MONOTONIC runs while the daemon is stopped. It does not while the machine is suspended, and neither
   do GPUs, nor the clocks of clients: nobody notices that. With CLOCK_BOOTTIME every suspension would look
   like a standstill.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from nvshare.core.account import NEVER
from nvshare.core.effects import Effect, Grant, Greet
from nvshare.core.events import ClientDisconnected, Event, StoodStill, Woken
from nvshare.core.notices import WHY
from nvshare.core.scheduler import Scheduler
from nvshare.node.counters import Counters
from nvshare.runtime import logs
from nvshare.runtime.loop_probe import PROBE_NS

if TYPE_CHECKING:
    from nvshare.node.connection import Connection

NS_PER_MS: Final = 1_000_000
STANDSTILL_NS: Final = 2 * PROBE_NS
_WOKEN: Final = Woken()
_BUGS_TOLD: Final = 100  # in full; all are counted


class Dispatcher:
    def __init__(
        self,
        scheduler: Scheduler,
        loop: asyncio.AbstractEventLoop,
        counters: Counters,
        clock: Callable[[], int] = time.monotonic_ns,
        worked: Callable[[], int] = time.thread_time_ns,
    ) -> None:
        self.scheduler = scheduler
        self.loop = loop
        self.counters = counters
        self.clock = clock
        self._worked = worked  # for how long the loop's thread had a processor
        self._worked_ns = 0  # what that was at the last probe
        self.connections: dict[int, Connection] = {}  # by client id
        self.changed = False  # since the last checkpoint
        self.gathering = False  # for a checkpoint: the GPUs in the books must stay
        self.announcing = ""  # whose word made the limits that are told now, which are to be in the log
        self._timer: asyncio.TimerHandle | None = None
        self._armed_ns = NEVER
        self._ran_ns = NEVER  # when the loop was last seen to run; NEVER: nobody looks yet
        self.repeats = logs.Repeats()  # for all lines that strangers can cause

    def feed(self, event: Event) -> None:
        now_ns = self.clock()
        self.take(event, now_ns)
        self.arm(now_ns)

    def take(self, event: Event, now_ns: int) -> None:
        """One of several events of a callback (rule 3); ``arm`` must follow the last."""
        if now_ns - self._ran_ns > STANDSTILL_NS:
            self._stood_still(now_ns)
        effects = self.scheduler.handle(event, now_ns)
        self.changed = True
        if effects:
            self.perform(effects)
        if self.scheduler.notices.waiting:
            self._tell_notices()

    def _tell_notices(self) -> None:
        """Pods that did what they should not."""
        for misdeed, pod, gpu in self.scheduler.notices.take():
            self.repeats.warning(misdeed.value, pod, pod=pod, gpu=gpu, why=WHY[misdeed])

    def perform(self, effects: list[Effect]) -> None:
        connections = self.connections
        rest = iter(effects)
        while True:
            try:
                for effect in rest:
                    receiver = connections.get(effect[0])  # its client
                    if receiver is not None:
                        receiver.tell(effect)
                    else:
                        self._undelivered(effect)
                return
            except Exception as error:
                self.note_bug(f"telling {type(effect).__name__} to {effect[0]:016x}", error)
                self._end_receiver(effect)

    def _end_receiver(self, effect: Effect) -> None:
        """It was not told what the core thinks it was: whatever else it hears would be wrong."""
        receiver = self.connections.pop(effect[0], None)
        self._undelivered(effect)
        if receiver is not None:
            receiver.ended_by = "fault"
            receiver.abort()

    def _undelivered(self, effect: Effect) -> None:
        self.counters.events["effects_undelivered"] += 1
        if isinstance(effect, Grant | Greet):
            self.loop.call_soon(self._take_back, effect.client)

    def _take_back(self, client: int) -> None:
        """A grant nobody has heard of."""
        self.counters.events["grants_lost"] += 1
        self.feed(ClientDisconnected(client))

    def forget_gpu(self, key: str) -> bool:
        """Take a GPU out of the books, if nobody is in them who has a client there, a debt, or may return."""
        gpu = self.scheduler.gpus.get(key)
        if gpu is not None and (gpu.tenants or self.gathering):
            return False
        self.scheduler.gpus.pop(key, None)
        return True

    def note_bug(self, where: str, error: BaseException | None) -> None:
        """Something raised that must not: told in full the first times, counted always."""
        self.counters.events["callback_raised"] += 1
        if self.counters.events["callback_raised"] <= _BUGS_TOLD:
            logs.LOGGER.error("callback raised: %s", where, exc_info=error)
        else:
            self.repeats.warning("callback raised", logs.OURSELVES, where=where, why=repr(error))

    def probe(self, now_ns: int) -> None:
        """Called every PROBE_NS, from when the loop runs on (rule 6)."""
        self._ran_ns = min(self._ran_ns, now_ns)
        self.arm(now_ns)
        self._worked_ns = self._worked()

    def _stood_still(self, now_ns: int) -> None:
        """Or was it busy with something that nobody tells us of, like a flood of requests for metrics?"""
        worked_ns = self._worked() - self._worked_ns
        since_ns = max(self._ran_ns, min(self._armed_ns, self._ran_ns + PROBE_NS)) + worked_ns
        self._ran_ns = now_ns
        self._worked_ns += worked_ns
        if now_ns - since_ns <= PROBE_NS:
            return
        self.counters.standstills.add(now_ns - since_ns)
        words = "the daemon was held up; nobody is billed for that time"
        self.repeats.warning("stood still", logs.OURSELVES, words, ms=(now_ns - since_ns) // NS_PER_MS)
        self.perform(self.scheduler.handle(StoodStill(since_ns), now_ns))

    def arm(self, now_ns: int) -> None:
        """After anything the core was told."""
        late_ns = now_ns - self._ran_ns
        if late_ns > STANDSTILL_NS:
            self._stood_still(now_ns)
        if late_ns > 0:
            self._ran_ns = now_ns
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
        self.take(_WOKEN, now_ns)
        self.arm(now_ns)
        self.counters.callbacks.add(self.clock() - now_ns)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
