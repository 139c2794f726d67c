"""Pods: counters from which any window can be computed, and who runs past us."""

from __future__ import annotations

from nvshare.metrics.rows import POD, POD_GPU, WAIT_BOUNDS, Rows

row = Rows()
POD_OCCUPIED = row(
    "nvshare_pod_gpu_occupied_seconds_total",
    POD_GPU,
    "Time the GPU worked for the pod, as its processes tell; where several worked at once, its part of it."
    " Where NVML contradicts that by more than rounding and late reports explain, NVML's word. Of programs"
    " that cannot tell, protocol 2 and older: what NVML says; without it, and from its last look to their"
    " end, their part of the time they held.",
    "scheduler",
)
POD_BILLED = row(
    "nvshare_pod_gpu_billed_seconds_total",
    POD_GPU,
    "Time the pod was billed, which is what counts against its quota: from the first launch to the last"
    " completion of its turns, with gaps of up to 2 ms. Of pods without a quota that run at once: its part.",
    "scheduler",
)
POD_DISPUTES = row(
    "nvshare_pod_disputed_bills_total",
    POD_GPU,
    "Bills of the pod that NVML contradicted: the GPU had worked longer for it than it was billed, and it"
    " was billed the rest. Caught again and again, it is billed by what it holds.",
    "scheduler",
)
POD_CLAIMS_CUT = row(
    "nvshare_pod_memory_claims_cut_total",
    POD_GPU,
    "Times a process of the pod said that it had allocated more than it can have: more than the pod's limit,"
    " or without one many times the GPU's memory. What cannot be true is not counted as used.",
    "scheduler",
)
POD_FALSE_HOLDS = row(
    "nvshare_pod_false_holds_total",
    POD_GPU,
    "Times a process of the pod said that it held the GPU and nobody had granted it that. It is told to let"
    " go, and gains nothing.",
    "scheduler",
)
POD_LATE_DRAINS = row(
    "nvshare_pod_late_drains_total",
    POD_GPU,
    "Turns of the pod that it did not let go of in time, so that the next tenant was let in beside it.",
    "scheduler",
)
POD_OVERLAP = row(
    "nvshare_pod_overlap_seconds_total",
    POD_GPU,
    "Time the pod kept the GPU beside others, because it did not let go of it in time.",
    "scheduler",
)
POD_ENTITLED = row(
    "nvshare_pod_gpu_entitled_seconds_total",
    POD_GPU,
    "Time the pod's effective quota came to while it was active; compare it with what was billed.",
    "scheduler",
)
POD_THROTTLED = row(
    "nvshare_pod_gpu_throttled_seconds_total",
    POD_GPU,
    "Time the pod wanted the GPU and its own quota held it back.",
    "scheduler",
)
POD_SWAP = row(
    "nvshare_pod_gpu_swap_seconds_total",
    POD_GPU,
    "Time the pod wanted the GPU and stood outside, because its memory did not fit beside the others'.",
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
    note="while scheduling is off by NVML's word, and left out without it",
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
    "1 for each process that computes on a GPU without being a client; with its pod if its cgroup tells one.",
    "nvml",
)
UNMANAGED_MEMORY = row(
    "nvshare_unmanaged_process_memory_bytes",
    (*POD_GPU, "gpu_index", "host_pid"),
    "Memory of such a process.",
    "nvml",
    merge="sum",
)
