"""Every metric of the scheduler's port: one row each, one file per subject.

The exposition, docs/metrics.md and the completeness test are made from the rows; dashboards refer to them by
name. Names, labels and label order of FIXED rows never change.
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
"""Heading -> the prefix of its metrics; the first that fits."""

_ROWS: Final = [
    *gpus.row.all,
    *clients.row.all,
    *scheduler.row.all,
    *pods.row.all,
    *daemon.row.all,
]
CATALOG: Final[dict[str, Metric]] = {row.name: row for row in _ROWS}
"""By name, in display order."""
assert len(CATALOG) == len(_ROWS), "a name is there twice"


def subject_of(metric: Metric) -> str:
    return next(title for title, prefixes in SUBJECTS.items() if metric.name.startswith(prefixes))
