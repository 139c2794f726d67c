"""Feeds the core with events and performs its effects.

1. Events reach the core one after the other, never while an effect is being performed. A connection that
   cannot take a message is ended in the loop's next round, so nothing here recurses.
2. Each effect concerns one receiver. An effect for a client that is gone is dropped and counted. An effect
   that cannot be delivered ends its receiver; neither the other receivers nor the sender of the event notice.
   A client that cannot learn of its grant is disconnected in the core in the loop's next round, so that the
   GPU does not stay idle.
3. The clock is CLOCK_MONOTONIC, so that steps of the wall clock change no turn. The time of an event is read
   here, when it is fed. A callback with many events reads it once for all, and again after anything that may
   have fed other events, so that event times never decrease.
4. The loop's timers have whole milliseconds and may be early. A deadline's timer is rounded up, and armed
   again if it was early. So the daemon never spins and is late by two milliseconds at most.
5. The timer is checked once per callback, and only if something may be due before it.
6. A daemon that was stopped, or got no processor, tells the core before anything else: see
   ``core.policy.standstill``. A probe runs every PROBE_NS, so a pause longer than STANDSTILL_NS is a
   standstill. It began when the first timer that did not fire was due. A busy loop is no standstill, or
   clients that keep it busy would profit: time for which its thread had a processor is left out.
   CLOCK_MONOTONIC runs while the daemon is stopped. It stands still while the machine is suspended, as do
   GPUs and clients' clocks. With CLOCK_BOOTTIME every suspension would look like a standstill.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from nvshare.core.account import NEVER
from nvshare.core.effects import Effect, Grant, Greet
from nvshare.core.events import ClientDisconnected, Event, StoodStill, Woken
from nvshare.core.scheduler import Scheduler
from nvshare.core.violations import WHY
from nvshare.node.counters import Counters
from nvshare.runtime import logs
from nvshare.runtime.loop_probe import PROBE_NS

if TYPE_CHECKING:
    from nvshare.node.connection import Connection

NS_PER_MS: Final = 1_000_000
STANDSTILL_NS: Final = 2 * PROBE_NS
_WOKEN: Final = Woken()
_BUGS_LOGGED: Final = 100  # logged in full; all are counted


class Dispatcher:
    def __init__(
        self,
        scheduler: Scheduler,
        loop: asyncio.AbstractEventLoop,
        counters: Counters,
        clock: Callable[[], int] = time.monotonic_ns,
        processor_time: Callable[[], int] = time.thread_time_ns,
    ) -> None:
        self.scheduler = scheduler
        self.loop = loop
        self.counters = counters
        self.clock = clock
        self._processor_time = processor_time  # for how long the loop's thread has had a processor
        self._processor_ns = 0  # the same, at the last probe
        self.connections: dict[int, Connection] = {}  # by client id
        self.changed = False  # since the last checkpoint
        self.gathering = False  # for a checkpoint: the core must keep its GPUs
        self.announcing = ""  # the owner whose change of limits is being sent, which is logged
        self._timer: asyncio.TimerHandle | None = None
        self._armed_ns = NEVER
        self._ran_ns = NEVER  # when the loop last ran; NEVER: the probe has not started
        self.repeats = logs.Repeats()  # for all lines that strangers can cause

    def feed(self, event: Event) -> None:
        now_ns = self.clock()
        self.take(event, now_ns)
        self.arm(now_ns)

    def take(self, event: Event, now_ns: int) -> None:
        """One of several events of a callback (rule 3); call ``arm`` after the last."""
        if now_ns - self._ran_ns > STANDSTILL_NS:
            self._stood_still(now_ns)
        effects = self.scheduler.handle(event, now_ns)
        self.changed = True
        if effects:
            self.perform(effects)
        if self.scheduler.notices.waiting:
            self._log_misconduct()

    def _log_misconduct(self) -> None:
        """Log the misconduct of pods."""
        for violation, pod, gpu in self.scheduler.notices.take():
            self.repeats.warning(violation.value, pod, pod=pod, gpu=gpu, why=WHY[violation])

    def perform(self, effects: list[Effect]) -> None:
        connections = self.connections
        rest = iter(effects)
        while True:
            try:
                for effect in rest:
                    receiver = connections.get(effect[0])  # its client
                    if receiver is not None:
                        receiver.deliver(effect)
                    else:
                        self._undelivered(effect)
                return
            except Exception as error:
                self.note_bug(f"delivering {type(effect).__name__} to {effect[0]:016x}", error)
                self._end_receiver(effect)

    def _end_receiver(self, effect: Effect) -> None:
        """It missed an effect that the core counts on, so whatever it hears later would be wrong."""
        receiver = self.connections.pop(effect[0], None)
        self._undelivered(effect)
        if receiver is not None:
            receiver.ended_by = "fault"
            receiver.abort()

    def _undelivered(self, effect: Effect) -> None:
        self.counters.events["effects_undelivered"] += 1
        if isinstance(effect, Grant | Greet):
            self.loop.call_soon(self._revoke_grant, effect.client)

    def _revoke_grant(self, client: int) -> None:
        """Its grant was never delivered."""
        self.counters.events["grants_lost"] += 1
        self.feed(ClientDisconnected(client))

    def forget_gpu(self, key: str) -> bool:
        """Remove a GPU from the core, unless a tenant there has a client, a debt, or may return."""
        gpu = self.scheduler.gpus.get(key)
        if gpu is not None and (gpu.tenants or self.gathering):
            return False
        self.scheduler.gpus.pop(key, None)
        return True

    def note_bug(self, where: str, error: BaseException | None) -> None:
        """An exception that must not happen: logged in full the first times, counted always."""
        self.counters.events["callback_raised"] += 1
        if self.counters.events["callback_raised"] <= _BUGS_LOGGED:
            logs.LOGGER.error("callback raised: %s", where, exc_info=error)
        else:
            self.repeats.warning("callback raised", logs.OURSELVES, where=where, why=repr(error))

    def probe(self, now_ns: int) -> None:
        """Called every PROBE_NS (rule 6)."""
        self._ran_ns = min(self._ran_ns, now_ns)
        self.arm(now_ns)
        self._processor_ns = self._processor_time()

    def _stood_still(self, now_ns: int) -> None:
        """Unless the loop was busy with work that the core does not see, such as a flood of HTTP requests."""
        processor_ns = self._processor_time() - self._processor_ns
        since_ns = max(self._ran_ns, min(self._armed_ns, self._ran_ns + PROBE_NS)) + processor_ns
        self._ran_ns = now_ns
        self._processor_ns += processor_ns
        if now_ns - since_ns <= PROBE_NS:
            return
        self.counters.standstills.add(now_ns - since_ns)
        words = "the daemon was held up; nobody is billed for that time"
        self.repeats.warning("stood still", logs.OURSELVES, words, ms=(now_ns - since_ns) // NS_PER_MS)
        self.perform(self.scheduler.handle(StoodStill(since_ns), now_ns))

    def arm(self, now_ns: int) -> None:
        """Call it after every event or series of events."""
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
