"""The catalog of the k8s-vgpu-monitor profile's port, 8080: the names of that program and of its HTTP
library.
"""

from __future__ import annotations

from typing import Final

from nvshare.metrics.catalog import Catalog, Subject
from nvshare.metrics.rows import FIXED, Rows

_POD: Final = ("gpu_id", "pod", "namespace")

row = Rows("")
SM_UTIL = row(
    "pod_gpu_sm_util",
    _POD,
    "Percent of the GPU's time in which the pod's processes ran kernels.",
    "nvml",
    FIXED,
)
MEMORY_USED = row(
    "pod_gpu_memory_used", _POD, "GPU memory that the pod's processes have, in MiB.", "nvml", FIXED
)
TOTAL_MEMORY = row(
    "pod_total_gpu_memory",
    _POD,
    "Memory of the GPU divided by the number in gpu_allocation.txt: the pod's part, in MiB.",
    "nvml",
    FIXED,
)
TRANSFERRED = row("exposer_transferred_bytes_total", (), "Bytes of metrics that were sent.", "daemon", FIXED)
SCRAPES = row("exposer_scrapes_total", (), "Requests for metrics.", "daemon", FIXED)
LATENCIES = row(
    "exposer_request_latencies",
    (),
    "Microseconds that requests for metrics took.",
    "daemon",
    FIXED,
    "summary",
)
NAMESPACE: Final = "namespace"

VGPU: Final = Catalog(
    subjects=(Subject("Pods", ("pod_",)), Subject("The port", ("exposer_",))),
    rows=(row,),
    debug_labels=frozenset({NAMESPACE}),
)
"""The label that can be switched off is marked as a debug label."""
