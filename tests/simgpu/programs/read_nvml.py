"""Reads every figure of NVML that nvshare uses, and prints them as JSON."""

from __future__ import annotations

import ctypes
import json
import os
import sys

import pynvml as nvml

nvml.nvmlInit()
index = int(sys.argv[1]) if len(sys.argv) > 1 else 0
handle = nvml.nvmlDeviceGetHandleByIndex(index)
memory = nvml.nvmlDeviceGetMemoryInfo(handle)
memory_v2 = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
rates = nvml.nvmlDeviceGetUtilizationRates(handle)
pci = nvml.nvmlDeviceGetPciInfo(handle)
uuid = nvml.nvmlDeviceGetUUID(handle)


class ProcessV1(ctypes.Structure):
    _fields_ = (("pid", ctypes.c_uint), ("used_bytes", ctypes.c_ulonglong))


def processes_v1() -> dict[int, int]:
    """The oldest layout, which nvidia-ml-py no longer speaks."""
    count = ctypes.c_uint(128)
    rows = (ProcessV1 * 128)()
    library = ctypes.CDLL("libnvidia-ml.so.1")
    assert library.nvmlDeviceGetComputeRunningProcesses(handle, ctypes.byref(count), rows) == 0
    return {row.pid: row.used_bytes for row in rows[: count.value]}


def samples(since_us: int = 0) -> list[tuple[int, int, int]]:
    try:
        found = nvml.nvmlDeviceGetProcessUtilization(handle, since_us)
    except nvml.NVMLError_NotFound:
        return []
    assert all(sample.timeStamp > 1_500_000_000_000_000 for sample in found)
    return [(sample.pid, sample.timeStamp, sample.smUtil) for sample in found]


found = samples()
again = samples(found[-1][1]) if found else []


def listed(rows: list[object]) -> dict[int, int]:
    return {row.pid: row.usedGpuMemory for row in rows}  # type: ignore[attr-defined]


def mig() -> object:
    try:
        return nvml.nvmlDeviceGetMigMode(handle)
    except nvml.NVMLError_NotSupported:
        return "not supported"


print(
    json.dumps(
        {
            "own_pid": os.getpid(),
            "driver": nvml.nvmlSystemGetDriverVersion(),
            "nvml": nvml.nvmlSystemGetNVMLVersion(),
            "cuda": nvml.nvmlSystemGetCudaDriverVersion(),
            "count": nvml.nvmlDeviceGetCount(),
            "name": nvml.nvmlDeviceGetName(handle),
            "uuid": uuid,
            "index": nvml.nvmlDeviceGetIndex(handle),
            "minor": nvml.nvmlDeviceGetMinorNumber(handle),
            "pci": [pci.busId, pci.bus],
            "by_uuid": nvml.nvmlDeviceGetIndex(nvml.nvmlDeviceGetHandleByUUID(uuid)),
            "by_pci": nvml.nvmlDeviceGetIndex(nvml.nvmlDeviceGetHandleByPciBusId(pci.busId)),
            "memory": [memory.total, memory.free, memory.used],
            "memory_v2": [memory_v2.total, memory_v2.free, memory_v2.used],
            "utilisation": [rates.gpu, rates.memory],
            "v1": processes_v1(),
            "v2": listed(nvml.nvmlDeviceGetComputeRunningProcesses_v2(handle)),
            "v3": listed(nvml.nvmlDeviceGetComputeRunningProcesses(handle)),
            "graphics": listed(nvml.nvmlDeviceGetGraphicsRunningProcesses(handle)),
            "process_utilisation": {pid: percent for pid, _, percent in found},
            "samples": found,
            "samples_since": again,
            "celsius": nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
            "milliwatts": nvml.nvmlDeviceGetPowerUsage(handle),
            "limit": nvml.nvmlDeviceGetEnforcedPowerLimit(handle),
            "energy": nvml.nvmlDeviceGetTotalEnergyConsumption(handle),
            "sm_clock": nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
            "memory_clock": nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
            "throttle": nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle),
            "ecc": [nvml.nvmlDeviceGetTotalEccErrors(handle, kind, 0) for kind in (0, 1)],
            "mig": mig(),
            "multiprocessors": nvml.nvmlDeviceGetAttributes(handle).multiprocessorCount,
        }
    )
)
