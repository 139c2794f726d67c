"""The scheduler's queues and memory, and what happens to them."""

from __future__ import annotations

from typing import Final

from nvshare.metrics.rows import FIXED, GPU, WAIT_BOUNDS, Rows

_UNGATED: Final = "left out while scheduling is off: programs then run without asking"

row = Rows()
RUNNING = row(
    "nvshare_scheduler_running_clients",
    GPU,
    "Processes that have the GPU now.",
    "scheduler",
    FIXED,
    note=_UNGATED,
)
REQUESTING = row(
    "nvshare_scheduler_request_queue_clients",
    GPU,
    "Processes that wait for their turn.",
    "scheduler",
    FIXED,
)
WAITING = row(
    "nvshare_scheduler_wait_queue_clients",
    GPU,
    "Processes that wait for memory or for their quota.",
    "scheduler",
    FIXED,
)
RUNNING_MEMORY = row(
    "nvshare_scheduler_running_memory_bytes",
    GPU,
    "Memory of the pods that have the GPU now.",
    "scheduler",
    FIXED,
    note=_UNGATED,
)
PEAK_RUNNING_MEMORY = row(
    "nvshare_scheduler_peak_running_memory_bytes",
    GPU,
    "The largest value of nvshare_scheduler_running_memory_bytes so far.",
    "scheduler",
    FIXED,
)
SAFE_LIMIT = row(
    "nvshare_scheduler_memory_safe_limit_bytes",
    GPU,
    "Memory that pods may use together: the GPU's memory less a reserve and less what others use.",
    "scheduler",
    FIXED,
)
OVERLOADED = row(
    "nvshare_scheduler_memory_overloaded",
    GPU,
    "1 if the pods that want to run do not fit together.",
    "scheduler",
    FIXED,
)
DRAINING = row(
    "nvshare_scheduler_gpu_draining",
    GPU,
    "1 if no new client may use the GPU, because of `nvshare ctl drain`.",
    "scheduler",
)
STRANGERS = row(
    "nvshare_scheduler_stranger_memory_bytes",
    GPU,
    "Memory in use that no client has reported: driver contexts, and processes that are not clients.",
    "scheduler",
)
TURN = row("nvshare_scheduler_turn_seconds", GPU, "Current length of a turn.", "scheduler")

# ---- events --------------------------------------------------------------------------------------
MESSAGES = row(
    "nvshare_scheduler_messages_total",
    ("type",),
    "Messages received and sent, by type.",
    "daemon",
    FIXED,
    note="since the daemon started: clients of the previous daemon send RESUME, so REGISTER may stay 0",
)
DROPS = row(
    "nvshare_scheduler_drop_lock_total",
    ("gpu_uuid", "reason"),
    "DROP_LOCK messages, by the reason why the turn ended.",
    "scheduler",
    FIXED,
)
DISCONNECTS = row(
    "nvshare_scheduler_client_disconnect_total",
    ("reason",),
    "Clients whose connection ended, by reason.",
    "daemon",
    FIXED,
)
WAITS_FOR_MEMORY = row(
    "nvshare_scheduler_wait_for_mem_total",
    ("gpu_uuid",),
    "WAIT_FOR_MEM messages.",
    "scheduler",
    FIXED,
    figure="waits_for_memory",
)
MEMORY_AVAILABLE = row(
    "nvshare_scheduler_mem_available_total",
    ("gpu_uuid",),
    "MEM_AVAILABLE messages.",
    "scheduler",
    FIXED,
    figure="memory_available",
)
HANDOVERS = row(
    "nvshare_scheduler_handovers_total",
    ("gpu_uuid",),
    "Turns that began; pods without a quota that begin together count as one turn.",
    "scheduler",
    figure="handovers",
)
HANDOVER = row(
    "nvshare_scheduler_handover_seconds",
    ("gpu_uuid",),
    "Time of each exclusive turn that was held but not used: cost of the hand-over, and pauses under 2 ms.",
    "scheduler",
    bounds=WAIT_BOUNDS,
    figure="handover",
)
DROP_TO_RELEASE = row(
    "nvshare_scheduler_drop_to_release_seconds",
    ("gpu_uuid",),
    "From DROP_LOCK until the pod has let go.",
    "scheduler",
    bounds=WAIT_BOUNDS,
    figure="drop_to_release",
)
QUOTA_EFFECT = row(
    "nvshare_scheduler_quota_change_to_effect_seconds",
    ("gpu_uuid",),
    "From a change of a compute quota until a hold that it ended was let go; 0 if it ended none.",
    "scheduler",
    bounds=WAIT_BOUNDS,
    figure="quota_effect",
)
OVERLAPS = row(
    "nvshare_scheduler_overlaps_total",
    ("gpu_uuid",),
    "Times that others stopped waiting for a pod that did not drain in time.",
    "scheduler",
    figure="overlaps",
)
OVERLAP_TIME = row(
    "nvshare_scheduler_overlap_seconds_total",
    ("gpu_uuid",),
    "Time in which others ran beside such a pod.",
    "scheduler",
)
UNRESPONSIVE = row(
    "nvshare_scheduler_unresponsive_total",
    ("gpu_uuid",),
    "Times that a pod did not let go within the drop timeout.",
    "scheduler",
    figure="unresponsive",
)
