"""The catalog of the scheduler's port, 9402. Names, labels and label order of FIXED rows never change."""

from __future__ import annotations

from typing import Final

from nvshare.metrics.catalog import Catalog, Subject
from nvshare.metrics.scheduler import client, daemon, gpu, kubernetes, pod, scheduler

SCHEDULER: Final = Catalog(
    subjects=(
        Subject("GPUs", ("nvshare_nvml_", "nvshare_gpu_")),
        Subject("Clients", ("nvshare_client_",)),
        Subject("Pods", ("nvshare_pod_", "nvshare_unmanaged_")),
        Subject("Scheduler", ("nvshare_scheduler_",)),
        Subject("Kubernetes", ("nvshare_kubernetes_",)),
        Subject("The daemon and its sources", ("nvshare_",)),
    ),
    rows=(gpu.row, client.row, scheduler.row, pod.row, kubernetes.row, daemon.row),
    debug_labels=frozenset({"client_id", "host_pid"}),
)
