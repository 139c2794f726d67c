"""How the plugin itself is doing."""

from __future__ import annotations

from nvshare.metrics.rows import Rows

row = Rows()
BUILD_INFO = row("nvshare_plugin_build_info", ("version",), "1, with the version of the plugin.", "plugin")
REGISTERED = row(
    "nvshare_plugin_registered",
    (),
    "Whether the kubelet uses this plugin, and listens to its devices.",
    "plugin",
)
REGISTRATIONS = row(
    "nvshare_plugin_registrations_total", ("result",), "Attempts to register with the kubelet.", "plugin"
)
ALLOCATIONS = row(
    "nvshare_plugin_allocations_total",
    ("result",),
    "Requests of the kubelet to allocate devices: ok, or refused because they name what does not exist.",
    "plugin",
)
HELD_STARTS = row(
    "nvshare_plugin_held_starts_total",
    (),
    "Starts of containers that had to wait for the library or the scheduler's socket.",
    "plugin",
)
FILES_PLACED = row(
    "nvshare_plugin_files_placed_total",
    ("result",),
    "Files brought to the node because they were missing, older or damaged.",
    "plugin",
)
ANNOTATION_WRITES = row(
    "nvshare_plugin_annotation_writes_total",
    ("result",),
    "Attempts to write the node's annotation.",
    "kubernetes",
)
SOURCE_UP = row(
    "nvshare_plugin_source_up",
    ("source",),
    "Whether a source answered last time: nvml, pod_resources (the kubelet), kubernetes (the API server).",
    "plugin",
)
CALLBACK_ERRORS = row(
    "nvshare_plugin_callback_errors_total",
    (),
    "Unexpected exceptions, each with a log line.",
    "plugin",
)
