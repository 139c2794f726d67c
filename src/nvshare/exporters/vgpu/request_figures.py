"""What prometheus-cpp says of the requests that it answers: bytes, requests, and how long they took."""

from __future__ import annotations

from bisect import insort
from collections import deque
from typing import Final

from nvshare.metrics.families import Quantiles

_QUANTILES: Final = (0.5, 0.9, 0.99)
_KEPT: Final = 512
"""The last requests; quantiles are of these."""


class RequestFigures:
    def __init__(self) -> None:
        self.bytes_sent = 0
        self.scrapes = 0
        self._total_us = 0.0
        self._last: deque[float] = deque()
        self._sorted: list[float] = []

    def add(self, sent_bytes: int, took_us: float) -> None:
        self.bytes_sent += sent_bytes
        self.scrapes += 1
        self._total_us += took_us
        self._last.append(took_us)
        insort(self._sorted, took_us)
        if len(self._last) > _KEPT:
            self._sorted.remove(self._last.popleft())

    def latencies(self) -> Quantiles:
        count = len(self._sorted)
        found = tuple(
            (part, self._sorted[min(count - 1, int(part * count))] if count else float("nan"))
            for part in _QUANTILES
        )
        return Quantiles(found, self._total_us, self.scrapes)
