"""HAMi's names for what is allocated in a cluster."""

from __future__ import annotations

from typing import Final

from nvshare.metrics.hami_names import Figures

_DEVICE: Final = "nodeid deviceuuid deviceidx devicetype"
_WITH_CORES: Final = "nodeid deviceuuid deviceidx devicecores devicetype"
_CURRENT: Final = "node device_uuid device_index device_type"
_CURRENT_WITH_CORES: Final = "node device_uuid device_index device_cores device_type"
_POD: Final = "podnamespace nodename podname containeridx deviceuuid"
_CURRENT_POD: Final = "namespace node pod container_index device_uuid"
_BUILD: Final = "version revision build_date go_version compiler platform"

figure = Figures()
MEMORY_LIMIT = figure(
    "Memory of the device that may be allocated, in bytes; with HAMi's memory scaling it is more than"
    " the card has.",
    "kubernetes",
    seed=("GPUDeviceMemoryLimit", _DEVICE),
    current=("hami_gpu_memory_limit_bytes", _CURRENT),
)
CORE_LIMIT = figure(
    "Cores of the device that may be allocated, in percent of the device.",
    "kubernetes",
    seed=("GPUDeviceCoreLimit", _DEVICE),
    current=("hami_gpu_core_limit_ratio", _CURRENT),
)
MEMORY_ALLOCATED = figure(
    "Memory of the device that pods were allocated, in bytes.",
    "kubernetes",
    seed=("GPUDeviceMemoryAllocated", _WITH_CORES),
    current=("hami_gpu_memory_allocated_bytes", _CURRENT_WITH_CORES),
)
CORE_ALLOCATED = figure(
    "Cores of the device that pods were allocated, in percent of the device.",
    "kubernetes",
    seed=("GPUDeviceCoreAllocated", _DEVICE),
    current=("hami_gpu_core_allocated_ratio", _CURRENT),
)
SHARED = figure(
    "Containers that share the device.",
    "kubernetes",
    seed=("GPUDeviceSharedNum", _DEVICE),
    current=("hami_gpu_shared_count", _CURRENT),
)
OVERVIEW = figure(
    "Memory of the device that pods were allocated, in bytes; the labels describe the device.",
    "kubernetes",
    seed=(
        "nodeGPUOverview",
        "nodeid deviceuuid deviceidx devicecores sharedcontainers devicememorylimit devicetype",
    ),
    legacy="nodeid deviceuuid deviceidx devicecores devicememorylimit devicetype",
    current=(
        "hami_node_gpu_overview",
        "node device_uuid device_index device_cores device_memory_limit device_type",
    ),
    note="the memory limit in the label is in MiB",
)
MEMORY_PERCENTAGE = figure(
    "Fraction of the device's memory that pods were allocated, 0 to 1 in spite of the name.",
    "kubernetes",
    seed=("nodeGPUMemoryPercentage", "nodeid deviceuuid deviceidx"),
    current=("hami_node_gpu_memory_allocated_ratio", _CURRENT),
)
MIG_SLOT = figure(
    "1 for each MIG instance that a pod has, 0 for each that its template has besides.",
    "kubernetes",
    seed=("nodeGPUMigInstance", "nodeid deviceuuid deviceidx migname"),
)
MIG_INSTANCE = figure(
    "1 for each MIG instance that a pod has.",
    "kubernetes",
    current=(
        "hami_node_gpu_mig_instance_info",
        "node device_uuid device_index mig_uuid profile gpu_instance_id compute_instance_id"
        " placement_start placement_size",
    ),
)
POD_MEMORY = figure(
    "Memory of the device that the container was allocated, in bytes.",
    "kubernetes",
    seed=("vGPUMemoryAllocated", _POD),
    current=("hami_vgpu_memory_allocated_bytes", _CURRENT_POD),
)
POD_CORES = figure(
    "Cores of the device that the container was allocated, in percent of the device.",
    "kubernetes",
    seed=("vGPUCoreAllocated", _POD),
    current=("hami_vgpu_core_allocated_ratio", _CURRENT_POD),
)
QUOTA_USED = figure(
    "What the namespace's pods were allocated of the resource that a quota limits: MiB, or percent of a"
    " device.",
    "kubernetes",
    seed=("QuotaUsed", "quotanamespace quotaName limit"),
    current=("hami_resource_quota_used", "namespace quota_name limit"),
)
QUOTA_LIMIT = figure(
    "Limit of the resource that a quota limits: MiB, or percent of a device.",
    "kubernetes",
    current=("hami_resource_quota_limit", "namespace quota_name"),
)
BUILD_INFO = figure.row(
    "hami_build_info", tuple(_BUILD.split()), "1, with the build of this exporter.", "daemon"
)
