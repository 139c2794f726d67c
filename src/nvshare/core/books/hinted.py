"""What clients were last told of the others."""

from __future__ import annotations

from nvshare.core.account import NEVER


class Hinted:
    """One GPU's clients: all but newcomers know this, or will by ``due_ns``."""

    __slots__ = ("beside", "due_ns", "everybody_ns", "holders_ns", "limited_present", "paced_ns", "waits")

    def __init__(self) -> None:
        self.waits = False
        self.beside = False
        self.limited_present = False
        self.paced_ns = -NEVER  # since when clients have been told to keep their queues short
        self.holders_ns = -NEVER  # before then holders are not told anything else (``crowd``)
        self.everybody_ns = -NEVER  # and nor is everybody
        self.due_ns = NEVER  # when those are told who could not be

    def holders(self, waits: bool, beside: bool, again_ns: int) -> None:
        self.waits, self.beside = waits, beside
        self.holders_ns = again_ns

    def everybody(self, limited_present: bool, now_ns: int) -> None:
        self.limited_present = limited_present
        if limited_present:
            self.paced_ns = now_ns

    def leave_out(self, lost_ns: int) -> None:
        """So long nobody could be told anything; holds that began before that still did."""
        self.paced_ns += lost_ns

    def everybody_again(self, again_ns: int) -> None:
        self.everybody_ns = again_ns

    def tell_at(self, at_ns: int) -> None:
        if at_ns < self.due_ns:
            self.due_ns = at_ns

    def told(self) -> None:
        self.due_ns = NEVER
