"""The GPUs that NVIDIA's own library reports."""

from __future__ import annotations

import threading
from typing import Any, Final

import pynvml

from nvshare.gpu.inventory import Device

SIMULATED_SYMBOL: Final = "nvshare_sim_status"
"""Exported only by the simulated library."""


class NvmlError(Exception):
    """NVML is missing or does not answer."""


def read_devices() -> tuple[Device, ...]:
    """Every GPU, and every MIG instance instead of its parent where the parent is split."""
    try:
        pynvml.nvmlInit()
        try:
            return tuple(_devices())
        finally:
            pynvml.nvmlShutdown()
    except (
        pynvml.NVMLError,
        OSError,
        ValueError,
    ) as error:  # ValueError: a UUID that the binding cannot decode
        raise NvmlError(f"NVML: {error}") from error


def read_devices_within(seconds: float) -> tuple[Device, ...]:
    """The same, but not for ever: a driver may hang."""
    found: list[tuple[Device, ...] | NvmlError] = []

    def look() -> None:
        try:
            found.append(read_devices())
        except NvmlError as error:
            found.append(error)

    thread = threading.Thread(target=look, name="nvml-first", daemon=True)
    thread.start()
    thread.join(seconds)
    if not found:
        raise NvmlError(f"NVML does not answer within {seconds:g} s")
    if isinstance(found[0], NvmlError):
        raise found[0]
    return found[0]


def _devices() -> list[Device]:
    found: list[Device] = []
    for number in range(pynvml.nvmlDeviceGetCount()):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(number)
            for part in mig_parts(handle) or [handle]:
                memory = pynvml.nvmlDeviceGetMemoryInfo(part)
                uuid = pynvml.nvmlDeviceGetUUID(part)
                found.append(Device(uuid, int(memory.total), number, _name(part), simulated()))
        except pynvml.NVMLError_GpuIsLost:
            continue  # the others are there; this one is found when it returns
    return found


def _name(handle: Any) -> str:
    try:
        return str(pynvml.nvmlDeviceGetName(handle))
    except (pynvml.NVMLError, UnicodeDecodeError):
        return ""


def simulated() -> bool:
    """Whether the loaded NVML is that of simulated GPUs, whose names are those of real ones."""
    return hasattr(pynvml.nvmlLib, SIMULATED_SYMBOL)


def mig_parts(handle: Any) -> list[Any]:
    try:
        if pynvml.nvmlDeviceGetMigMode(handle)[0] != pynvml.NVML_DEVICE_MIG_ENABLE:
            return []
    except pynvml.NVMLError:
        return []  # a GPU or driver without MIG
    parts = []
    for number in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            parts.append(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number))
        except pynvml.NVMLError:
            continue  # an empty place
    return parts
