"""Where the monitor's figures come from, what could not be read, and the monitor itself."""

from __future__ import annotations

import os
import time
from collections import Counter
from typing import Final

from nvshare.build import build_labels
from nvshare.exporters.monitor import EXPORTERS
from nvshare.exporters.monitor.view import View
from nvshare.exporters.steps import Families
from nvshare.metrics.families import Family
from nvshare.metrics.monitor import daemon as c
from nvshare.metrics.monitor.hami import BUILD_INFO
from nvshare.runtime import logs

_PAGE_BYTES: Final = os.sysconf("SC_PAGESIZE")
COMPLAINTS_MAX: Final = 1024


class Sources:
    """Remembers which containers were complained about, so that each is in the log once."""

    def __init__(self) -> None:
        self._complained: dict[tuple[str, str], str] = {}

    def families(self, view: View) -> Families:
        containers = view.containers()
        self._complain(view)
        states = view.sources.items()
        yield Family(c.SOURCE_UP, [((name,), int(state.up)) for name, state in states])
        ages = [((name,), (view.taken_ns - s.taken_ns) / 1e9) for name, s in states if s.taken_ns >= 0]
        yield Family(c.SOURCE_AGE, ages)
        yield Family(c.SOURCE_FAILURES, [((name,), state.failures) for name, state in states])
        yield Family(c.REGIONS, [((), len(containers.known))])
        yield Family(c.REFUSED, [((reason,), n) for reason, n in sorted(containers.refused.items())])
        yield Family(c.UNKNOWN_PODS, [((), containers.unknown_pods)])
        rows = [((one.pod.namespace, one.pod.name, one.container), one) for one in containers.known]
        yield Family(c.DEAD, [(labels, one.dead) for labels, one in rows])
        yield Family(c.UNVERIFIED, [(labels, one.unverified) for labels, one in rows])
        yield Family(c.UNSTABLE, [(labels, one.region.unstable) for labels, one in rows])
        pods = {pod.uid: pod for pod in view.pods.values()}.values()
        malformed = Counter(annotation for pod in pods for annotation in pod.malformed)
        yield Family(c.MALFORMED, [((annotation,), n) for annotation, n in sorted(malformed.items())])
        yield Family(c.CALLBACK_ERRORS, [((), view.callback_errors)])
        yield Family(c.PROCESS_CPU, [((), time.process_time())])
        with open("/proc/self/statm") as file:
            yield Family(c.PROCESS_RSS, [((), int(file.read().split()[1]) * _PAGE_BYTES)])
        yield Family(BUILD_INFO, [(build_labels(), 1)])

    def _complain(self, view: View) -> None:
        now: dict[tuple[str, str], str] = {}
        for one in view.containers().complaints[:COMPLAINTS_MAX]:
            key = (one.pod_uid, one.container)
            now[key] = one.refused
            if self._complained.get(key) != one.refused:
                pod = view.pods.get(one.pod_uid)
                name = f"{pod.namespace}/{pod.name}" if pod is not None else one.pod_uid
                logs.warning("region cannot be read", pod=name, container=one.container, why=one.detail)
        self._complained = now


EXPORTERS.register(__name__, lambda: Sources().families, in_thread=True)
