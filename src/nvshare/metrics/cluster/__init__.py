"""The catalog of the cluster exporter's port, 31993: HAMi's names, and ours for the devices of nvshare."""

from __future__ import annotations

from typing import Final

from nvshare.metrics.catalog import Catalog, Subject
from nvshare.metrics.cluster import daemon, hami, own

CLUSTER: Final = Catalog(
    subjects=(
        Subject("Devices, pods and quotas by HAMi's names", ("GPU", "nodeGPU", "vGPU", "QuotaUsed", "hami_")),
        Subject("GPUs that nvshare shares", ("nvshare_cluster_gpu_", "nvshare_cluster_pod_")),
        Subject("The exporter and its sources", ("nvshare_cluster_",)),
    ),
    rows=(hami.figure.row, own.row, daemon.row),
)
