"""Whether the books are right: everything that is kept as a sum or in two places is recomputed and compared.

Rules:
1. Nothing is decided here, and nothing is mended: a difference is a bug of ours.
2. With ``EVERY_EVENT`` each event ends with an audit of the GPU it touched, and a difference raises. With
   ``SAMPLED`` one event in many does, and a difference is counted and kept for whoever looks.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Checking(NamedTuple):
    """How often the books are audited, and whether a difference raises."""

    every_events: int
    fatal: bool


EVERY_EVENT: Final = Checking(1, True)
SAMPLED: Final = Checking(4096, False)


class BooksError(AssertionError):
    """The books contradict themselves."""


class Health:
    """What the core found wrong with itself or with its driver."""

    __slots__ = ("books_wrong", "clock_went_back", "last_fault")

    def __init__(self) -> None:
        self.books_wrong = 0  # audits that found a difference
        self.clock_went_back = 0  # events whose time was before the last one's
        self.last_fault = ""
