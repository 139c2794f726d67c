"""The deadline of one GPU, as far as it is known. ``deadlines`` maintains it."""

from __future__ import annotations

from nvshare.core.account import NEVER


class GpuDeadline:
    __slots__ = ("at_ns", "end_open", "order", "queued_ns", "unqueued", "wake_ns")

    def __init__(self, order: int) -> None:
        self.order = order  # in which the GPUs were found
        self.at_ns = NEVER  # or later ...
        self.end_open = False  # ... if the end of the current turn has not been computed yet
        self.queued_ns = NEVER  # its deadline in the heap of all GPUs
        self.unqueued = False
        self.wake_ns = NEVER  # of an empty GPU: when the first in the queue may run

    def leave_end(self, is_open: bool) -> None:
        self.end_open = is_open

    def wake_at(self, at_ns: int) -> None:
        self.wake_ns = at_ns

    def set(self, at_ns: int) -> None:
        self.at_ns = at_ns

    def set_queued(self, at_ns: int) -> None:
        self.queued_ns = at_ns

    def set_unqueued(self, unqueued: bool) -> None:
        self.unqueued = unqueued
