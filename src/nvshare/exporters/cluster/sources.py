"""Where the exporter's figures come from, what was malformed, and the exporter itself."""

from __future__ import annotations

import os
import time
from typing import Final

from nvshare.build import build_labels
from nvshare.exporters.cluster import EXPORTERS
from nvshare.exporters.cluster.view import View
from nvshare.exporters.steps import Families
from nvshare.metrics.cluster import daemon as c
from nvshare.metrics.cluster.hami import BUILD_INFO
from nvshare.metrics.families import Family

_PAGE_BYTES: Final = os.sysconf("SC_PAGESIZE")


def families(view: View) -> Families:
    sources = view.sources.items()
    yield Family(c.SOURCE_UP, [((name,), int(one.up)) for name, one in sources])
    ages = [((name,), (view.taken_ns - one.current_ns) / 1e9) for name, one in sources if one.current_ns >= 0]
    yield Family(c.SOURCE_AGE, ages)
    yield Family(c.SOURCE_FAILURES, [((name,), one.failures) for name, one in sources])
    yield Family(c.EVENTS, [((name,), one.events) for name, one in sources])
    counts = (len(view.nodes), len(view.pods), len(view.allocations.quotas))
    yield Family(c.OBJECTS, [((name,), count) for name, count in zip(view.sources, counts, strict=True)])
    malformed = sorted(view.allocations.malformed.items())
    yield Family(c.MALFORMED, [((annotation,), n) for annotation, n in malformed])
    yield Family(c.CALLBACK_ERRORS, [((), view.callback_errors)])
    yield Family(c.PROCESS_CPU, [((), time.process_time())])
    with open("/proc/self/statm") as file:
        yield Family(c.PROCESS_RSS, [((), int(file.read().split()[1]) * _PAGE_BYTES)])
    yield Family(BUILD_INFO, [(build_labels(), 1)])


EXPORTERS.register(__name__, lambda: families, in_thread=True)
