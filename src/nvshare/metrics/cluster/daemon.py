"""Where the cluster exporter's figures come from, and the exporter itself."""

from __future__ import annotations

from nvshare.metrics.rows import Rows

row = Rows()
SOURCE_UP = row(
    "nvshare_cluster_source_up",
    ("source",),
    "1 if all nodes, pods or quotas are known and changes would be.",
    "daemon",
)
SOURCE_AGE = row(
    "nvshare_cluster_source_age_seconds",
    ("source",),
    "Since when changes may have been missed; 0 while there is a watch.",
    "daemon",
)
SOURCE_FAILURES = row("nvshare_cluster_source_failures_total", ("source",), "Failed requests.", "daemon")
EVENTS = row(
    "nvshare_cluster_events_total", ("source",), "Changes that the API server has reported.", "daemon"
)
OBJECTS = row("nvshare_cluster_objects", ("source",), "Objects with GPUs that are known.", "daemon")
MALFORMED = row(
    "nvshare_cluster_malformed_annotations",
    ("annotation",),
    "Nodes and pods whose annotation cannot be used; the log names them.",
    "kubernetes",
)
EXPORTER_SUCCESS = row(
    "nvshare_cluster_exporter_success", ("exporter",), "1 if the exporter's families are complete.", "daemon"
)
EXPORTER_DURATION = row(
    "nvshare_cluster_exporter_duration_seconds", ("exporter",), "How long the exporter took.", "daemon"
)
CALLBACK_ERRORS = row(
    "nvshare_cluster_callback_errors_total", (), "Exceptions that nobody expected, each logged.", "daemon"
)
PROCESS_CPU = row("nvshare_cluster_process_cpu_seconds_total", (), "CPU time of the exporter.", "process")
PROCESS_RSS = row("nvshare_cluster_process_resident_memory_bytes", (), "Memory of the exporter.", "process")

EXECUTOR_FAMILIES = (EXPORTER_SUCCESS, EXPORTER_DURATION)
