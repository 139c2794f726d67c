"""Asks NVML as older tools do, and prints the answers as JSON."""

import ctypes
import json

import pynvml as nvml

nvml.nvmlInit()
card = nvml.nvmlDeviceGetHandleByIndex(0)
info = ctypes.create_string_buffer(b"x" * 68, 68)
answer = {
    "pci": nvml.nvmlLib.nvmlDeviceGetPciInfo(card, info),
    "behind": info.raw[52:].decode(),
    "fan": nvml.nvmlLib.nvmlDeviceGetFanSpeed(card, ctypes.byref(ctypes.c_uint())),
    "state": nvml.nvmlDeviceGetPowerState(card),
    "clocks": [nvml.nvmlDeviceGetClock(card, 0, 0), nvml.nvmlDeviceGetClockInfo(card, 0)],
}
print(json.dumps(answer))
