"""When a GPU must be looked at again, as far as it is known; ``deadlines`` keeps it."""

from __future__ import annotations

from nvshare.core.account import NEVER


class Look:
    __slots__ = ("deadline_ns", "end_open", "order", "queued_ns", "unqueued", "wake_ns")

    def __init__(self, order: int) -> None:
        self.order = order  # in which the GPUs were seen
        self.deadline_ns = NEVER  # not before ...
        self.end_open = False  # ... if the end of the present turn has not been computed yet
        self.queued_ns = NEVER  # the deadline the heap of all GPUs knows of
        self.unqueued = False
        self.wake_ns = NEVER  # of an empty GPU: when the first in line may run

    def leave_end(self, is_open: bool) -> None:
        self.end_open = is_open

    def wake_at(self, at_ns: int) -> None:
        self.wake_ns = at_ns

    def set_deadline(self, at_ns: int) -> None:
        self.deadline_ns = at_ns

    def set_queued(self, at_ns: int) -> None:
        self.queued_ns = at_ns

    def set_unqueued(self, unqueued: bool) -> None:
        self.unqueued = unqueued
