"""A modelled process: launches kernels as its program says, and keeps the protocol with the core.

What it does at a gate is what the interposer does: asks when it finds the gate closed, drains what
it has in flight after a DROP, reports busy time and gaps. It keeps ``in_flight_ns`` of work
launched ahead, one kernel at least; if asked to keep its queue short, it waits for each small batch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from nvshare.core import events
from nvshare.sim.device import ENDLESS
from nvshare.sim.kernel_work import Work

if TYPE_CHECKING:
    from nvshare.sim.world import Tenancy, World

GAP_NS: Final = 2_000_000
SHALLOW_NS: Final = 300_000
TURNAROUND_NS: Final = 20_000
REPORT_EVERY_NS: Final = 50_000_000
UNGATED_AFTER_NS: Final = 10_000_000_000


class Process:
    """One client of the core, on one GPU, whose program always has more to launch."""

    def __init__(self, world: World, tenancy: Tenancy, key: int, work: Work) -> None:
        self.world = world
        self.tenancy = tenancy
        self.device = tenancy.device
        self.key = key
        self.pod = tenancy.spec.name
        self.work = work
        self.meter = tenancy.meter
        self.version = tenancy.spec.protocol
        self.program = tenancy.spec.program
        self.used_bytes = tenancy.spec.memory_bytes // tenancy.spec.processes
        self.position_ns = 0
        self.demand_ns = 0
        self.gate_open = False
        self.asked = False  # a request is on its way or pending
        self.asked_ns = 0
        self.draining = False
        self.busy_ns = 0
        self.busy_since_ns = -1
        self.idle_since_ns = 0
        self.idle_reported = False
        self.paused = False
        self.stopped = False
        self.alive = True
        self.ignores_drop = self.drop_unheeded = False
        self.shallow = False
        self.others_wait = False
        self.missed: list[Callable[[int], None]] = []  # what came while it was stopped
        self.sent_ns = self.told_ns = 0  # the last message each way: they do not overtake each other

    # ---- what the world calls ----------------------------------------------------------------

    def start(self, now_ns: int) -> None:
        self.meter.wants(now_ns, True)
        self.want(now_ns)

    def pause(self, now_ns: int) -> None:
        """An idle phase begins: finish what is in flight and leave."""
        self.paused = True
        self.meter.wants(now_ns, False)
        if self.gate_open and not self.stopped:
            self._close_gate(now_ns)

    def unpause(self, now_ns: int) -> None:
        self.paused = False
        if self.alive:
            self.start(now_ns)

    def pod_bytes(self) -> int:
        return self.tenancy.pod_bytes

    def want(self, now_ns: int) -> None:
        """The program has something to launch and finds the gate closed."""
        if self.gate_open or self.asked or self.paused or self.stopped or not self.alive:
            return
        self.asked = True
        self.asked_ns = now_ns
        self.world.send(self, events.LockRequested(self.key), now_ns)

    def granted(self, now_ns: int) -> None:
        if not self.alive:
            return
        if self.stopped:
            self.missed.append(self.granted)
            return
        if self.asked:
            self.tenancy.waits.add(now_ns - self.asked_ns)
        self.asked = self.drop_unheeded = False
        if not self.held():
            self.idle_since_ns = now_ns - GAP_NS  # the time between two turns is no gap of this one
        self.gate_open = True
        self.draining = False
        self.launch(now_ns)

    def dropped(self, now_ns: int) -> None:
        if not self.alive:
            return
        if self.ignores_drop:
            self.drop_unheeded = True
            return
        if self.stopped:
            self.missed.append(self.dropped)
            return
        if self.gate_open:
            self._close_gate(now_ns)

    def greeted(self, now_ns: int) -> None:
        self.granted(now_ns)
        self.dropped(now_ns)

    def _close_gate(self, now_ns: int) -> None:
        """Launch nothing more, and let go when what is in flight has completed."""
        self.device.catch_up(now_ns)
        self.gate_open = False
        self.draining = True
        self.stop_launching(now_ns)
        if self.demand_ns <= self.position_ns:
            self.drained(now_ns)

    def daemon_gone(self, now_ns: int) -> None:
        """Nobody else can be granted the GPU while there is no daemon: who had it last goes on."""
        if self.draining and self.alive and not self.stopped and self.wants_more():
            self.draining = False
            self.gate_open = True
            self.launch(now_ns)

    def stop(self, now_ns: int) -> None:
        """SIGSTOP: what was launched goes on, nothing else does."""
        self.device.catch_up(now_ns)
        self.stopped = True
        if self.gate_open:
            self.stop_launching(now_ns)

    def cont(self, now_ns: int) -> None:
        self.stopped = False
        missed, self.missed = self.missed, []
        for message in missed:
            message(now_ns)
        if self.draining and self.demand_ns <= self.position_ns:
            self.drained(now_ns)
        elif self.gate_open:
            self.launch(now_ns)
        else:
            self.want(now_ns)

    def heed(self, now_ns: int) -> None:
        """It ignored DROP for a while, and no longer does."""
        self.ignores_drop = False
        if self.drop_unheeded:
            self.drop_unheeded = False
            self.dropped(now_ns)

    def hinted(self, others_wait: bool, shallow: bool, now_ns: int) -> None:
        self.others_wait = others_wait
        if shallow and not self.shallow and self.gate_open:
            self.device.catch_up(now_ns)
            self.stop_launching(now_ns)
        self.shallow = shallow

    def current_busy_ns(self, now_ns: int) -> int:
        return self.busy_ns + (now_ns - self.busy_since_ns if self.busy_since_ns >= 0 else 0)

    def die(self, now_ns: int) -> None:
        self.device.catch_up(now_ns)
        self.alive = False
        self.demand_ns = self.position_ns
        self.device.work(self, now_ns)
        self.meter.wants(now_ns, False)

    def held(self) -> bool:
        return self.gate_open or self.draining

    # ---- the program -------------------------------------------------------------------------

    def launch(self, now_ns: int) -> None:
        """Keep the GPU fed for as long as the gate is open."""
        self._busy(now_ns)
        self.demand_ns = self._ahead(SHALLOW_NS) if self.shallow else ENDLESS
        self.device.work(self, now_ns)

    def _ahead(self, ahead_ns: int) -> int:
        """One kernel, or as many as fit in that much."""
        one = self.work.end_after(self.position_ns)
        return max(one, self.work.end_within(self.position_ns, ahead_ns))

    def stop_launching(self, now_ns: int) -> None:
        """What is in flight now is all there will be."""
        if self.demand_ns == ENDLESS:
            self.demand_ns = self._ahead(self.program.in_flight_ns)
            self.device.work(self, now_ns)

    def _relaunch(self, now_ns: int) -> None:
        if self.gate_open and self.alive and not self.stopped and self.demand_ns <= self.position_ns:
            self.launch(now_ns)

    def work_done(self, now_ns: int) -> None:
        """All that was launched has completed."""
        self._not_busy(now_ns)
        if self.draining and not self.stopped and self.alive:
            self.drained(now_ns)
        elif self.gate_open and not self.stopped:
            self.world.at(now_ns + TURNAROUND_NS, self._relaunch)

    def wants_more(self) -> bool:
        return not self.paused

    def drained(self, now_ns: int) -> None:
        self.draining = False
        again = self.wants_more()
        self.release(now_ns, again)

    def release(self, now_ns: int, again: bool) -> None:
        self.gate_open = False
        self.idle_reported = False
        if again:
            self.asked = True
            self.asked_ns = now_ns
        if self.version >= 3:
            kernel_ns = self.work.longest_ns
            self.world.send(self, events.LockReleased(self.key, self.busy_ns, kernel_ns, again), now_ns)
        else:
            self.world.send(self, events.LockReleased(self.key), now_ns)
            if again:
                self.world.send(self, events.LockRequested(self.key), now_ns)

    # ---- the client's own bill ---------------------------------------------------------------

    def _busy(self, now_ns: int) -> None:
        if self.busy_since_ns >= 0:
            return
        gap_ns = now_ns - self.idle_since_ns
        if self.gate_open and 0 < gap_ns < GAP_NS and self.busy_ns:
            self.busy_ns += gap_ns
        self.busy_since_ns = now_ns

    def _not_busy(self, now_ns: int) -> None:
        if self.busy_since_ns >= 0:
            self.busy_ns += now_ns - self.busy_since_ns
            self.busy_since_ns = -1
            self.idle_since_ns = now_ns


class PacedProcess(Process):
    """Launches some work, waits for it, computes on the host or waits for its next period."""

    def __init__(self, world: World, tenancy: Tenancy, key: int, work: Work) -> None:
        super().__init__(world, tenancy, key, work)
        self.batch_ns = self.program.batch_ns or self.program.kernel_ns[1]
        self.pending = False  # a batch is ready to be launched
        self.next_ns = 0
        self.done = 0
        self.turn = 0  # of the idle timer
        self.reported_ns = 0

    def start(self, now_ns: int) -> None:
        self.next_ns = now_ns
        self._batch(now_ns)

    def _batch(self, now_ns: int) -> None:
        """The host has the next batch ready."""
        if not self.alive:
            return
        self.pending = True
        self.meter.wants(now_ns, True)
        if self.gate_open and not self.stopped:
            self.launch(now_ns)
        else:
            self.want(now_ns)

    def launch(self, now_ns: int) -> None:
        if not self.pending:
            return
        self.pending = False
        self.turn += 1
        if self.idle_reported:
            self.idle_reported = False
            self.world.send(self, events.BusyReported(self.key, self.busy_ns, 0), now_ns)
        self._busy(now_ns)
        self.demand_ns = self.position_ns + self.batch_ns
        self.device.work(self, now_ns)

    def stop_launching(self, now_ns: int) -> None:
        """A batch that was launched runs to its end."""

    def work_done(self, now_ns: int) -> None:
        self._not_busy(now_ns)
        self.done += 1
        self.meter.wants(now_ns, False)
        if self.program.period_ns:
            self.next_ns = max(now_ns, self.next_ns + self.program.period_ns)
        else:
            self.next_ns = now_ns + self.program.host_ns
        self.world.at(self.next_ns, self._batch)
        if self.draining and not self.stopped:
            self.drained(now_ns)
            return
        if self.gate_open and self.version >= 3 and now_ns - self.reported_ns >= REPORT_EVERY_NS:
            self.reported_ns = now_ns
            self.world.send(self, events.BusyReported(self.key, self.busy_ns, 0), now_ns)
        if self.gate_open and self.next_ns - now_ns > GAP_NS:
            self.world.at(now_ns + GAP_NS, partial(self._gap, self.turn))

    def _gap(self, turn: int, now_ns: int) -> None:
        """Two milliseconds without work: say so, or leave if somebody waits."""
        if turn != self.turn or not self.gate_open or self.stopped or not self.alive:
            return
        if self.others_wait:
            self.release(now_ns, again=False)
        elif self.version >= 3:
            self.idle_reported = True
            self.world.send(
                self, events.BusyReported(self.key, self.busy_ns, now_ns - self.idle_since_ns), now_ns
            )

    def wants_more(self) -> bool:
        return self.pending


class CollectiveProcess(PacedProcess):
    """One rank of a job whose kernels spin until the kernels of all ranks are on their GPUs."""

    def join(self, ranks: list[CollectiveProcess], first: int) -> None:
        self.ranks = ranks
        self.order = ranks[first:] + ranks[:first]  # in which the host launches
        self.spinning = False

    def start(self, now_ns: int) -> None:
        if self is self.order[0]:
            self._iterate(now_ns)

    def _iterate(self, now_ns: int) -> None:
        for rank in self.ranks:
            rank.meter.wants(now_ns, True)
        self.order[0]._batch(now_ns)

    def launch(self, now_ns: int) -> None:
        if not self.pending:
            return
        self.pending = False
        self.spinning = True
        self._busy(now_ns)
        self.demand_ns = ENDLESS
        self.device.work(self, now_ns)
        index = self.order.index(self)
        if index + 1 < len(self.order):
            self.order[index + 1]._batch(now_ns)
        if all(rank.spinning for rank in self.ranks):
            for rank in self.ranks:
                rank.spinning = False
                rank.device.catch_up(now_ns)
                rank.demand_ns = rank.position_ns + rank.batch_ns
                rank.device.work(rank, now_ns)

    def work_done(self, now_ns: int) -> None:
        self._not_busy(now_ns)
        self.done += 1
        self.meter.wants(now_ns, False)
        if self.draining and not self.stopped:
            self.drained(now_ns)
        if all(rank.done == self.done for rank in self.ranks):
            leader = self.order[0]
            self.world.at(now_ns + self.program.host_ns, leader._iterate)
