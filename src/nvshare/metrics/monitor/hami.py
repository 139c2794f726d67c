"""HAMi's names for GPUs and containers of a node."""

from __future__ import annotations

from typing import Final

from nvshare.metrics.hami_names import Figures

_HOST: Final = "deviceidx deviceuuid devicetype"
_HOST_WITH_NODE: Final = f"nodeid {_HOST}"
_CURRENT_HOST: Final = "node device_index device_uuid device_type"
_CONTAINER: Final = "podnamespace podname ctrname vdeviceid deviceuuid"
_CURRENT_CONTAINER: Final = "namespace pod container vdevice_index device_uuid"
_BUILD: Final = "version revision build_date go_version compiler platform"

figure = Figures()
HOST_MEMORY = figure(
    "Memory of the GPU in use by anybody, in bytes.",
    "nvml",
    seed=("HostGPUMemoryUsage", _HOST),
    legacy=_HOST_WITH_NODE,
    current=("hami_host_gpu_memory_used_bytes", _CURRENT_HOST),
)
HOST_UTILISATION = figure(
    "Percent of the time in which a kernel ran on the GPU, 0 to 100.",
    "nvml",
    seed=("HostCoreUtilization", _HOST),
    legacy=_HOST_WITH_NODE,
    current=("hami_host_gpu_utilization_ratio", _CURRENT_HOST),
)
HOST_MEMORY_UTILISATION = figure(
    "Percent of the time in which the GPU's memory was read or written, 0 to 100.",
    "nvml",
    current=("hami_host_gpu_memory_controller_utilization_ratio", _CURRENT_HOST),
)
USED = figure(
    "GPU memory that the container's live processes have, by HAMi's library, in bytes.",
    "region",
    seed=("vGPU_device_memory_usage_in_bytes", _CONTAINER),
    current=("hami_vgpu_memory_used_bytes", _CURRENT_CONTAINER),
)
LIMIT = figure(
    "GPU memory that the container may have, in bytes; 0: no limit.",
    "region",
    seed=("vGPU_device_memory_limit_in_bytes", _CONTAINER),
    current=("hami_vgpu_memory_limit_bytes", _CURRENT_CONTAINER),
)
DESCRIPTION = figure(
    "The same as the usage, with its parts as labels.",
    "region",
    seed=("Device_memory_desc_of_container", f"{_CONTAINER} context module data offset"),
    note="deprecated: every change of a part makes a new series; --no-deprecated drops it",
    deprecated=True,
)
CURRENT_DESCRIPTION = figure(
    "The same as the usage.",
    "region",
    current=("hami_container_device_memory_bytes", _CURRENT_CONTAINER),
)
UTILISATION = figure(
    "Percent of the whole GPU's time in which the container's live processes ran kernels, added up.",
    "region",
    seed=("Device_utilization_desc_of_container", _CONTAINER),
    current=("hami_container_device_utilization_ratio", _CURRENT_CONTAINER),
)
LAST_KERNEL = figure(
    "Seconds since the container last launched a kernel; a new process counts as a launch.",
    "region",
    seed=("Device_last_kernel_of_container", _CONTAINER),
    current=("hami_container_last_kernel_elapsed_seconds", _CURRENT_CONTAINER),
)
CONTEXT = figure(
    "GPU memory of the container's contexts, in bytes.",
    "region",
    seed=("vGPU_device_memory_context_size_bytes", _CONTAINER),
    legacy="",
    current=("hami_vgpu_memory_context_bytes", _CURRENT_CONTAINER),
)
MODULE = figure(
    "GPU memory of the container's modules, in bytes; HAMi's library leaves it at 0.",
    "region",
    seed=("vGPU_device_memory_module_size_bytes", _CONTAINER),
    legacy="",
    current=("hami_vgpu_memory_module_bytes", _CURRENT_CONTAINER),
)
BUFFER = figure(
    "GPU memory that the container has allocated, in bytes.",
    "region",
    seed=("vGPU_device_memory_buffer_size_bytes", _CONTAINER),
    legacy="",
    current=("hami_vgpu_memory_buffer_bytes", _CURRENT_CONTAINER),
)
MIG = figure(
    "1 for each MIG instance that a container has.",
    "kubernetes",
    seed=("MigInfo", f"{_CONTAINER} instanceid"),
    current=(
        "hami_mig_device_info",
        f"{_CURRENT_CONTAINER} mig_uuid profile gpu_instance_id compute_instance_id",
    ),
)
BUILD_INFO = figure.row(
    "hami_build_info", tuple(_BUILD.split()), "1, with the build of this exporter.", "daemon"
)
