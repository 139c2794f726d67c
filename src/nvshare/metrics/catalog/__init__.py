"""Every metric of the scheduler's port, one row each, in a file a subject.

From a row come the exposition, docs/metrics.md and the test that nothing is missing or beside it; dashboards
pick from them by name. Names, labels and their order in rows that are FIXED never change.
"""

from __future__ import annotations

from typing import Final

from nvshare.metrics.catalog import clients, daemon, gpus, pods, scheduler
from nvshare.metrics.families import Metric

DEBUG_LABELS: Final = frozenset({"client_id", "host_pid"})
"""Left out with NVSHARE_METRICS_DEBUG_LABELS=0: processes come and go, pods and GPUs stay."""

SUBJECTS: Final = {
    "GPUs": ("nvshare_nvml_", "nvshare_gpu_"),
    "Clients": ("nvshare_client_",),
    "Pods": ("nvshare_pod_", "nvshare_unmanaged_"),
    "Scheduler": ("nvshare_scheduler_",),
    "The daemon and its sources": ("nvshare_",),
}
"""Heading -> what its metrics begin with; the first that fits."""

_ROWS: Final = [
    *gpus.row.all,
    *clients.row.all,
    *scheduler.row.all,
    *pods.row.all,
    *daemon.row.all,
]
CATALOG: Final[dict[str, Metric]] = {row.name: row for row in _ROWS}
"""By name, in the order in which they are shown."""
assert len(CATALOG) == len(_ROWS), "a name is there twice"


def subject_of(metric: Metric) -> str:
    return next(title for title, prefixes in SUBJECTS.items() if metric.name.startswith(prefixes))
