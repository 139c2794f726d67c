"""Measures how late the event loop is: a timer every PROBE_NS that has nothing else to do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from nvshare.runtime.durations import DurationHistogram

PROBE_NS: Final = 250_000_000


class LoopProbe:
    """``probed`` is called with the time after each measurement."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], int],
        lag: DurationHistogram,
        probed: Callable[[int], None],
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._lag = lag
        self._probed = probed

    def start(self, now_ns: int) -> None:
        self._probe(now_ns)

    def _probe(self, expected_ns: int) -> None:
        now_ns = self._clock()
        self._lag.add(max(0, now_ns - expected_ns))
        self._probed(now_ns)
        self._loop.call_later(PROBE_NS / 1e9, self._probe, now_ns + PROBE_NS)
