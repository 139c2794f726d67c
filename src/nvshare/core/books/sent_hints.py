"""The hints that clients were last sent."""

from __future__ import annotations

from nvshare.core.account import NEVER


class SentHints:
    """What all clients of a GPU but newcomers were sent, or will be by ``due_ns``."""

    __slots__ = ("beside", "due_ns", "everybody_ns", "holders_ns", "limited_present", "paced_ns", "waits")

    def __init__(self) -> None:
        self.waits = False
        self.beside = False
        self.limited_present = False
        self.paced_ns = -NEVER  # since when clients have kept their queues short
        self.holders_ns = -NEVER  # holders are sent nothing else before then (``fan_out``)
        self.everybody_ns = -NEVER  # and all clients are not before then
        self.due_ns = NEVER  # when to send what was put off

    def holders(self, waits: bool, beside: bool, again_ns: int) -> None:
        self.waits, self.beside = waits, beside
        self.holders_ns = again_ns

    def everybody(self, limited_present: bool, now_ns: int) -> None:
        self.limited_present = limited_present
        if limited_present:
            self.paced_ns = now_ns

    def exclude_standstill(self, lost_ns: int) -> None:
        """Nothing could be sent during that time; holds that began before it still did."""
        self.paced_ns += lost_ns

    def everybody_again(self, again_ns: int) -> None:
        self.everybody_ns = again_ns

    def send_at(self, at_ns: int) -> None:
        if at_ns < self.due_ns:
            self.due_ns = at_ns

    def clear_due(self) -> None:
        self.due_ns = NEVER
