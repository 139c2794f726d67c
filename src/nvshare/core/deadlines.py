"""When each GPU must be looked at again.

Rules:
1. The end of a turn is computed when somebody asks for it, not whenever it may have changed: within the first
   moments of a turn, which nothing can end, a GPU changes many times.
2. It is computed from what the last decision left, and for the moment of that decision. So whether
   somebody asks at once, later or never changes nothing. Who changes the books of a GPU or moves its
   clock, and leaves it at that without a decision, settles its deadline before.
3. Until then a lower bound is known. ``bound_ns`` is never later than the next look at any GPU.
"""

from __future__ import annotations

import heapq
from typing import Final

from nvshare.core.account import NEVER
from nvshare.core.gpu import Gpu
from nvshare.core.policy import turn_end, undrained

HEAP_LEAST: Final = 64


def next_look_ns(gpu: Gpu, drop_ns: int, now_ns: int) -> int:
    """When something is due on a GPU whose present turn must be dropped at ``drop_ns``."""
    floor, residence = gpu.floor, gpu.residence
    if floor.draining:
        at_ns = floor.drain_deadline_ns
    else:
        at_ns = drop_ns if floor.holder is not None or floor.group else gpu.look.wake_ns
        if residence.check_ns < at_ns:
            at_ns = residence.check_ns
    if gpu.idlers.next_ns < at_ns:
        at_ns = gpu.idlers.next_ns
    if gpu.returning.deadline_ns < at_ns:
        at_ns = gpu.returning.deadline_ns
    if gpu.gpu_time.deadline_ns < at_ns:
        at_ns = gpu.gpu_time.deadline_ns
    if floor.undrained or gpu.line.urgent:
        at_ns = min(at_ns, undrained.next_look_ns(gpu))
    if gpu.recalls.next_ns < at_ns:
        at_ns = gpu.recalls.next_ns
    if gpu.hinted.due_ns < at_ns:
        at_ns = gpu.hinted.due_ns
    return at_ns if at_ns > now_ns else now_ns + 1  # whatever is due now has been dealt with


class Deadlines:
    """The next look at each GPU."""

    __slots__ = ("_heap", "_most", "_serial", "_unqueued", "bound_ns")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Gpu]] = []  # valid: those that are what the GPU's look says
        self._unqueued: list[Gpu] = []  # those whose next look is not in the heap
        self._most = HEAP_LEAST  # entries, before the stale ones are thrown out
        self._serial = 0
        self.bound_ns = NEVER

    def note(self, gpu: Gpu, drop_ns: int, now_ns: int) -> None:
        """A decision was made: the present turn must be dropped at ``drop_ns``, or later if that is open."""
        look, at_ns = gpu.look, next_look_ns(gpu, drop_ns, now_ns)
        look.set_deadline(at_ns)
        if at_ns < self.bound_ns:
            self.bound_ns = at_ns
        if at_ns != look.queued_ns or look.end_open:
            self._unqueue(gpu)

    def hasten(self, gpu: Gpu, at_ns: int) -> None:
        """Without a decision something is due, perhaps before all else."""
        look = gpu.look
        if at_ns < look.deadline_ns:
            look.set_deadline(at_ns)
            if at_ns < self.bound_ns:
                self.bound_ns = at_ns
            self._unqueue(gpu)

    def _unqueue(self, gpu: Gpu) -> None:
        """Its entry in the heap, if any, no longer counts."""
        look = gpu.look
        look.set_queued(NEVER)
        if not look.unqueued:
            look.set_unqueued(True)
            self._unqueued.append(gpu)

    def settle(self, gpu: Gpu) -> None:
        """Compute the end of a turn that was left open."""
        look = gpu.look
        if look.end_open:
            look.leave_end(False)
            decided_ns = gpu.pace.clock.at_ns
            drop_ns, _ = turn_end.turn_end(gpu, decided_ns)
            look.set_deadline(next_look_ns(gpu, drop_ns, decided_ns))

    def next_ns(self) -> int | None:
        """When the first GPU is due."""
        if self._unqueued:
            self._queue_all()
        heap = self._heap
        while heap:
            at_ns, _, gpu = heap[0]
            if gpu.look.queued_ns == at_ns:
                self.bound_ns = at_ns
                return at_ns
            heapq.heappop(heap)
        self.bound_ns = NEVER
        return None

    def pop_due(self, now_ns: int) -> list[Gpu]:
        """The GPUs that are due; those due at the same moment in the order in which they were seen."""
        if self._unqueued:
            self._queue_all()
        heap = self._heap
        due: list[Gpu] = []
        while heap and heap[0][0] <= now_ns:
            at_ns, _, gpu = heapq.heappop(heap)
            if gpu.look.queued_ns == at_ns:
                gpu.look.set_queued(NEVER)
                due.append(gpu)
        if len(due) > 1:
            due.sort(key=lambda gpu: (gpu.look.deadline_ns, gpu.look.order))
        self.bound_ns = heap[0][0] if heap else NEVER
        return due

    def _queue_all(self) -> None:
        heap = self._heap
        for gpu in self._unqueued:
            look = gpu.look
            look.set_unqueued(False)
            if look.end_open:
                self.settle(gpu)
            at_ns = look.deadline_ns
            if at_ns != look.queued_ns:
                look.set_queued(at_ns)
                if at_ns < NEVER:
                    self._serial += 1
                    heapq.heappush(heap, (at_ns, self._serial, gpu))
        self._unqueued.clear()
        if len(heap) > self._most:
            self._heap = [entry for entry in heap if entry[2].look.queued_ns == entry[0]]
            heapq.heapify(self._heap)
            self._most = 2 * len(self._heap) + HEAP_LEAST
