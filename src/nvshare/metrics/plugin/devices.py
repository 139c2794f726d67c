"""What the kubelet is offered, and what pods hold of it."""

from __future__ import annotations

from nvshare.metrics.rows import GPU, Rows

row = Rows()
DEVICES = row(
    "nvshare_plugin_devices",
    (*GPU, "health"),
    "Devices offered to the kubelet, by their reported health.",
    "plugin",
)
DEVICES_HELD = row(
    "nvshare_plugin_devices_held", GPU, "Devices that pods hold, by what the kubelet said last.", "kubelet"
)
GPU_UNHEALTHY = row(
    "nvshare_plugin_gpu_unhealthy",
    (*GPU, "reason"),
    "1 for each reason why a GPU is unhealthy: lost, xid, driver_silent, or given_away, which means that"
    " another device plugin has given the whole GPU to a pod.",
    "plugin",
)
GPU_XIDS = row(
    "nvshare_plugin_gpu_xids_total",
    GPU,
    "Critical errors that made a GPU unhealthy; ignored ones are not counted.",
    "nvml",
)
