"""What the driver says of the processes of pods, by their cgroups."""

from __future__ import annotations

from typing import Final

from nvshare.metrics.rows import GPU, Rows

_CONTAINER: Final = ("namespace", "pod", "container", *GPU)

row = Rows()
POD_MEMORY = row(
    "nvshare_monitor_pod_memory_used_bytes",
    _CONTAINER,
    "GPU memory of a container without HAMi's library, by the driver.",
    "nvml",
)
POD_UTILISATION = row(
    "nvshare_monitor_pod_sm_utilization_ratio",
    _CONTAINER,
    "Fraction of the GPU's time in which a container without HAMi's library ran kernels, 0 to 1.",
    "nvml",
)
POD_PROCESSES = row(
    "nvshare_monitor_pod_processes",
    _CONTAINER,
    "Processes of a container without HAMi's library on the GPU.",
    "nvml",
)
HAMI_MEMORY = row(
    "nvshare_monitor_gpu_hami_memory_used_bytes",
    GPU,
    "GPU memory of all containers with HAMi's library, by the driver, which also counts what the library does"
    " not.",
    "nvml",
)
OTHER_MEMORY = row(
    "nvshare_monitor_gpu_other_memory_used_bytes",
    GPU,
    "GPU memory of processes that are in no pod of this node.",
    "nvml",
)
GPU_MEMORY = row("nvshare_monitor_gpu_memory_total_bytes", GPU, "Memory of the GPU.", "nvml")
POD_LABELS: Final = "nvshare_monitor_pod_labels"
"""Its labels are those that a setting names, so its row is made when the monitor starts."""
LABELS_HELP: Final = (
    "1 for each pod with a GPU, with those of its labels that NVSHARE_MONITOR_POD_LABELS names."
)
