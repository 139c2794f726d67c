"""Pods: counters from which any window can be computed, and unmanaged processes."""

from __future__ import annotations

from nvshare.metrics.rows import POD, POD_GPU, WAIT_BOUNDS, Rows

row = Rows()
POD_OCCUPIED = row(
    "nvshare_pod_gpu_occupied_seconds_total",
    POD_GPU,
    "Time that the GPU worked for the pod, as its processes report it; if several pods worked at once, its"
    " part of it. Corrected by NVML if the difference is more than rounding and late reports explain. For"
    " programs that cannot report it (protocol 2 and older): NVML's figure; without NVML, and after its last"
    " sample, their part of the time they held.",
    "scheduler",
)
POD_BILLED = row(
    "nvshare_pod_gpu_billed_seconds_total",
    POD_GPU,
    "Time billed to the pod, which counts against its quota: from the first launch to the last completion of"
    " its turns, including gaps of up to 2 ms. While it has no quota: the time that the GPU worked for it.",
    "scheduler",
)
POD_DISPUTES = row(
    "nvshare_pod_disputed_bills_total",
    POD_GPU,
    "Bills of the pod that NVML contradicted: the GPU had worked longer for it than it was billed, and it"
    " was billed the rest. After repeated disputes it is billed for what it holds.",
    "scheduler",
)
POD_CLAIMS_CUT = row(
    "nvshare_pod_memory_claims_cut_total",
    POD_GPU,
    "Times that a process of the pod claimed to have allocated more than it can have: more than the pod's"
    " limit, or without one many times the GPU's memory. The excess is not counted as used.",
    "scheduler",
)
POD_FALSE_HOLDS = row(
    "nvshare_pod_false_holds_total",
    POD_GPU,
    "Times that a process of the pod claimed to hold the GPU without a grant. It is sent DROP_LOCK, and gains"
    " nothing.",
    "scheduler",
)
POD_LATE_DRAINS = row(
    "nvshare_pod_late_drains_total",
    POD_GPU,
    "Turns that the pod did not let go of in time, so that the next tenant ran at the same time.",
    "scheduler",
)
POD_OVERLAP = row(
    "nvshare_pod_overlap_seconds_total",
    POD_GPU,
    "Time that the pod ran beside others because it did not let go of the GPU in time.",
    "scheduler",
)
POD_ENTITLED = row(
    "nvshare_pod_gpu_entitled_seconds_total",
    POD_GPU,
    "Time that the pod's effective quota amounted to while it was active; compare it with the time billed.",
    "scheduler",
)
POD_THROTTLED = row(
    "nvshare_pod_gpu_throttled_seconds_total",
    POD_GPU,
    "Time that the pod wanted the GPU and was held back by its own quota.",
    "scheduler",
)
POD_SWAP = row(
    "nvshare_pod_gpu_swap_seconds_total",
    POD_GPU,
    "Time that the pod wanted the GPU and waited because its memory did not fit beside that of others.",
    "scheduler",
)
POD_LOCK_WAIT = row(
    "nvshare_pod_gpu_lock_wait_seconds",
    POD_GPU,
    "From a process's request until it had the GPU.",
    "scheduler",
    bounds=WAIT_BOUNDS,
)
POD_LAST_KERNEL = row(
    "nvshare_pod_last_kernel_timestamp_seconds",
    POD,
    "When the pod last worked on a GPU, 0 if it never has.",
    "scheduler",
    note="while scheduling is off, according to NVML, and left out without it",
)
POD_LAST_SEEN = row(
    "nvshare_pod_last_seen_timestamp_seconds",
    POD,
    "When a process of the pod was last connected: now, or when the last one left.",
    "scheduler",
)
UNMANAGED = row(
    "nvshare_unmanaged_process_info",
    (*POD_GPU, "gpu_index", "host_pid"),
    "1 for each process that computes on a GPU without being a client; with its pod if its cgroup names one.",
    "nvml",
)
UNMANAGED_MEMORY = row(
    "nvshare_unmanaged_process_memory_bytes",
    (*POD_GPU, "gpu_index", "host_pid"),
    "Memory of such a process.",
    "nvml",
    merge="sum",
)
