"""Processes that lie in every field of every message, on modelled GPUs, as NVML sees them.

What they launch passes the gate, as that of anybody who has the library does: who goes past it is out of our
hands. What they say is anything. Each goes from one kind of lie to the next.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

from nvshare.core import events
from nvshare.core.audit import Checking
from nvshare.core.scheduler import Scheduler
from nvshare.sim.kernel_work import Work
from nvshare.sim.process import Process
from nvshare.sim.scenario import GIB, MS_NS, SECOND_NS, Scenario
from nvshare.sim.world import Tenancy, World

LIE_NS: Final = 600 * SECOND_NS
EVERY_NS: Final = 50 * MS_NS
SAMPLE_NS: Final = SECOND_NS
HUGE: Final = 1 << 63
LIAR: Final = "liar"
KINDS: tuple[str, ...] = (
    "says_nothing_of_its_work",
    "says_it_is_idle",
    "says_too_much",
    "goes_back",
    "lets_go_of_nothing",
    "floods",
    "tells_nonsense_of_slots",
    "tells_nonsense_of_memory",
    "resumes_at_random",
    "keeps_its_turns",
)


class LyingProcess(Process):
    world: LiarsWorld

    def __init__(self, world: World, tenancy: Tenancy, key: int, work: Work) -> None:
        super().__init__(world, tenancy, key, work)
        self.random = Random(world.random.getrandbits(64))
        self.told_busy_ns = 0
        self.lies: list[Callable[[int], None]] = [getattr(self, kind) for kind in KINDS]
        self.random.shuffle(self.lies)
        self.last_lie = self.lies[0]
        self.told = 0

    @property
    def lie(self) -> Callable[[int], None]:
        return self.lies[self.world.now_ns // LIE_NS % len(self.lies)]

    def start(self, now_ns: int) -> None:
        super().start(now_ns)
        self.world.at(now_ns + EVERY_NS, self.again)

    def again(self, now_ns: int) -> None:
        if self.alive:
            self.told += 1
            if self.lie != self.last_lie:
                self.last_lie = self.lie
                self.world.begin_anew(self, now_ns)
            self.lie(now_ns)
            if not self.held():
                self.asked = True
                self.say(events.LockRequested(self.key), now_ns)
            self.world.at(now_ns + EVERY_NS // 2 + self.random.randrange(EVERY_NS), self.again)

    def say(self, event: events.Event, now_ns: int) -> None:
        self.world.send(self, event, now_ns)

    # ---- what becomes of what it should say --------------------------------------------------------

    def twist(self, event: events.Event) -> events.Event | None:
        """An honest message as this one sends it, if it does."""
        if not isinstance(event, events.LockReleased):
            return event
        lie, random = self.lie, self.random
        busy_ns = event.busy_ns or 0
        if lie in (self.says_nothing_of_its_work, self.says_it_is_idle):
            return event._replace(busy_ns=0, worked_ns=0)
        if lie == self.says_too_much:
            return event._replace(busy_ns=HUGE - 1, worked_ns=HUGE - 1, kernel_ns=HUGE - 1)
        if lie == self.goes_back:
            self.told_busy_ns = max(0, self.told_busy_ns - MS_NS)
            return event._replace(busy_ns=self.told_busy_ns, worked_ns=busy_ns // 2)
        if lie == self.lets_go_of_nothing:
            grant = random.choice((0, 1, random.randrange(100), HUGE))
            return event._replace(grant=grant, again=random.random() < 0.5, kernel_ns=random.getrandbits(62))
        if lie == self.keeps_its_turns:
            return None
        return event

    # ---- what it says of its own accord ------------------------------------------------------------

    def says_nothing_of_its_work(self, now_ns: int) -> None:
        self.say(events.BusyReported(self.key, 0, 0, 0), now_ns)

    def says_it_is_idle(self, now_ns: int) -> None:
        self.say(events.BusyReported(self.key, 0, self.random.choice((1, MS_NS, HUGE)), 0), now_ns)

    def says_too_much(self, now_ns: int) -> None:
        self.say(events.BusyReported(self.key, HUGE, 0, HUGE), now_ns)

    def goes_back(self, now_ns: int) -> None:
        self.told_busy_ns += self.random.randrange(-5, 5) * MS_NS
        self.say(events.BusyReported(self.key, max(0, self.told_busy_ns), 0), now_ns)

    def lets_go_of_nothing(self, now_ns: int) -> None:
        if not self.held():
            again, grant = self.random.random() < 0.5, self.random.randrange(3)
            self.say(events.LockReleased(self.key, self.random.getrandbits(40), 0, again, grant), now_ns)

    def floods(self, now_ns: int) -> None:
        for _ in range(20):
            self.say(events.LockRequested(self.key), now_ns)

    def tells_nonsense_of_slots(self, now_ns: int) -> None:
        random = self.random
        end = random.choice((0, 1, now_ns // 500_000, random.getrandbits(63)))
        bits = random.getrandbits(256)
        self.say(events.BusyReported(self.key, self.busy_ns, 0, random.getrandbits(62), end, bits), now_ns)

    def tells_nonsense_of_memory(self, now_ns: int) -> None:
        random = self.random
        used_bytes = random.choice((0, HUGE, random.getrandbits(40)))
        seq = random.choice((0, 1, random.getrandbits(63)))
        self.say(events.MemoryUsed(self.key, used_bytes, seq), now_ns)
        self.say(events.MemoryRequested(self.key, seq, random.choice((0, GIB, HUGE))), now_ns)
        self.say(events.LeaseReturned(self.key, random.randrange(5), used_bytes), now_ns)

    def resumes_at_random(self, now_ns: int) -> None:
        if self.told % 10 == 0:  # a connection is not made in no time
            self.world.resume_lying(self, self.random.random() < 0.7, self.random.random() < 0.5, now_ns)

    def keeps_its_turns(self, now_ns: int) -> None:
        """And says nothing at all."""


class LiarsWorld(World):
    """Tenants whose names begin with ``liar`` lie. NVML tells what each process had, in whole percents."""

    def __init__(self, scenario: Scenario, seed: int, checking: Checking) -> None:
        self.checking = checking
        self.seen_ns: dict[int, int] = {}
        super().__init__(scenario, seed)
        self.at(SAMPLE_NS, self._sample)

    def _new_core(self) -> Scheduler:
        core = Scheduler(self.scenario.settings, self.checking)
        for device in self.devices:
            core.handle(events.GpuSeen(f"GPU-{device.index}", device.total_bytes, device.index), self.now_ns)
        return core

    def _spawn(self, tenancy: Tenancy, now_ns: int) -> Process:
        if not tenancy.spec.name.startswith(LIAR):
            return super()._spawn(tenancy, now_ns)
        process = LyingProcess(
            self, tenancy, self._new_key(), Work(Random(self.random.getrandbits(64)), MS_NS, 10 * MS_NS)
        )
        tenancy.processes.append(process)
        self._register(process, now_ns)
        return process

    def _register(self, process: LyingProcess, now_ns: int) -> None:
        self.processes[process.key] = process
        gpu, percent = f"GPU-{process.device.index}", process.tenancy.percent
        self.tell(events.LimitsSet(process.pod, "ctl", GIB, percent), now_ns)
        self.tell(events.ClientRegistered(process.key, process.pod, gpu), now_ns)

    def begin_anew(self, process: LyingProcess, now_ns: int) -> None:
        """As another process of another pod, which owes nothing for the lies of the last."""
        previous, pod = process.key, process.pod
        process.device.catch_up(now_ns)
        process.gate_open = process.draining = process.asked = False
        process.demand_ns = process.position_ns
        process.device.work(process, now_ns)
        self.processes.pop(previous, None)
        self.tell(events.ClientDisconnected(previous), now_ns)
        self.tell(events.ProcessGone(previous), now_ns)
        self.tell(events.LimitsSet(pod, "ctl"), now_ns)
        process.key = self._new_key()
        process.pod = f"{process.tenancy.spec.name}.{process.key}"
        self._register(process, now_ns)

    def send(self, process: Process, event: events.Event, now_ns: int) -> None:
        if isinstance(process, LyingProcess):
            twisted = process.twist(event)
            if twisted is None:
                return
            event = twisted
        super().send(process, event, now_ns)

    def resume_lying(self, process: Process, holds: bool, wants: bool, now_ns: int) -> None:
        previous = process.key
        if self.processes.pop(previous, None) is None:
            return
        process.key = self._new_key()
        self.processes[process.key] = process
        process.device.catch_up(now_ns)
        gpu = f"GPU-{process.device.index}"
        busy_ns = process.current_busy_ns(now_ns)
        process.asked = wants
        if holds and not process.gate_open:  # it works as if that were so
            process.draining, process.gate_open = False, True
            process.launch(now_ns)
        elif not holds and process.gate_open:
            process.gate_open, process.draining = False, False
            process.stop_launching(now_ns)
        self.tell(
            events.ClientResumed(process.key, process.pod, gpu, previous, holds, wants, busy_ns, HUGE), now_ns
        )

    def _sample(self, now_ns: int) -> None:
        """As the daemon feeds what NVML tells (``exporters.service``)."""
        for device in self.devices:
            device.catch_up(now_ns)
            told = []
            for key, process in self.processes.items():
                if process.device is device:
                    had_ns = process.position_ns - self.seen_ns.get(id(process), 0)
                    self.seen_ns[id(process)] = process.position_ns
                    told.append((key, had_ns * 100 // SAMPLE_NS * SAMPLE_NS // 100))
            self.tell(events.WorkSampled(f"GPU-{device.index}", now_ns, tuple(told)), now_ns)
        self.at(now_ns + SAMPLE_NS, partial(self._sample))
