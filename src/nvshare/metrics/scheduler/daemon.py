"""Where the numbers come from, and the daemon itself."""

from __future__ import annotations

from nvshare.metrics.rows import LOOP_BOUNDS, Rows

row = Rows()
SOURCE_UP = row(
    "nvshare_source_up",
    ("source",),
    "1 if the source answers: the scheduler, NVML, each GPU ever seen by its UUID, and if it is switched on"
    " Kubernetes.",
    "daemon",
)
SOURCE_HANGS = row(
    "nvshare_source_hangs_total", ("source",), "Calls to the source that did not return in time.", "daemon"
)
SOURCE_FAILURES = row("nvshare_source_failures_total", ("source",), "Failed reads of the source.", "daemon")
SNAPSHOT_AGE = row(
    "nvshare_snapshot_age_seconds",
    ("source",),
    "Age of the source's figures in this scrape; of Kubernetes, since the last change, bookmark or list.",
    "daemon",
)
EXPORTER_SUCCESS = row(
    "nvshare_exporter_success", ("exporter",), "1 if the exporter's families are complete.", "daemon"
)
EXPORTER_DURATION = row(
    "nvshare_exporter_duration_seconds", ("exporter",), "How long the exporter took.", "daemon"
)

# ---- the daemon ----------------------------------------------------------------------------------
BUILD_INFO = row(
    "nvshare_build_info",
    ("version", "python", "core"),
    "1, with the version, and whether the scheduling core is compiled or plain.",
    "daemon",
)
SCHEDULING_ON = row(
    "nvshare_scheduler_on",
    (),
    "1 if turns are granted, 0 if scheduling is off and all clients may run.",
    "daemon",
)
CLIENTS = row("nvshare_scheduler_clients", (), "Connected processes on all GPUs.", "daemon")
EXPECTED = row(
    "nvshare_scheduler_expected_clients",
    (),
    "Clients known before the daemon's restart that have not come back.",
    "daemon",
)
UNREGISTERED = row(
    "nvshare_scheduler_unregistered_connections",
    (),
    "Connections that have not registered yet.",
    "daemon",
)
REFUSED = row(
    "nvshare_scheduler_refused_total", ("reason",), "Connections and messages refused, by reason.", "daemon"
)
ACCEPT_PAUSES = row(
    "nvshare_scheduler_accept_pauses_total",
    ("reason",),
    "Times that accepting connections was paused.",
    "daemon",
)
KILLED = row(
    "nvshare_clients_killed_total",
    ("reason",),
    "Processes of clients that the daemon ended: unresponsive ones, or at an operator's request.",
    "daemon",
)
CALLBACK_ERRORS = row(
    "nvshare_scheduler_callback_errors_total",
    (),
    "Callbacks of the event loop that raised an exception.",
    "daemon",
)
BOOKS_WRONG = row(
    "nvshare_scheduler_books_wrong_total",
    (),
    "Audits of the scheduler's books that found a difference, which is a bug.",
    "daemon",
)
CLOCK_WENT_BACK = row(
    "nvshare_scheduler_clock_went_back_total",
    (),
    "Events that were older than the previous event, which is a bug.",
    "daemon",
)
CHECKPOINTS_WRITTEN = row("nvshare_checkpoints_written_total", (), "Checkpoints written.", "daemon")
CHECKPOINTS_FAILED = row(
    "nvshare_checkpoints_failed_total", (), "Checkpoints that could not be written.", "daemon"
)
JOURNAL_FAILED = row(
    "nvshare_journal_failed_total",
    (),
    "Registrations and limits that could not be recorded before they were answered.",
    "daemon",
)
CHECKPOINT_AGE = row(
    "nvshare_checkpoint_age_seconds",
    (),
    "Time since the last checkpoint was written, or the daemon started; one is written only when something"
    " has changed.",
    "daemon",
)
LOOP_LAG = row(
    "nvshare_event_loop_lag_seconds",
    (),
    "How late the event loop ran a timer.",
    "daemon",
    bounds=LOOP_BOUNDS,
)
LOOP_CALLBACK = row(
    "nvshare_event_loop_callback_seconds",
    (),
    "How long a callback held the event loop.",
    "daemon",
    bounds=LOOP_BOUNDS,
)
STANDSTILL = row(
    "nvshare_scheduler_standstill_seconds_total",
    (),
    "Time in which the daemon did not run, because it was stopped or got no CPU time; not billed.",
    "daemon",
)
SCRAPE_STEP = row(
    "nvshare_metrics_step_seconds",
    (),
    "How long a step of a scrape or of the front page held the event loop; these are callbacks, too.",
    "daemon",
    bounds=LOOP_BOUNDS,
)
HTTP_CONNECTIONS = row("nvshare_metrics_connections", (), "Open connections to this port.", "daemon")
HTTP_REQUESTS = row("nvshare_metrics_requests_total", (), "Requests answered on this port.", "daemon")
WEB_CONFIG_FAILURES = row(
    "nvshare_metrics_web_config_failures_total",
    (),
    "Times that a changed web configuration could not be used, so the last good one stayed in force.",
    "daemon",
)
PROCESS_CPU = row("nvshare_process_cpu_seconds_total", (), "CPU time of the daemon.", "process")
PROCESS_RSS = row("nvshare_process_resident_memory_bytes", (), "Memory of the daemon.", "process")
PROCESS_VIRTUAL = row("nvshare_process_virtual_memory_bytes", (), "Address space of the daemon.", "process")
PROCESS_FDS = row("nvshare_process_open_fds", (), "Open descriptors of the daemon.", "process")
PROCESS_MAX_FDS = row("nvshare_process_max_fds", (), "Descriptors that the daemon may open.", "process")
PROCESS_THREADS = row("nvshare_process_threads", (), "Threads of the daemon.", "process")
PROCESS_START = row("nvshare_process_start_time_seconds", (), "When the daemon started.", "process")

EXECUTOR_FAMILIES = (EXPORTER_SUCCESS, EXPORTER_DURATION)
