"""Tells the log what the core found wrong with itself.

A fault that is new is told within a second. One that goes on and on is told again every ten seconds, with how
often it was found in all: the log says that it goes on, and is not flooded by it.
"""

from __future__ import annotations

import logging
from typing import Final

from nvshare.core.audit import Health
from nvshare.runtime import logs

TOLD_AGAIN_NS: Final = 10_000_000_000


class HealthWatch:
    def __init__(self, health: Health) -> None:
        self._health = health
        self._counts_told = (0, 0)
        self._fault_told = ""
        self._told_ns = 0

    def look(self, now_ns: int) -> None:
        health = self._health
        counts = (health.books_wrong, health.clock_went_back)
        if counts == self._counts_told:
            return
        if health.last_fault == self._fault_told and now_ns - self._told_ns < TOLD_AGAIN_NS:
            return
        self._counts_told, self._fault_told, self._told_ns = counts, health.last_fault, now_ns
        logs.event(
            logging.ERROR,
            "the scheduler found an inconsistency in its own books",
            fault=health.last_fault,
            books_wrong=health.books_wrong,
            clock_went_back=health.clock_went_back,
        )
