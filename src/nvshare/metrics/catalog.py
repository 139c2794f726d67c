"""Every metric of the scheduler's port, one row each.

From a row come the exposition, docs/metrics.md, the dashboards' panels and the test that nothing is missing
or beside it. Names, labels and their order in the rows of seed 001 are the seed's to the letter.
"""

from __future__ import annotations

from typing import Final, get_args

from nvshare.core.books.figures import BOUNDS_NS
from nvshare.metrics.families import Kind, Merge, Metric

GPU: Final = ("gpu_uuid", "gpu_index")
CLIENT: Final = ("namespace", "pod", "client_id", "gpu_uuid")
POD: Final = ("namespace", "pod")
POD_GPU: Final = (*POD, "gpu_uuid")
DEBUG_LABELS: Final = frozenset({"client_id", "host_pid"})
"""Left out with NVSHARE_METRICS_DEBUG_LABELS=0: processes come and go, pods and GPUs stay."""

LOOP_EXPONENTS: Final = tuple(range(14, 31, 2))
"""Of the loop's histograms, which count in powers of two of nanoseconds: 16 us to 1 s."""
_WAIT_BOUNDS: Final = tuple(bound / 1e9 for bound in BOUNDS_NS)
_LOOP_BOUNDS: Final = tuple((1 << exponent) / 1e9 for exponent in LOOP_EXPONENTS)

SEED: Final = "001"
DEFERRED: Final = "001, deferred there"
OURS: Final = "ours"

SUBJECTS: Final = {
    "GPUs": ("nvshare_nvml_", "nvshare_gpu_"),
    "Clients": ("nvshare_client_",),
    "Pods": ("nvshare_pod_", "nvshare_unmanaged_"),
    "Scheduler": ("nvshare_scheduler_",),
    "The daemon and its sources": ("nvshare_",),
}
"""Heading -> what its metrics begin with; the first that fits."""

CATALOG: Final[dict[str, Metric]] = {}
"""By name, in the order in which they are shown."""


def subject_of(metric: Metric) -> str:
    return next(title for title, prefixes in SUBJECTS.items() if metric.name.startswith(prefixes))


def _row(
    name: str,
    labels: tuple[str, ...],
    text: str,
    source: str,
    since: str = OURS,
    kind: Kind | None = None,
    merge: Merge = "same",
    bounds: tuple[float, ...] = (),
    note: str = "",
    figure: str = "",
) -> Metric:
    kind = kind or ("counter" if name.endswith("_total") else "histogram" if bounds else "gauge")
    assert kind in get_args(Kind), kind
    assert name.startswith("nvshare_"), name
    assert name not in CATALOG, name
    ratio = name.endswith("_ratio")
    metric = Metric(
        name=name,
        kind=kind,
        labels=labels,
        help=text,
        source=source,
        since=since,
        bounds=bounds,
        merge=merge,
        ratio=ratio,
        note=note,
        figure=figure,
    )
    CATALOG[name] = metric
    return metric


_NO_ZEROS: Final = (
    "the seed fills GPU figures with zeros where NVML is missing; here they are left out, since a zero would"
    " be read as a fact"
)
_MEASURED: Final = (
    "left out as long as NVML has told nothing of the process; of one that never did little, what NVML counts"
    " beside its allocations"
)
_UNGATED: Final = "left out while scheduling is off: whoever runs then does so without asking"
_OF_THE_POD: Final = "the pod's figure, the same on each of its processes: quotas belong to the pod"

# ---- what NVML tells of GPUs ---------------------------------------------------------------------
NVML_UP = _row("nvshare_nvml_up", (), "1 if NVML answers, else 0.", "nvml", SEED)
GPU_INFO = _row(
    "nvshare_gpu_info", (*GPU, "gpu_name"), "1 for each GPU NVML tells of.", "nvml", SEED, note=_NO_ZEROS
)
GPU_MEMORY_TOTAL = _row("nvshare_gpu_memory_total_bytes", GPU, "Memory of the GPU.", "nvml", SEED)
GPU_MEMORY_USED = _row(
    "nvshare_gpu_memory_used_bytes", GPU, "Memory of the GPU in use by anybody.", "nvml", SEED
)
GPU_MEMORY_FREE = _row("nvshare_gpu_memory_free_bytes", GPU, "Memory of the GPU that is free.", "nvml", SEED)
GPU_UTILIZATION = _row(
    "nvshare_gpu_utilization_ratio", GPU, "Part of the time in which a kernel ran, 0 to 1.", "nvml", SEED
)
GPU_MEMORY_UTILIZATION = _row(
    "nvshare_gpu_memory_utilization_ratio",
    GPU,
    "Part of the time in which memory was read or written, 0 to 1.",
    "nvml",
    SEED,
)
GPU_PROCESSES = _row("nvshare_gpu_process_count", GPU, "Processes that compute on the GPU.", "nvml", SEED)
GPU_TEMPERATURE = _row("nvshare_gpu_temperature_celsius", GPU, "Temperature of the GPU.", "nvml")
GPU_POWER = _row("nvshare_gpu_power_watts", GPU, "Power the GPU draws now.", "nvml")
GPU_ENERGY = _row("nvshare_gpu_energy_joules_total", GPU, "Energy the GPU has drawn.", "nvml")
GPU_SM_CLOCK = _row("nvshare_gpu_sm_clock_hertz", GPU, "Clock of the multiprocessors.", "nvml")
GPU_MEMORY_CLOCK = _row("nvshare_gpu_memory_clock_hertz", GPU, "Clock of the memory.", "nvml")
GPU_ECC_CORRECTED = _row(
    "nvshare_gpu_ecc_corrected_errors_total", GPU, "Memory errors that were corrected.", "nvml"
)
GPU_ECC_UNCORRECTED = _row(
    "nvshare_gpu_ecc_uncorrected_errors_total", GPU, "Memory errors that could not be corrected.", "nvml"
)
GPU_XIDS = _row("nvshare_gpu_xid_errors_total", GPU, "XID events since the daemon started.", "nvml")
GPU_LAST_XID = _row("nvshare_gpu_last_xid", GPU, "Number of the last XID event, 0 if there was none.", "nvml")

# ---- clients: one process on one GPU -------------------------------------------------------------
CLIENT_INFO = _row(
    "nvshare_client_info",
    (*CLIENT, "gpu_index", "host_pid"),
    "1 for each connected process of a pod on a GPU.",
    "scheduler",
    SEED,
)
CLIENT_ALLOCATED = _row(
    "nvshare_client_managed_allocated_bytes",
    CLIENT,
    "Memory the process has allocated through us.",
    "scheduler",
    SEED,
    merge="sum",
)
CLIENT_PEAK = _row(
    "nvshare_client_managed_allocated_peak_bytes",
    CLIENT,
    "The most it has had allocated at once.",
    "scheduler",
    SEED,
    merge="sum",
)
CLIENT_NVML_USED = _row(
    "nvshare_client_nvml_used_bytes",
    (*CLIENT, "host_pid"),
    "Memory of the process as NVML counts it, 0 if NVML does not list it.",
    "nvml",
    SEED,
    merge="sum",
    note=_NO_ZEROS,
)
CLIENT_SM_UTILIZATION = _row(
    "nvshare_client_sm_utilization_ratio",
    (*CLIENT, "host_pid"),
    "Part of the time the process kept multiprocessors busy, 0 to 1.",
    "nvml",
    merge="sum",
)
CLIENT_QUOTA = _row(
    "nvshare_client_memory_quota_bytes",
    CLIENT,
    "Memory limit of its pod on this GPU, 0 if there is none.",
    "scheduler",
    SEED,
    note=_OF_THE_POD,
)
CLIENT_QUOTA_EXCEEDED = _row(
    "nvshare_client_memory_quota_exceeded",
    CLIENT,
    "1 if its pod has more allocated than its memory limit.",
    "scheduler",
    SEED,
    merge="any",
    note=_OF_THE_POD,
)
CLIENT_OVERHEAD = _row(
    "nvshare_client_memory_overhead_baseline_bytes",
    CLIENT,
    "What the driver takes for the process beside its allocations: smoothed while it does little, and kept"
    " within 256 MiB to 4 GiB.",
    "nvml",
    DEFERRED,
    merge="sum",
    note=_MEASURED,
)
CLIENT_NEED = _row(
    "nvshare_client_memory_need_estimated_bytes",
    CLIENT,
    "Allocated memory plus the overhead baseline.",
    "nvml",
    DEFERRED,
    merge="sum",
    note=_MEASURED,
)
CLIENT_NEED_UPPER = _row(
    "nvshare_client_memory_need_upper_bytes",
    CLIENT,
    "Allocated memory plus what NVML counts: never less than the truth.",
    "nvml",
    DEFERRED,
    merge="sum",
)
CLIENT_QUOTA_SOURCE = _row(
    "nvshare_client_memory_quota_source_info",
    (*POD, "client_id", "source"),
    "1 for who set the memory limit: annotation, env, ctl, run, default, none.",
    "scheduler",
    DEFERRED,
)
CLIENT_CORE_CONFIG = _row(
    "nvshare_client_core_quota_config_percent",
    CLIENT,
    "Compute quota of its pod, 100 if unlimited.",
    "scheduler",
    SEED,
    note=_OF_THE_POD,
)
CLIENT_CORE_EFFECTIVE = _row(
    "nvshare_client_core_quota_effective_percent",
    CLIENT,
    "Compute quota after all quotas of active pods were scaled to fit the GPU.",
    "scheduler",
    SEED,
    note=_OF_THE_POD,
)
CLIENT_WINDOW_USAGE = _row(
    "nvshare_client_core_window_usage_ms",
    CLIENT,
    "Time billed to its pod in the rolling window, the running part included. Of a pod without a quota: time"
    " the GPU worked for it.",
    "scheduler",
    SEED,
    note=_OF_THE_POD,
)
CLIENT_WINDOW_LIMIT = _row(
    "nvshare_client_core_window_limit_ms",
    CLIENT,
    "The rolling window times the effective quota.",
    "scheduler",
    SEED,
    note=_OF_THE_POD,
)
CLIENT_USAGE_RATIO = _row(
    "nvshare_client_core_usage_ratio",
    CLIENT,
    "Window usage over window limit.",
    "scheduler",
    SEED,
    note=_OF_THE_POD,
)
CLIENT_THROTTLED = _row(
    "nvshare_client_throttled",
    CLIENT,
    "1 if its pod wants the GPU and its own quota holds it back.",
    "scheduler",
    SEED,
    merge="any",
    note=_OF_THE_POD,
)
CLIENT_PENDING_DROP = _row(
    "nvshare_client_pending_drop",
    CLIENT,
    "1 if its pod was told to let go of the GPU and has not yet.",
    "scheduler",
    SEED,
    merge="any",
    note=_OF_THE_POD,
)
CLIENT_DEBT = _row(
    "nvshare_client_quota_debt_ms",
    CLIENT,
    "How far what was billed to its pod is ahead of what it was entitled to.",
    "scheduler",
    SEED,
    note=_OF_THE_POD,
)
CLIENT_UNRESPONSIVE = _row(
    "nvshare_client_unresponsive",
    CLIENT,
    "1 if its pod has not let go of the GPU for longer than the drop timeout.",
    "scheduler",
    merge="any",
)

# ---- the scheduler's queues and memory -----------------------------------------------------------
RUNNING = _row(
    "nvshare_scheduler_running_clients",
    GPU,
    "Processes that have the GPU now.",
    "scheduler",
    SEED,
    note=_UNGATED,
)
REQUESTING = _row(
    "nvshare_scheduler_request_queue_clients",
    GPU,
    "Processes that wait for their turn.",
    "scheduler",
    SEED,
)
WAITING = _row(
    "nvshare_scheduler_wait_queue_clients",
    GPU,
    "Processes that wait for memory or for their quota.",
    "scheduler",
    SEED,
)
RUNNING_MEMORY = _row(
    "nvshare_scheduler_running_memory_bytes",
    GPU,
    "Memory of the pods that have the GPU now.",
    "scheduler",
    SEED,
    note=_UNGATED,
)
PEAK_RUNNING_MEMORY = _row(
    "nvshare_scheduler_peak_running_memory_bytes", GPU, "The most that ever was.", "scheduler", SEED
)
SAFE_LIMIT = _row(
    "nvshare_scheduler_memory_safe_limit_bytes",
    GPU,
    "Memory that pods may fill together: the GPU's less a reserve and less what strangers take.",
    "scheduler",
    SEED,
)
OVERLOADED = _row(
    "nvshare_scheduler_memory_overloaded",
    GPU,
    "1 if the pods that want to run do not fit together.",
    "scheduler",
    SEED,
)
STRANGERS = _row(
    "nvshare_scheduler_stranger_memory_bytes",
    GPU,
    "Memory in use that no client has told of: driver contexts and processes that are not ours.",
    "scheduler",
)
TURN = _row("nvshare_scheduler_turn_seconds", GPU, "Length of a turn at the present pace.", "scheduler")

# ---- events --------------------------------------------------------------------------------------
MESSAGES = _row(
    "nvshare_scheduler_messages_total",
    ("type",),
    "Messages received and sent, by type.",
    "daemon",
    SEED,
    note="since the daemon started: clients of a former one come back with RESUME, so REGISTER may stay 0",
)
DROPS = _row(
    "nvshare_scheduler_drop_lock_total",
    ("gpu_uuid", "reason"),
    "DROP_LOCK messages, by why the turn ended.",
    "scheduler",
    SEED,
)
DISCONNECTS = _row(
    "nvshare_scheduler_client_disconnect_total",
    ("reason",),
    "Clients whose connection ended, by why.",
    "daemon",
    SEED,
)
WAITS_FOR_MEMORY = _row(
    "nvshare_scheduler_wait_for_mem_total",
    ("gpu_uuid",),
    "WAIT_FOR_MEM messages.",
    "scheduler",
    SEED,
    figure="waits_for_memory",
)
MEMORY_AVAILABLE = _row(
    "nvshare_scheduler_mem_available_total",
    ("gpu_uuid",),
    "MEM_AVAILABLE messages.",
    "scheduler",
    SEED,
    figure="memory_available",
)
HANDOVERS = _row(
    "nvshare_scheduler_handovers_total",
    ("gpu_uuid",),
    "Turns that began; pods without a quota that begin together have one turn.",
    "scheduler",
    figure="handovers",
)
HANDOVER = _row(
    "nvshare_scheduler_handover_seconds",
    ("gpu_uuid",),
    "Time of each exclusive turn that was held and not used: what its hand-over cost, and pauses under 2 ms.",
    "scheduler",
    bounds=_WAIT_BOUNDS,
    figure="handover",
)
DROP_TO_RELEASE = _row(
    "nvshare_scheduler_drop_to_release_seconds",
    ("gpu_uuid",),
    "From DROP_LOCK until the pod has let go.",
    "scheduler",
    bounds=_WAIT_BOUNDS,
    figure="drop_to_release",
)
QUOTA_EFFECT = _row(
    "nvshare_scheduler_quota_change_to_effect_seconds",
    ("gpu_uuid",),
    "From a change of a compute quota until a hold that it ended was let go; 0 if it ended none.",
    "scheduler",
    bounds=_WAIT_BOUNDS,
    figure="quota_effect",
)
OVERLAPS = _row(
    "nvshare_scheduler_overlaps_total",
    ("gpu_uuid",),
    "Times a pod that did not drain in time was no longer waited for.",
    "scheduler",
    figure="overlaps",
)
OVERLAP_TIME = _row(
    "nvshare_scheduler_overlap_seconds_total",
    ("gpu_uuid",),
    "Time in which others ran beside such a pod.",
    "scheduler",
)
UNRESPONSIVE = _row(
    "nvshare_scheduler_unresponsive_total",
    ("gpu_uuid",),
    "Times a pod did not let go within the drop timeout.",
    "scheduler",
    figure="unresponsive",
)

# ---- pods: counters from which any window can be computed ----------------------------------------
POD_OCCUPIED = _row(
    "nvshare_pod_gpu_occupied_seconds_total",
    POD_GPU,
    "Time the GPU worked for the pod, as its processes tell; where several worked at once, its part of it. Of"
    " programs that cannot tell, protocol 2 and older: what NVML says; without it, and from its last look to"
    " their end, their part of the time they held.",
    "scheduler",
)
POD_BILLED = _row(
    "nvshare_pod_gpu_billed_seconds_total",
    POD_GPU,
    "Time the pod was billed, which is what counts against its quota: from the first launch to the last"
    " completion of its turns, with gaps of up to 2 ms. Of pods without a quota that run at once: its part.",
    "scheduler",
)
POD_ENTITLED = _row(
    "nvshare_pod_gpu_entitled_seconds_total",
    POD_GPU,
    "Time the pod's effective quota came to while it was active; compare it with what was billed.",
    "scheduler",
)
POD_THROTTLED = _row(
    "nvshare_pod_gpu_throttled_seconds_total",
    POD_GPU,
    "Time the pod wanted the GPU and its own quota held it back.",
    "scheduler",
)
POD_SWAP = _row(
    "nvshare_pod_gpu_swap_seconds_total",
    POD_GPU,
    "Time the pod wanted the GPU and stood outside, because its memory did not fit beside the others'.",
    "scheduler",
)
POD_LOCK_WAIT = _row(
    "nvshare_pod_gpu_lock_wait_seconds",
    POD_GPU,
    "From a process's request until it had the GPU.",
    "scheduler",
    bounds=_WAIT_BOUNDS,
)
POD_LAST_KERNEL = _row(
    "nvshare_pod_last_kernel_timestamp_seconds",
    POD,
    "When the pod last worked on a GPU, 0 if it never has.",
    "scheduler",
    note="while scheduling is off by NVML's word, and left out without it",
)
POD_LAST_SEEN = _row(
    "nvshare_pod_last_seen_timestamp_seconds",
    POD,
    "When a process of the pod was last connected: now, or when the last one left.",
    "scheduler",
)
UNMANAGED = _row(
    "nvshare_unmanaged_process_info",
    (*POD_GPU, "gpu_index", "host_pid"),
    "1 for each process that computes on a GPU without being a client; with its pod if its cgroup tells one.",
    "nvml",
)
UNMANAGED_MEMORY = _row(
    "nvshare_unmanaged_process_memory_bytes",
    (*POD_GPU, "gpu_index", "host_pid"),
    "Memory of such a process.",
    "nvml",
    merge="sum",
)

# ---- where the numbers come from -----------------------------------------------------------------
SOURCE_UP = _row(
    "nvshare_source_up",
    ("source",),
    "1 if the source answers: the scheduler, NVML, and each GPU ever seen by its UUID.",
    "daemon",
)
SOURCE_HANGS = _row(
    "nvshare_source_hangs_total", ("source",), "Calls of the source that did not return in time.", "daemon"
)
SOURCE_FAILURES = _row(
    "nvshare_source_failures_total", ("source",), "Looks at the source that failed.", "daemon"
)
SNAPSHOT_AGE = _row(
    "nvshare_snapshot_age_seconds", ("source",), "Age of the source's figures in this scrape.", "daemon"
)
EXPORTER_SUCCESS = _row(
    "nvshare_exporter_success", ("exporter",), "1 if the exporter's families are complete.", "daemon"
)
EXPORTER_DURATION = _row(
    "nvshare_exporter_duration_seconds", ("exporter",), "How long the exporter took.", "daemon"
)

# ---- the daemon ----------------------------------------------------------------------------------
BUILD_INFO = _row(
    "nvshare_build_info",
    ("version", "python", "core"),
    "1, with the version, and whether the scheduling core is compiled or plain.",
    "daemon",
)
SCHEDULING_ON = _row("nvshare_scheduler_on", (), "1 if turns are granted, 0 if all may run.", "daemon")
CLIENTS = _row("nvshare_scheduler_clients", (), "Connected processes on all GPUs.", "daemon")
EXPECTED = _row(
    "nvshare_scheduler_expected_clients",
    (),
    "Clients of the daemon's former life that have not come back.",
    "daemon",
)
UNREGISTERED = _row(
    "nvshare_scheduler_unregistered_connections",
    (),
    "Connections that have not said yet what they are.",
    "daemon",
)
REFUSED = _row(
    "nvshare_scheduler_refused_total", ("reason",), "Connections and messages refused, by why.", "daemon"
)
ACCEPT_PAUSES = _row(
    "nvshare_scheduler_accept_pauses_total",
    ("reason",),
    "Times no further connection was accepted for a while.",
    "daemon",
)
CALLBACK_ERRORS = _row(
    "nvshare_scheduler_callback_errors_total", (), "Callbacks of the loop that raised.", "daemon"
)
BOOKS_WRONG = _row(
    "nvshare_scheduler_books_wrong_total",
    (),
    "Audits of the scheduler's books that found a difference, which is a bug.",
    "daemon",
)
CLOCK_WENT_BACK = _row(
    "nvshare_scheduler_clock_went_back_total",
    (),
    "Events whose time was before the last one's, which is a bug.",
    "daemon",
)
CHECKPOINTS_WRITTEN = _row("nvshare_checkpoints_written_total", (), "Checkpoints written.", "daemon")
CHECKPOINTS_FAILED = _row(
    "nvshare_checkpoints_failed_total", (), "Checkpoints that could not be written.", "daemon"
)
LOOP_LAG = _row(
    "nvshare_event_loop_lag_seconds",
    (),
    "How late the loop was to a timer.",
    "daemon",
    bounds=_LOOP_BOUNDS,
)
LOOP_CALLBACK = _row(
    "nvshare_event_loop_callback_seconds",
    (),
    "How long a callback held the loop.",
    "daemon",
    bounds=_LOOP_BOUNDS,
)
SCRAPE_STEP = _row(
    "nvshare_metrics_step_seconds",
    (),
    "How long a step of a scrape or of the front page held the loop; these are callbacks too.",
    "daemon",
    bounds=_LOOP_BOUNDS,
)
HTTP_CONNECTIONS = _row("nvshare_metrics_connections", (), "Open connections to this port.", "daemon")
HTTP_REQUESTS = _row("nvshare_metrics_requests_total", (), "Answers this port has given.", "daemon")
PROCESS_CPU = _row("nvshare_process_cpu_seconds_total", (), "CPU time of the daemon.", "process")
PROCESS_RSS = _row("nvshare_process_resident_memory_bytes", (), "Memory of the daemon.", "process")
PROCESS_VIRTUAL = _row("nvshare_process_virtual_memory_bytes", (), "Address space of the daemon.", "process")
PROCESS_FDS = _row("nvshare_process_open_fds", (), "Open descriptors of the daemon.", "process")
PROCESS_MAX_FDS = _row("nvshare_process_max_fds", (), "Descriptors the daemon may have.", "process")
PROCESS_THREADS = _row("nvshare_process_threads", (), "Threads of the daemon.", "process")
PROCESS_START = _row("nvshare_process_start_time_seconds", (), "When the daemon started.", "process")
