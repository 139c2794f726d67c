"""One sample of a GPU: plain immutable values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple


class Seen(NamedTuple):
    """A process as /proc shows it; its start time makes it unique for ever."""

    start_ticks: int
    owner: str  # the tenant by its cgroup, or ""


class ProcessReading(NamedTuple):
    pid: int
    start_ticks: int
    owner: str
    used_bytes: int | None  # None where the driver does not report it
    sm_percent: int | None


class Worked(NamedTuple):
    """For how long a GPU worked for whom, from the last word on it to a moment (``utilisation``)."""

    until_ns: int
    length_ns: int  # 0: there is no news
    complete: bool
    by_pid: Mapping[int, int]  # also of processes that are no longer listed


@dataclass(frozen=True, slots=True)
class GpuReading:
    """None: the card or the driver does not report it. All is of one sample."""

    uuid: str
    index: int
    taken_ns: int
    name: str | None = None
    total_bytes: int | None = None
    used_bytes: int | None = None
    free_bytes: int | None = None
    gpu_percent: int | None = None
    memory_percent: int | None = None
    celsius: int | None = None
    milliwatts: int | None = None
    millijoules: int | None = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    xids: int | None = None
    last_xid: int = 0
    process_count: int | None = None  # of all that the driver lists, including those that /proc hides from us
    processes: tuple[ProcessReading, ...] | None = None
    worked: Worked | None = None  # None where the driver does not tell
    simulated: bool = False


@dataclass(frozen=True, slots=True)
class SourceState:
    """Whether a source answers, how often it hung or failed, and the time of its figures."""

    up: bool
    hangs: int
    failures: int
    taken_ns: int  # -1: there are none
