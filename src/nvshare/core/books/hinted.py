"""What clients were last told of the others."""

from __future__ import annotations


class Hinted:
    """One GPU's clients: all but newcomers know this."""

    __slots__ = ("beside", "limited_present", "waits")

    def __init__(self) -> None:
        self.waits = False
        self.beside = False
        self.limited_present = False

    def holders(self, waits: bool, beside: bool) -> None:
        self.waits, self.beside = waits, beside

    def everybody(self, limited_present: bool) -> None:
        self.limited_present = limited_present
