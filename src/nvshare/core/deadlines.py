"""The next deadline of each GPU: when something must be decided there.

Rules:
1. The end of a turn is computed when it is needed, not whenever it may have changed: a GPU changes many times
   in the first moments of a turn, which nothing can end.
2. It is computed from the state that the last decision left, and for the moment of that decision. So it makes
   no difference whether it is needed at once, later or never. Code that changes the books of a GPU or moves
   its clock without making a decision settles the deadline first.
3. Until then a lower bound is known. ``bound_ns`` is never later than the next deadline of any GPU.
"""

from __future__ import annotations

import heapq
from typing import Final

from nvshare.core.account import NEVER
from nvshare.core.gpu import Gpu
from nvshare.core.policy import turn_end, undrained

HEAP_LEAST: Final = 64


def next_deadline_ns(gpu: Gpu, drop_ns: int, now_ns: int) -> int:
    """When something is due on a GPU whose current turn ends at ``drop_ns``."""
    occupants, resident_set = gpu.occupants, gpu.resident_set
    if occupants.draining:
        at_ns = occupants.drain_deadline_ns
    else:
        at_ns = drop_ns if occupants.holder is not None or occupants.group else gpu.deadline.wake_ns
        if resident_set.check_ns < at_ns:
            at_ns = resident_set.check_ns
    if gpu.idle_tenants.next_ns < at_ns:
        at_ns = gpu.idle_tenants.next_ns
    if gpu.resuming.deadline_ns < at_ns:
        at_ns = gpu.resuming.deadline_ns
    if gpu.gpu_time.deadline_ns < at_ns:
        at_ns = gpu.gpu_time.deadline_ns
    if occupants.undrained or gpu.queue.urgent:
        at_ns = min(at_ns, undrained.next_deadline_ns(gpu))
    if gpu.recalls.next_ns < at_ns:
        at_ns = gpu.recalls.next_ns
    if gpu.sent_hints.due_ns < at_ns:
        at_ns = gpu.sent_hints.due_ns
    return at_ns if at_ns > now_ns else now_ns + 1  # everything due now has been dealt with


class Deadlines:
    """The next deadline of each GPU, in a heap."""

    __slots__ = ("_heap", "_most", "_serial", "_unqueued", "bound_ns")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Gpu]] = []  # an entry is valid if it equals ``queued_ns`` of its GPU
        self._unqueued: list[Gpu] = []  # GPUs whose deadline is not in the heap
        self._most = HEAP_LEAST  # entries, before stale ones are removed
        self._serial = 0
        self.bound_ns = NEVER

    def note(self, gpu: Gpu, drop_ns: int, now_ns: int) -> None:
        """A decision was made: the current turn ends at ``drop_ns``, or later if that is not computed yet."""
        deadline, at_ns = gpu.deadline, next_deadline_ns(gpu, drop_ns, now_ns)
        deadline.set(at_ns)
        if at_ns < self.bound_ns:
            self.bound_ns = at_ns
        if at_ns != deadline.queued_ns or deadline.end_open:
            self._unqueue(gpu)

    def hasten(self, gpu: Gpu, at_ns: int) -> None:
        """Something is due without a decision, possibly before everything else."""
        deadline = gpu.deadline
        if at_ns < deadline.at_ns:
            deadline.set(at_ns)
            if at_ns < self.bound_ns:
                self.bound_ns = at_ns
            self._unqueue(gpu)

    def _unqueue(self, gpu: Gpu) -> None:
        """Invalidate its entry in the heap, if it has one."""
        deadline = gpu.deadline
        deadline.set_queued(NEVER)
        if not deadline.unqueued:
            deadline.set_unqueued(True)
            self._unqueued.append(gpu)

    def settle(self, gpu: Gpu) -> None:
        """Compute the end of the turn, if that was put off."""
        deadline = gpu.deadline
        if deadline.end_open:
            deadline.leave_end(False)
            decided_ns = gpu.pace.clock.at_ns
            drop_ns, _ = turn_end.turn_end(gpu, decided_ns)
            deadline.set(next_deadline_ns(gpu, drop_ns, decided_ns))

    def next_ns(self) -> int | None:
        """When the first GPU is due."""
        if self._unqueued:
            self._queue_all()
        heap = self._heap
        while heap:
            at_ns, _, gpu = heap[0]
            if gpu.deadline.queued_ns == at_ns:
                self.bound_ns = at_ns
                return at_ns
            heapq.heappop(heap)
        self.bound_ns = NEVER
        return None

    def pop_due(self, now_ns: int) -> list[Gpu]:
        """The GPUs that are due; those due at the same moment in the order in which they were found."""
        if self._unqueued:
            self._queue_all()
        heap = self._heap
        due: list[Gpu] = []
        while heap and heap[0][0] <= now_ns:
            at_ns, _, gpu = heapq.heappop(heap)
            if gpu.deadline.queued_ns == at_ns:
                gpu.deadline.set_queued(NEVER)
                due.append(gpu)
        if len(due) > 1:
            due.sort(key=lambda gpu: (gpu.deadline.at_ns, gpu.deadline.order))
        self.bound_ns = heap[0][0] if heap else NEVER
        return due

    def _queue_all(self) -> None:
        heap = self._heap
        for gpu in self._unqueued:
            deadline = gpu.deadline
            deadline.set_unqueued(False)
            if deadline.end_open:
                self.settle(gpu)
            at_ns = deadline.at_ns
            if at_ns != deadline.queued_ns:
                deadline.set_queued(at_ns)
                if at_ns < NEVER:
                    self._serial += 1
                    heapq.heappush(heap, (at_ns, self._serial, gpu))
        self._unqueued.clear()
        if len(heap) > self._most:
            self._heap = [entry for entry in heap if entry[2].deadline.queued_ns == entry[0]]
            heapq.heapify(self._heap)
            self._most = 2 * len(self._heap) + HEAP_LEAST
