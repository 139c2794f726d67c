"""Waits for events of card 0 and prints the first."""

from __future__ import annotations

import pynvml as nvml

nvml.nvmlInit()
handle = nvml.nvmlDeviceGetHandleByIndex(0)
events = nvml.nvmlEventSetCreate()
wanted = nvml.nvmlEventTypeXidCriticalError | nvml.nvmlEventTypeDoubleBitEccError
nvml.nvmlDeviceRegisterEvents(handle, wanted, events)
print("waiting", flush=True)
event = nvml.nvmlEventSetWait_v2(events, 100_000)
print(event.eventType, event.eventData)
