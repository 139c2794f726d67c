"""The catalog of the node monitor's port, 9394: HAMi's names, and ours for what HAMi does not show."""

from __future__ import annotations

from typing import Final

from nvshare.metrics.catalog import Catalog, Subject
from nvshare.metrics.monitor import daemon, hami, pods

MONITOR: Final = Catalog(
    subjects=(
        Subject("GPUs and containers by HAMi's names", ("Host", "vGPU_", "Device_", "MigInfo", "hami_")),
        Subject("Pods without HAMi's library", ("nvshare_monitor_pod_", "nvshare_monitor_gpu_")),
        Subject("The monitor and its sources", ("nvshare_monitor_",)),
    ),
    rows=(hami.figure.row, pods.row, daemon.row),
)
