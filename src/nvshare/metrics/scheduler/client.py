"""Clients: one process of a pod on one GPU."""

from __future__ import annotations

from typing import Final

from nvshare.metrics.rows import CLIENT, FIXED, NO_ZEROS, POD, Rows

_MEASURED: Final = (
    "left out until NVML has reported the process; if the process was never nearly idle, what NVML counts"
    " in addition to its allocations"
)
_OF_THE_POD: Final = "the pod's figure, the same on each of its processes: quotas belong to the pod"

row = Rows()
CLIENT_INFO = row(
    "nvshare_client_info",
    (*CLIENT, "gpu_index", "host_pid"),
    "1 for each connected process of a pod on a GPU.",
    "scheduler",
    FIXED,
)
CLIENT_ALLOCATED = row(
    "nvshare_client_managed_allocated_bytes",
    CLIENT,
    "Memory that the process has allocated through nvshare.",
    "scheduler",
    FIXED,
    merge="sum",
)
CLIENT_PEAK = row(
    "nvshare_client_managed_allocated_peak_bytes",
    CLIENT,
    "The largest amount that the process has had allocated at once.",
    "scheduler",
    FIXED,
    merge="sum",
)
CLIENT_NVML_USED = row(
    "nvshare_client_nvml_used_bytes",
    (*CLIENT, "host_pid"),
    "Memory of the process as NVML counts it, 0 if NVML does not list it.",
    "nvml",
    FIXED,
    merge="sum",
    note=NO_ZEROS,
)
CLIENT_SM_UTILIZATION = row(
    "nvshare_client_sm_utilization_ratio",
    (*CLIENT, "host_pid"),
    "Fraction of the time in which the process kept multiprocessors busy, 0 to 1.",
    "nvml",
    merge="sum",
)
CLIENT_QUOTA = row(
    "nvshare_client_memory_quota_bytes",
    CLIENT,
    "Memory limit of its pod on this GPU, 0 if there is none.",
    "scheduler",
    FIXED,
    note=_OF_THE_POD,
)
CLIENT_QUOTA_EXCEEDED = row(
    "nvshare_client_memory_quota_exceeded",
    CLIENT,
    "1 if its pod has more allocated than its memory limit.",
    "scheduler",
    FIXED,
    merge="any",
    note=_OF_THE_POD,
)
CLIENT_OVERHEAD = row(
    "nvshare_client_memory_overhead_baseline_bytes",
    CLIENT,
    "Memory that the driver uses for the process in addition to its allocations: smoothed while it is nearly"
    " idle, and kept within 256 MiB to 4 GiB.",
    "nvml",
    FIXED,
    merge="sum",
    note=_MEASURED,
)
CLIENT_NEED = row(
    "nvshare_client_memory_need_estimated_bytes",
    CLIENT,
    "Allocated memory plus the overhead baseline.",
    "nvml",
    FIXED,
    merge="sum",
    note=_MEASURED,
)
CLIENT_NEED_UPPER = row(
    "nvshare_client_memory_need_upper_bytes",
    CLIENT,
    "Allocated memory plus what NVML counts: never less than the truth.",
    "nvml",
    FIXED,
    merge="sum",
)
CLIENT_QUOTA_SOURCE = row(
    "nvshare_client_memory_quota_source_info",
    (*POD, "client_id", "source"),
    "1 for the source of the memory limit: annotation, env, ctl, run, default, none.",
    "scheduler",
    FIXED,
)
CLIENT_CORE_CONFIG = row(
    "nvshare_client_core_quota_config_percent",
    CLIENT,
    "Compute quota of its pod, 100 if unlimited.",
    "scheduler",
    FIXED,
    note=_OF_THE_POD,
)
CLIENT_CORE_EFFECTIVE = row(
    "nvshare_client_core_quota_effective_percent",
    CLIENT,
    "Compute quota after all quotas of active pods were scaled to fit the GPU.",
    "scheduler",
    FIXED,
    note=_OF_THE_POD,
)
CLIENT_WINDOW_USAGE = row(
    "nvshare_client_core_window_usage_ms",
    CLIENT,
    "Time billed to its pod in the rolling window, including the current hold. For a pod without a quota:"
    " time that the GPU worked for it.",
    "scheduler",
    FIXED,
    note=_OF_THE_POD,
)
CLIENT_WINDOW_LIMIT = row(
    "nvshare_client_core_window_limit_ms",
    CLIENT,
    "The rolling window times the effective quota.",
    "scheduler",
    FIXED,
    note=_OF_THE_POD,
)
CLIENT_USAGE_RATIO = row(
    "nvshare_client_core_usage_ratio",
    CLIENT,
    "Window usage over window limit.",
    "scheduler",
    FIXED,
    note=_OF_THE_POD,
)
CLIENT_THROTTLED = row(
    "nvshare_client_throttled",
    CLIENT,
    "1 if its pod wants the GPU and is held back by its own quota.",
    "scheduler",
    FIXED,
    merge="any",
    note=_OF_THE_POD,
)
CLIENT_PENDING_DROP = row(
    "nvshare_client_pending_drop",
    CLIENT,
    "1 if its pod was asked to let go of the GPU and has not yet.",
    "scheduler",
    FIXED,
    merge="any",
    note=_OF_THE_POD,
)
CLIENT_DEBT = row(
    "nvshare_client_quota_debt_ms",
    CLIENT,
    "By how much the time billed to its pod exceeds what the pod was entitled to.",
    "scheduler",
    FIXED,
    note=_OF_THE_POD,
)
CLIENT_UNRESPONSIVE = row(
    "nvshare_client_unresponsive",
    CLIENT,
    "1 if its pod has not let go of the GPU for longer than the drop timeout.",
    "scheduler",
    merge="any",
)
