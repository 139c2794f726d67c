"""Where the monitor's figures come from, and the monitor itself."""

from __future__ import annotations

from nvshare.metrics.rows import Rows

row = Rows()
SOURCE_UP = row(
    "nvshare_monitor_source_up",
    ("source",),
    "1 if the source answers: nvml, each GPU by its UUID, and kubernetes if it is switched on.",
    "daemon",
)
SOURCE_AGE = row(
    "nvshare_monitor_source_age_seconds", ("source",), "Age of the source's figures in this scrape.", "daemon"
)
SOURCE_FAILURES = row(
    "nvshare_monitor_source_failures_total", ("source",), "Failed reads of the source.", "daemon"
)
REGIONS = row("nvshare_monitor_regions", (), "Regions of HAMi's library that were read.", "region")
REFUSED = row(
    "nvshare_monitor_regions_refused",
    ("reason",),
    "Regions that could not be read in this scrape, by reason; the log names the containers.",
    "region",
)
UNKNOWN_PODS = row(
    "nvshare_monitor_regions_of_unknown_pods",
    (),
    "Directories of containers whose pod the API server does not have on this node; they are left alone.",
    "region",
)
DEAD = row(
    "nvshare_monitor_dead_processes",
    ("namespace", "pod", "container"),
    "Processes in the container's region that have ended; HAMi's own monitor counts them.",
    "region",
)
UNVERIFIED = row(
    "nvshare_monitor_unverified_processes",
    ("namespace", "pod", "container"),
    "Processes in the container's region that count as live because nobody can know.",
    "region",
)
UNSTABLE = row(
    "nvshare_monitor_unstable_processes",
    ("namespace", "pod", "container"),
    "Processes whose figures were left out of this scrape: they are written all the time, or their writer was"
    " killed in the middle.",
    "region",
)
MALFORMED = row(
    "nvshare_monitor_malformed_annotations",
    ("annotation",),
    "Pods of this node whose annotation cannot be used; the log names them.",
    "kubernetes",
)
EXPORTER_SUCCESS = row(
    "nvshare_monitor_exporter_success", ("exporter",), "1 if the exporter's families are complete.", "daemon"
)
EXPORTER_DURATION = row(
    "nvshare_monitor_exporter_duration_seconds", ("exporter",), "How long the exporter took.", "daemon"
)
CALLBACK_ERRORS = row(
    "nvshare_monitor_callback_errors_total", (), "Exceptions that nobody expected, each logged.", "daemon"
)
PROCESS_CPU = row("nvshare_monitor_process_cpu_seconds_total", (), "CPU time of the monitor.", "process")
PROCESS_RSS = row("nvshare_monitor_process_resident_memory_bytes", (), "Memory of the monitor.", "process")

EXECUTOR_FAMILIES = (EXPORTER_SUCCESS, EXPORTER_DURATION)
