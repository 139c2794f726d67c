"""The five workloads. Each prints what verification reads: PASS and `--- x seconds ---`, W5 its probes."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from nvshare.workloads.gpu import Adder, Gpu

LARGE_N: Final = 28000
SMALL_N: Final = 14000
ADDS_PER_MARK: Final = 4
MARKS_IN_FLIGHT: Final = 16
IDLE_SECONDS: Final = 0.1
LOOP_BYTES: Final = 512 << 20
# Matrices of which two do not fit in 16 and in 40 GiB, by the seeds; above that, by the card's size.
OVERSIZE_N: Final = ((16 << 30, 52000), (40 << 30, 76000))


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line can change."""

    scale: float = 1.0
    iterations: int | None = None
    size: int | None = None
    duration_seconds: float = 300.0
    interval_seconds: float = 10.0
    probe_bytes: int | None = None
    probe_every_seconds: float = 10.0
    oversize: bool = False
    alloc_bytes: int = LOOP_BYTES

    def count(self, default: int) -> int:
        """Iterations to run: at least one."""
        return max(1, math.ceil((self.iterations or default) * self.scale))


@contextmanager
def _timed() -> Iterator[None]:
    start = time.monotonic()
    yield
    print("PASS", flush=True)
    print(f"--- {time.monotonic() - start:.3f} seconds ---", flush=True)


def _steps(count: int, title: str) -> Iterator[int]:
    """Numbers up to `count`, with a progress bar on a terminal."""
    if not sys.stderr.isatty():
        yield from range(count)
        return
    from rich.console import Console
    from rich.progress import track

    yield from track(range(count), title, console=Console(stderr=True))


def _add_many(adder: Adder, count: int, title: str) -> None:
    for _ in _steps(count, title):
        adder.add()
    adder.synchronize()


def w1(gpu: Gpu, options: Options) -> None:
    """Large matrices: 4 x 2.92 GiB, 4000 additions."""
    with _timed():
        _add_many(gpu.adder(options.size or LARGE_N), options.count(4000), "w1")


def w2(gpu: Gpu, options: Options) -> None:
    """Small matrices: 4 x 0.73 GiB, 40000 additions."""
    with _timed():
        _add_many(gpu.adder(options.size or SMALL_N), options.count(40000), "w2")


def w3(gpu: Gpu, options: Options) -> None:
    """Small matrices, mostly idle: 4000 times an addition, a synchronisation and a pause."""
    with _timed():
        adder = gpu.adder(options.size or SMALL_N)
        for _ in _steps(options.count(4000), "w3"):
            adder.add()
            adder.synchronize()
            time.sleep(IDLE_SECONDS)


def oversize_n(total_bytes: int) -> int:
    """The side of a matrix of which two do not fit on the card."""
    for card_bytes, n in OVERSIZE_N:
        if total_bytes <= card_bytes:
            return n
    return math.isqrt(total_bytes // 8) + 1000


def w4(gpu: Gpu, options: Options) -> None:
    """Allocate and free in a loop; with `oversize`, one addition that exceeds the card."""
    with _timed():
        if options.oversize:
            _add_many(gpu.adder(options.size or oversize_n(gpu.total_bytes)), 1, "w4")
            return
        for _ in _steps(options.count(200), "w4"):
            gpu.allocate_and_free(options.alloc_bytes)


class _Probe:
    """W5's two clocks: the throughput line and the extra allocation."""

    def __init__(self, gpu: Gpu, options: Options, now: float) -> None:
        self._gpu = gpu
        self._options = options
        self._start = self._line_at = now
        self._line_done = 0
        self._next_line = now + options.interval_seconds
        self._next_allocation = now + options.probe_every_seconds

    def look(self, now: float, done: int) -> None:
        """Print what is due; `done` additions are complete."""
        if now >= self._next_line:
            elapsed, last = now - self._start, now - self._line_at
            print(
                f"[XPUSHARE][QUOTA_PROBE] elapsed={elapsed:.1f}s it={done} it_per_sec={done / elapsed:.2f} "
                f"last_it_per_sec={(done - self._line_done) / last:.2f}",
                flush=True,
            )
            self._line_at, self._line_done = now, done
            self._next_line += self._options.interval_seconds
        if self._options.probe_bytes is not None and now >= self._next_allocation:
            answer = "ok" if self._gpu.try_allocation(self._options.probe_bytes) else "refused"
            print(f"ALLOC_PROBE {answer} bytes={self._options.probe_bytes}", flush=True)
            self._next_allocation += self._options.probe_every_seconds


def w5(gpu: Gpu, options: Options) -> None:
    """Additions for a fixed time, with the rate of completions at a fixed interval."""
    adder = gpu.adder(options.size or SMALL_N)
    with _timed():
        start = time.monotonic()
        end = start + options.duration_seconds * options.scale
        probe = _Probe(gpu, options, start)
        marks = 0
        while time.monotonic() < end:
            for _ in range(ADDS_PER_MARK):
                adder.add()
            adder.mark()
            marks += 1
            adder.wait_for_mark(marks - MARKS_IN_FLIGHT)
            probe.look(time.monotonic(), adder.passed_marks() * ADDS_PER_MARK)
        adder.synchronize()


WORKLOADS: Final[dict[str, Callable[[Gpu, Options], None]]] = {
    "w1": w1,
    "w2": w2,
    "w3": w3,
    "w4": w4,
    "w5": w5,
}
