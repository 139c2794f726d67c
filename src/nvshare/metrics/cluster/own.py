"""GPUs that nvshare's device plugin shares, by the annotation of their nodes."""

from __future__ import annotations

from typing import Final

from nvshare.metrics.rows import Rows

_GPU: Final = ("node", "gpu_uuid", "gpu_index", "gpu_name")
_POD: Final = ("namespace", "pod", "node", "gpu_uuid")

row = Rows()
DEVICES = row(
    "nvshare_cluster_gpu_devices", _GPU, "Devices of nvshare.com/gpu that the GPU is offered as.", "plugin"
)
ALLOCATED = row("nvshare_cluster_gpu_devices_allocated", _GPU, "Devices of the GPU that pods hold.", "plugin")
FREE = row("nvshare_cluster_gpu_devices_free", _GPU, "Devices of the GPU that nobody holds.", "plugin")
MEMORY = row("nvshare_cluster_gpu_memory_bytes", _GPU, "Memory of the GPU.", "plugin")
OVERSUBSCRIPTION = row(
    "nvshare_cluster_gpu_memory_oversubscription_ratio",
    _GPU,
    "Memory limits of the pods that hold the GPU by the GPU's memory: more than 1 can be limited, not held.",
    "kubernetes",
)
HEALTHY = row(
    "nvshare_cluster_gpu_healthy", _GPU, "1 if the plugin finds no fault with the GPU, else 0.", "plugin"
)
POD_DEVICES = row("nvshare_cluster_pod_devices", _POD, "Devices of the GPU that the pod holds.", "plugin")
POD_MEMORY_LIMIT = row(
    "nvshare_cluster_pod_memory_limit_bytes",
    _POD,
    "Memory limit of the pod by its annotation; missing if it has none.",
    "kubernetes",
)
POD_CORE_LIMIT = row(
    "nvshare_cluster_pod_core_limit_percent",
    _POD,
    "Compute limit of the pod by its annotation; missing if it has none.",
    "kubernetes",
)
