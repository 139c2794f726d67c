"""Logs what the core finds wrong with itself.

A new fault is logged within a second. A persistent one is logged again every ten seconds, with the total
count, so that the log shows it without being flooded.
"""

from __future__ import annotations

import logging
from typing import Final

from nvshare.core.audit import Health
from nvshare.runtime import logs

LOGGED_AGAIN_NS: Final = 10_000_000_000


class AuditLog:
    def __init__(self, health: Health) -> None:
        self._health = health
        self._counts_logged = (0, 0)
        self._fault_logged = ""
        self._logged_ns = 0

    def look(self, now_ns: int) -> None:
        health = self._health
        counts = (health.books_wrong, health.clock_went_back)
        if counts == self._counts_logged:
            return
        if health.last_fault == self._fault_logged and now_ns - self._logged_ns < LOGGED_AGAIN_NS:
            return
        self._counts_logged, self._fault_logged, self._logged_ns = counts, health.last_fault, now_ns
        logs.event(
            logging.ERROR,
            "the scheduler found an inconsistency in its own books",
            fault=health.last_fault,
            books_wrong=health.books_wrong,
            clock_went_back=health.clock_went_back,
        )
