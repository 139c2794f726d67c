"""What a look at a GPU means for the scheduler and for figures.

Rules:
1. A look is taken in pieces, one after the other: between two of them everybody else has a go. No step of it
   grows with the clients of the node, and none but that of a pod's own clients with those of the GPU.
2. NVML tells of processes, and a process may have several clients on a GPU: it counts once.
3. NVML also tells what the card did for processes that it no longer lists: they have no context any more, or
   have ended. That counts for the clients that they have or had.
4. The scheduler gets the figures of a pod's clients all at once, since they have one bill.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from nvshare.core import events
from nvshare.core.client import Client
from nvshare.core.gpu import Gpu
from nvshare.exporters.scheduler.activity import Activity
from nvshare.exporters.scheduler.overhead import Overheads
from nvshare.exporters.scheduler.paging import Look, Paging
from nvshare.exporters.scheduler.process_time_split import ProcessTimeSplit
from nvshare.exporters.steps import Steps
from nvshare.gpu.inventory import Device
from nvshare.gpu.reading import GpuReading, ProcessReading, Worked
from nvshare.node.member import Member
from nvshare.node.scheduler_node import SchedulerNode
from nvshare.pods.peer import Process
from nvshare.runtime import logs
from nvshare.runtime.cooperative import in_pieces

READINGS_MOST: Final = 256
CLIENTS_AT_ONCE: Final = 16
"""Clients whose figures the scheduler gets in one event, unless a single pod has more."""
_IDLE: Final = ProcessReading(0, 0, "", 0, 0)
"""What NVML would tell of a process that it does not list."""
Rows = dict[str, list[tuple[int, int]]]
"""By pod: how long the card worked for each of its clients."""


class NvmlIntake:
    def __init__(self, node: SchedulerNode, learns_gpus: bool, ttl_ns: int) -> None:
        self.overheads = Overheads()
        self.activity = Activity()
        self._node, self._dispatcher = node, node.dispatcher
        self._learns_gpus = learns_gpus
        self._ttl_ns = ttl_ns
        self._paging = Paging()
        self._time_split = ProcessTimeSplit()
        self._on_others: dict[str, list[Process]] = {}  # by GPU: those listed there that others have, too
        self._compared: set[str] = set()  # GPUs whose work NVML has reported before
        self._waiting: deque[GpuReading] = deque(maxlen=READINGS_MOST)
        self._task: asyncio.Task[None] | None = None

    def take(self, reading: GpuReading) -> None:
        """At some time soon, and after those before it."""
        if len(self._waiting) == READINGS_MOST:  # the first one is pushed out, and its work is never reported
            self._compared.discard(self._waiting[0].uuid)
        self._waiting.append(reading)
        if self._task is None:
            self._start()

    def _start(self) -> None:
        self._task = self._dispatcher.loop.create_task(self._take_waiting())
        self._task.add_done_callback(self._ended)

    def close(self) -> None:
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()

    async def _take_waiting(self) -> None:
        while self._waiting:
            steps = self.steps(self._waiting.popleft())
            async for _ in in_pieces(steps, self._dispatcher.clock, self._dispatcher.counters.callbacks.add):
                pass

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled():
            if self._waiting:
                self._start()
            task.result()  # what it raised is reported like any callback's exception

    def steps(self, reading: GpuReading) -> Steps[None]:
        dispatcher = self._dispatcher
        device = self._news_of(reading)
        if device is not None:
            logs.info("GPU found", gpu=device.key, index=device.number)
            dispatcher.feed(events.GpuSeen(device.key, device.total_bytes, device.number))
        looks: list[Look] = []
        rows: Rows = {}
        for seen, members in self._ours(reading):
            if members:
                self._note(reading, seen, members, looks, rows)
            yield None
        if reading.worked is not None:
            yield from self._add_unlisted(reading, reading.worked, rows)
            yield from self._feed_work(reading, reading.worked, rows)
        yield from self._forget(reading)
        yield from self._note_memory(reading, looks)

    def _news_of(self, reading: GpuReading) -> Device | None:
        """A GPU nobody knew, or knew like this. Of a list that was stated only the numbers are learned."""
        inventory = self._node.gpus.inventory
        if not self._learns_gpus:
            return inventory.number(reading.uuid, reading.index)
        if reading.total_bytes is None:
            return None
        described = (reading.name or "", reading.simulated)
        device = Device(reading.uuid, reading.total_bytes, reading.index, *described)
        news = inventory.learn(device) or device.key not in self._dispatcher.scheduler.gpus
        return device if news else None

    # ---- processes ---------------------------------------------------------------------------

    def _ours(self, reading: GpuReading) -> Iterator[tuple[ProcessReading, list[Member]]]:
        """The processes that it tells of, and what each of them is to us on that GPU, if anything."""
        listed: set[Process] = set()
        on_others: list[Process] = []
        for row in reading.processes or ():
            process = Process(row.pid, row.start_ticks)
            listed.add(process)
            if self._node.members.processes.is_elsewhere(row.pid, reading.uuid):
                on_others.append(process)
            yield row, self._members(process, reading.uuid)
        self._on_others[reading.uuid] = on_others
        if reading.processes is None:
            return
        for gpu, processes in list(self._on_others.items()):
            for process in processes if gpu != reading.uuid else ():
                members = [] if process in listed else self._members(process, reading.uuid)
                yield _IDLE, [member for member in members if self._spans_gpus(member)]

    def _members(self, process: Process, gpu: str) -> list[Member]:
        return [
            member
            for member in self._node.members.processes.of(process.pid, gpu)
            if member.process == process
        ]

    def _spans_gpus(self, member: Member) -> bool:
        """NVML can see its process, and does not list it here: it has not even a context."""
        client = self._dispatcher.scheduler.clients.get(member.client)
        return client is not None and client.tenant.habits.spans_gpus

    def _note(
        self, reading: GpuReading, seen: ProcessReading, members: list[Member], looks: list[Look], rows: Rows
    ) -> None:
        if not self._dispatcher.scheduler.on:
            for member in members:
                self.activity.note(member.pod, seen.sm_percent, reading.taken_ns)
        clients = self._clients(members)
        if clients and seen.used_bytes is not None:
            allocated_bytes = sum(c.tenant.memory.shares[c.key].used_bytes for c in clients)
            for client in clients:
                self.overheads.note(client.key, allocated_bytes, seen.used_bytes, seen.sm_percent)
            looks.append(Look(clients[0].key, allocated_bytes, seen.used_bytes))
        if clients and reading.worked is not None:
            self._add(rows, members[0].pod, clients, reading.worked.by_pid.get(seen.pid, 0))

    def _clients(self, members: Iterable[Member]) -> list[Client]:
        found = (self._dispatcher.scheduler.clients.get(member.client) for member in members)
        return [client for client in found if client is not None]

    def _add(self, rows: Rows, pod: str, clients: list[Client], worked_ns: int) -> None:
        rows.setdefault(pod, []).extend(self._time_split.divide(clients, worked_ns))

    def _add_unlisted(self, reading: GpuReading, worked: Worked, rows: Rows) -> Steps[None]:
        """Rule 3."""
        listed = {process.pid for process in reading.processes or ()}
        now_ns, processes = self._dispatcher.clock(), self._node.members.processes
        for pid, worked_ns in worked.by_pid.items():
            yield None
            if pid in listed:
                continue
            members = processes.of(pid, reading.uuid)
            clients = self._clients(members)
            if clients:
                self._add(rows, members[0].pod, clients, worked_ns)
                continue
            gone = processes.gone(pid, reading.uuid, now_ns)
            if gone:
                rows.setdefault(gone[-1].pod, []).append((gone[-1].client, worked_ns))

    # ---- work --------------------------------------------------------------------------------

    def _feed_work(self, reading: GpuReading, worked: Worked, rows: Rows) -> Steps[None]:
        """What NVML knows better than clients do."""
        gpu = self._dispatcher.scheduler.gpus.get(reading.uuid)
        if gpu is None or not worked.length_ns:
            return
        if reading.uuid not in self._compared:  # its first word is of no time that we know
            self._compared.add(reading.uuid)
            return
        wanted = gpu.gpu_time.is_behind or gpu.recent_holders.waits
        for of_pod in rows.values():
            wanted = wanted or any(worked_ns or self._wants_nvml(key) for key, worked_ns in of_pod)
            yield None
        if not wanted:
            return
        at_once: list[tuple[int, int]] = []
        for of_pod in rows.values():
            if at_once and len(at_once) + len(of_pod) > CLIENTS_AT_ONCE:
                self._feed(gpu, worked, at_once)
                at_once = []
                yield None
            at_once += of_pod
        self._feed(gpu, worked, at_once)
        yield None

    def _feed(self, gpu: Gpu, worked: Worked, rows: list[tuple[int, int]]) -> None:
        self._dispatcher.feed(events.WorkSampled(gpu.key, worked.until_ns, tuple(rows), worked.complete))

    def _wants_nvml(self, key: int) -> bool:
        """Whether it matters that NVML says that nothing ran for it."""
        client = self._dispatcher.scheduler.clients.get(key)
        if client is None:
            return False
        return client.awaits_nvml or client.work.alone_ns > 0 or client.tenant.habits.spans_gpus

    # ---- the rest ----------------------------------------------------------------------------

    def _forget(self, reading: GpuReading) -> Steps[None]:
        """Who is gone."""
        members = self._node.members.registered
        if len(self.overheads.baselines) > len(members):
            for client in list(self.overheads.baselines):
                if client not in members:
                    self.overheads.forget(client)
                yield None
        for client in self._time_split.known():
            if client not in members:
                self._time_split.forget(client)
            yield None
        yield from self.activity.forget(reading.taken_ns - self._ttl_ns, self._node.members.is_here)

    def _note_memory(self, reading: GpuReading, looks: list[Look]) -> Steps[None]:
        gpu = self._dispatcher.scheduler.gpus.get(reading.uuid)
        if gpu is None or reading.used_bytes is None:
            return
        residence = gpu.resident_set
        fits = residence.tenants_bytes <= gpu.safe_limit_bytes
        paged_out_bytes = yield from self._paging.paged_out_bytes(reading.uuid, looks, fits)
        for look in looks:
            beside_bytes = self._paging.driver_bytes(reading.uuid, look.client)
            self.overheads.presume(look.client, beside_bytes)
            yield None
        strangers_bytes = residence.strangers_of(reading.used_bytes, paged_out_bytes)
        if strangers_bytes != residence.stranger_bytes:  # an event for nothing would be a checkpoint
            self._dispatcher.feed(events.GpuSampled(reading.uuid, reading.used_bytes, paged_out_bytes))
