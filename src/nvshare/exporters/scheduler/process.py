"""The daemon as a process. It runs in a thread: counting descriptors takes longer the more there are."""

from __future__ import annotations

import os
import resource
import threading
import time
from typing import Final

from nvshare.exporters.scheduler import EXPORTERS
from nvshare.exporters.scheduler.view import View
from nvshare.exporters.steps import Families
from nvshare.metrics.families import Family
from nvshare.metrics.scheduler import daemon as c
from nvshare.pods.peer import process_of

_PAGE_BYTES: Final = os.sysconf("SC_PAGESIZE")
_TICKS_PER_SEC: Final = os.sysconf("SC_CLK_TCK")


def started_sec() -> float:
    """When this process started, by the wall clock."""
    own = process_of(os.getpid())
    up_sec = time.clock_gettime(time.CLOCK_BOOTTIME)
    return round(time.time() - up_sec + (own.start_ticks if own else 0) / _TICKS_PER_SEC, 2)


STARTED_SEC: Final = started_sec()


def families(_view: View) -> Families:
    with open("/proc/self/statm") as file:
        virtual_pages, resident_pages = (int(word) for word in file.read().split()[:2])
    yield from [
        Family(c.PROCESS_CPU, [((), time.process_time())]),
        Family(c.PROCESS_RSS, [((), resident_pages * _PAGE_BYTES)]),
        Family(c.PROCESS_VIRTUAL, [((), virtual_pages * _PAGE_BYTES)]),
        Family(c.PROCESS_FDS, [((), len(os.listdir("/proc/self/fd")))]),
        Family(c.PROCESS_MAX_FDS, [((), resource.getrlimit(resource.RLIMIT_NOFILE)[0])]),
        Family(c.PROCESS_THREADS, [((), threading.active_count())]),
        Family(c.PROCESS_START, [((), STARTED_SEC)]),
    ]


EXPORTERS.register(__name__, lambda: families, in_thread=True)
