"""Sessions, processes in their newest layouts, and figures that seldom change. Prints JSON."""

from __future__ import annotations

import json

import pynvml as nvml


def error_of(call: object, *arguments: object) -> str:
    try:
        call(*arguments)  # type: ignore[operator]
    except nvml.NVMLError as error:
        return type(error).__name__
    return "none"


nvml.nvmlInit()
nvml.nvmlInit()
nvml.nvmlShutdown()
handle = nvml.nvmlDeviceGetHandleByIndex(0)
details = nvml.nvmlDeviceGetRunningProcessDetailList(handle, nvml.nvmlProcessDetailList_v1, 0)
samples = nvml.nvmlDeviceGetProcessesUtilizationInfo(handle, 0)
report = {
    "details": {row.pid: row.usedGpuMemory for row in details},
    "samples": {row.pid: row.smUtil for row in samples},
    "name": nvml.nvmlSystemGetProcessName(details[0].pid),
    "no_such_process": error_of(nvml.nvmlSystemGetProcessName, 1),
    "no_such_index": error_of(nvml.nvmlDeviceGetHandleByIndex, 7),
    "no_such_uuid": error_of(nvml.nvmlDeviceGetHandleByUUID, "GPU-nonsense"),
    "mig": error_of(nvml.nvmlDeviceGetMigMode, handle),
    "capability": nvml.nvmlDeviceGetCudaComputeCapability(handle),
    "link": [nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle), nvml.nvmlDeviceGetMaxPcieLinkWidth(handle)],
    "max_clock": nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM),
    "ecc_mode": nvml.nvmlDeviceGetEccMode(handle),
    "slowdown": nvml.nvmlDeviceGetTemperatureThreshold(handle, nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN),
    "mps": nvml.nvmlDeviceGetMPSComputeRunningProcesses(handle),
    "performance": nvml.nvmlDeviceGetPerformanceState(handle),
}
nvml.nvmlShutdown()
report["after_shutdown"] = error_of(nvml.nvmlDeviceGetCount)
print(json.dumps(report))
