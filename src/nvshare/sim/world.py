"""Virtual time: the core, the modelled processes and devices, and what goes wrong, in one queue.

The same scenario and seed give the same events in the same order, hence the same bytes.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

from nvshare.core import effects, events
from nvshare.core.scheduler import Scheduler
from nvshare.core.view.snapshot import Checkpoint
from nvshare.sim.device import Device
from nvshare.sim.kernel_work import Work
from nvshare.sim.measure import Meter, Waits
from nvshare.sim.old_process import OLD_PROCESSES
from nvshare.sim.process import UNGATED_AFTER_NS, CollectiveProcess, PacedProcess, Process
from nvshare.sim.scenario import MS_NS, SECOND_NS, FaultSpec, Scenario, TenantSpec

RECONNECT_JITTER_NS: Final = 500 * MS_NS
BUCKETS: Final = 240
"""In how many parts of the run shares are kept: a day's record is no larger than a minute's."""
CHECKPOINT_EVERY_NS: Final = SECOND_NS
_PROCESSES: Final[dict[str, type[Process]]] = {
    "backlogged": Process,
    "paced": PacedProcess,
    "collective": CollectiveProcess,
}
Action = Callable[[int], None]


class Tenancy:
    """A tenant on one GPU, as the referee sees it."""

    def __init__(self, spec: TenantSpec, device: Device) -> None:
        self.spec = spec
        self.device = device
        self.meter = Meter()
        self.waits = Waits()
        self.percent = spec.core_percent
        self.processes: list[Process] = []
        self.present = False
        self.present_ns = 0
        self.since_ns = 0
        self.pod_bytes = 0
        self.quota_changes: list[tuple[int, int]] = []  # when, and to how many percent; the first so many
        self.windowed = False

    @property
    def backlogged(self) -> bool:
        return self.spec.program.kind == "backlogged" and not self.spec.program.idle_ns


class World:
    """One run of a scenario."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self.scenario = scenario
        self.random = Random(seed)
        self.now_ns = 0
        self._queue: list[tuple[int, int, Action]] = []
        self._serial = 0
        self._next_key = 1
        self._wake_ns = -1
        self.core_events = 0
        self.up = True
        self._down_since_ns = 0
        self._checkpoint: Checkpoint | None = None
        self._delay_ns = scenario.handover_ns // 2
        self.processes: dict[int, Process] = {}
        self.devices = [
            Device(index, scenario.gpu_memory_bytes, self._planner(index)) for index in range(scenario.gpus)
        ]
        self.tenancies: dict[tuple[str, int], Tenancy] = {}
        self.core = self._new_core()
        for spec in scenario.tenants:
            for index in spec.gpus:
                tenancy = self.tenancies[spec.name, index] = Tenancy(spec, self.devices[index])
                tenancy.meter.bucket_ns = max(1, scenario.duration_ns // BUCKETS)
            self.at(spec.arrive_ns, partial(self._arrive, spec))
        for fault in scenario.faults:
            self.at(fault.at_ns, partial(self._fault, fault))
        if any(fault.kind == "daemon_restart" for fault in scenario.faults):
            self.at(0, self._take_checkpoint)

    # ---- time --------------------------------------------------------------------------------

    def at(self, at_ns: int, action: Action) -> None:
        self._serial += 1
        heapq.heappush(self._queue, (at_ns, self._serial, action))

    def run_until(self, end_ns: int) -> None:
        queue = self._queue
        pop = heapq.heappop
        while queue and queue[0][0] <= end_ns:
            self.now_ns, _, action = pop(queue)
            action(self.now_ns)
        self.now_ns = end_ns

    def finish(self) -> None:
        for device in self.devices:
            device.flush(self.now_ns)
        for tenancy in self.tenancies.values():
            tenancy.meter.finish(self.now_ns)
            if tenancy.present:
                tenancy.present_ns += self.now_ns - tenancy.since_ns
                tenancy.since_ns = self.now_ns

    def _planner(self, index: int) -> Callable[[int, int], None]:
        def plan(at_ns: int, version: int) -> None:
            self.at(at_ns, partial(self.devices[index].event, version))

        return plan

    # ---- messages ----------------------------------------------------------------------------

    def _jittered_ns(self) -> int:
        delay_ns = self._delay_ns
        return delay_ns * 3 // 4 + int(self.random.random() * (delay_ns // 2))

    def send(self, process: Process, event: events.Event, now_ns: int) -> None:
        """From a process to the daemon; lost while there is none."""
        if self.up:
            at_ns = max(now_ns + self._jittered_ns(), process.sent_ns + 1)
            process.sent_ns = at_ns
            self.at(at_ns, partial(self._receive, self.core, event))

    def _receive(self, core: Scheduler, event: events.Event, now_ns: int) -> None:
        if core is self.core and self.up:
            self.core_events += 1
            self._perform(core.handle(event, now_ns), now_ns)

    def tell(self, event: events.Event, now_ns: int) -> None:
        """Something the daemon learns by itself, at once."""
        self._receive(self.core, event, now_ns)

    def _perform(self, wanted: list[effects.Effect], now_ns: int) -> None:
        reached: set[int] = set()
        for effect in wanted:
            process = self.processes.get(effect.client)
            if process is None:
                continue
            action: Action
            if type(effect) is effects.Grant:
                action = process.granted
            elif type(effect) is effects.Drop:
                action = process.dropped
            elif type(effect) is effects.Greet:
                action = process.greeted
            elif type(effect) is effects.SendHints:
                action = partial(process.hinted, effect.others_wait, effect.shallow)
            else:
                continue
            # What is written together arrives together.
            delay_ns = 0 if effect.client in reached else self._jittered_ns()
            reached.add(effect.client)
            at_ns = max(now_ns + delay_ns, process.told_ns + 1)
            process.told_ns = at_ns
            self.at(at_ns, action)
        wake_ns = self.core.next_deadline_ns()
        if wake_ns is not None and (wake_ns < self._wake_ns or self._wake_ns <= now_ns):
            self._wake_ns = max(wake_ns, now_ns)
            self.at(self._wake_ns, self._wake)

    def _wake(self, now_ns: int) -> None:
        if now_ns == self._wake_ns:
            self._wake_ns = -1
            self._receive(self.core, events.Woken(), now_ns)

    # ---- the daemon --------------------------------------------------------------------------

    def _new_core(self) -> Scheduler:
        core = Scheduler(self.scenario.settings)
        for device in self.devices:
            core.handle(events.GpuSeen(f"GPU-{device.index}", device.total_bytes, device.index), self.now_ns)
        return core

    def _take_checkpoint(self, now_ns: int) -> None:
        if self.up:
            self._checkpoint = self.core.checkpoint(now_ns)
        self.at(now_ns + CHECKPOINT_EVERY_NS, self._take_checkpoint)

    def _daemon_ends(self, fault: FaultSpec, now_ns: int) -> None:
        self.up = False
        for process in list(self.processes.values()):
            process.device.catch_up(now_ns)
            process.daemon_gone(now_ns)
        self.at(now_ns + fault.for_ns, self._daemon_returns)
        self._down_since_ns = now_ns
        self.at(now_ns + UNGATED_AFTER_NS, self._run_ungated)

    def _run_ungated(self, now_ns: int) -> None:
        if not self.up and now_ns - self._down_since_ns >= UNGATED_AFTER_NS:
            for process in list(self.processes.values()):
                if process.asked:
                    process.granted(now_ns)

    def _daemon_returns(self, now_ns: int) -> None:
        self.up = True
        self.core = self._new_core()
        if self._checkpoint is not None:
            self.core.handle(events.Restored(self._checkpoint), now_ns)
        for tenancy in self.tenancies.values():
            self._tell_limits(tenancy, now_ns)
        for process in list(self.processes.values()):
            if process.alive:
                back_ns = now_ns + int(self.random.random() * RECONNECT_JITTER_NS)
                self.at(back_ns, partial(self._resume, process))

    def _resume(self, process: Process, now_ns: int) -> None:
        if process.alive and process.key in self.processes:
            previous = process.key
            del self.processes[previous]
            process.key = self._new_key()
            self.processes[process.key] = process
            process.device.catch_up(now_ns)
            self.tell(
                events.ClientResumed(
                    client=process.key,
                    pod=process.pod,
                    gpu=f"GPU-{process.device.index}",
                    previous=previous,
                    holds=process.held(),
                    wants=process.asked,
                    busy_ns=process.current_busy_ns(now_ns),
                    used_bytes=process.used_bytes,
                ),
                now_ns,
            )

    # ---- tenants -----------------------------------------------------------------------------

    def _new_key(self) -> int:
        self._next_key += 1
        return self._next_key

    def _tell_limits(self, tenancy: Tenancy, now_ns: int) -> None:
        self.tell(
            events.LimitsSet(
                tenancy.spec.name, "annotation", core_percent=tenancy.percent, share=tenancy.spec.share
            ),
            now_ns,
        )

    def _arrive(self, spec: TenantSpec, now_ns: int) -> None:
        ranks: list[CollectiveProcess] = []
        for index in spec.gpus:
            tenancy = self.tenancies[spec.name, index]
            tenancy.present = True
            tenancy.since_ns = now_ns
            if self.up:
                self._tell_limits(tenancy, now_ns)
            for _ in range(spec.processes):
                process = self._spawn(tenancy, now_ns)
                if isinstance(process, CollectiveProcess):
                    ranks.append(process)
        for rank in ranks:
            # Ranks of different tenants launch in different order: that is what makes them cross.
            rank.join(ranks, list(self.scenario.tenants).index(spec) % len(ranks))
        self._set_dues(now_ns)
        for index in spec.gpus:
            for process in self.tenancies[spec.name, index].processes:
                process.start(now_ns)
        if spec.program.idle_ns:
            self.at(now_ns + spec.program.busy_ns, partial(self._idle_phase, spec))
        if spec.leave_ns:
            self.at(now_ns + spec.leave_ns - spec.arrive_ns, partial(self._leave, spec))
        if spec.every_ns:
            self.at(now_ns + spec.every_ns, partial(self._arrive, spec))

    def _spawn(self, tenancy: Tenancy, now_ns: int) -> Process:
        spec = tenancy.spec
        key = self._new_key()
        work = Work(Random(self.random.getrandbits(64)), *spec.program.kernel_ns)
        kinds = _PROCESSES if spec.protocol >= 3 else _PROCESSES | OLD_PROCESSES
        process = kinds[spec.program.kind](self, tenancy, key, work)
        tenancy.processes.append(process)
        tenancy.pod_bytes += process.used_bytes
        self.processes[key] = process
        gpu = f"GPU-{tenancy.device.index}"
        self.tell(events.ClientRegistered(key, spec.name, gpu, spec.protocol), now_ns)
        self.tell(events.MemoryUsed(key, process.used_bytes), now_ns)
        return process

    def _respawn(self, tenancy: Tenancy, now_ns: int) -> None:
        if tenancy.present:
            self._spawn(tenancy, now_ns).start(now_ns)

    def _idle_phase(self, spec: TenantSpec, now_ns: int) -> None:
        processes = self._alive(spec)
        for process in processes:
            process.pause(now_ns)
        if processes:
            self.at(now_ns + spec.program.idle_ns, partial(self._busy_phase, spec))

    def _busy_phase(self, spec: TenantSpec, now_ns: int) -> None:
        processes = self._alive(spec)
        for process in processes:
            process.unpause(now_ns)
        if processes:
            self.at(now_ns + spec.program.busy_ns, partial(self._idle_phase, spec))

    def _alive(self, spec: TenantSpec) -> list[Process]:
        everywhere = (self.tenancies[spec.name, index].processes for index in spec.gpus)
        return [process for processes in everywhere for process in processes if process.alive]

    def _leave(self, spec: TenantSpec, now_ns: int) -> None:
        for index in spec.gpus:
            tenancy = self.tenancies[spec.name, index]
            for process in tenancy.processes:
                if process.alive:
                    self._kill(process, now_ns)
            tenancy.processes.clear()
            tenancy.pod_bytes = 0
            if tenancy.present:
                tenancy.present = False
                tenancy.present_ns += now_ns - tenancy.since_ns
        self._set_dues(now_ns)

    def _kill(self, process: Process, now_ns: int) -> None:
        process.die(now_ns)
        self.at(now_ns + self._delay_ns, partial(self._bury, process))

    def _bury(self, process: Process, now_ns: int) -> None:
        self.tell(events.ClientDisconnected(process.key), now_ns)
        self.tell(events.ProcessGone(process.key), now_ns)
        self.processes.pop(process.key, None)

    def _set_dues(self, now_ns: int) -> None:
        """What each backlogged limited tenant must get, by the rule and not by the core's word."""
        floor = self.scenario.settings.unlimited_min_percent
        for device in self.devices:
            device.flush(now_ns)
            here = [t for t in self.tenancies.values() if t.device is device and t.present]
            limited = sum(t.percent for t in here if t.percent < 100)
            room = 100 - (floor if any(t.percent == 100 for t in here) else 0)
            # With idle ones among them, who is scaled when depends on who is active: no fixed due.
            fixed = limited <= room or all(t.backlogged for t in here)
            scale = min(1.0, room / limited) if limited else 1.0
            safe_bytes = device.total_bytes * (100 - self.scenario.settings.memory_reserve_percent) // 100
            fits = sum(t.spec.memory_bytes for t in here) <= safe_bytes
            for tenancy in self.tenancies.values():
                if tenancy.device is not device:
                    continue
                due = None
                steady = tenancy.backlogged and tenancy.percent < 100 and not tenancy.spec.share
                if tenancy.present and steady and fixed:
                    due = tenancy.percent / 100 * scale
                if due is not None:
                    tenancy.windowed = fits
                tenancy.meter.set_due(due, fits, now_ns)

    # ---- what goes wrong ---------------------------------------------------------------------

    def _fault(self, fault: FaultSpec, now_ns: int) -> None:
        if fault.every_ns:
            self.at(now_ns + fault.every_ns, partial(self._fault, fault))
        if fault.kind == "daemon_restart":
            if self.up:
                self._daemon_ends(fault, now_ns)
            return
        for (name, _), tenancy in self.tenancies.items():
            if name == fault.tenant:
                self._afflict(tenancy, fault, now_ns)

    def _afflict(self, tenancy: Tenancy, fault: FaultSpec, now_ns: int) -> None:
        if fault.kind == "quota":
            tenancy.percent = fault.core_percent
            if len(tenancy.quota_changes) < BUCKETS:
                tenancy.quota_changes.append((now_ns, fault.core_percent))
            if self.up:
                self._tell_limits(tenancy, now_ns)
            self._set_dues(now_ns)
            return
        for process in list(tenancy.processes):
            if not process.alive:
                continue
            if fault.kind == "death":
                self._kill(process, now_ns)
                tenancy.processes.remove(process)
                tenancy.pod_bytes -= process.used_bytes
                if fault.for_ns:
                    self.at(now_ns + fault.for_ns, partial(self._respawn, tenancy))
            elif fault.kind == "stop":
                process.stop(now_ns)
                self.at(now_ns + fault.for_ns, process.cont)
            elif fault.kind == "ignore_drop":
                process.ignores_drop = True
                self.at(now_ns + fault.for_ns, process.heed)
