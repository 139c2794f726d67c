"""One GPU through NVML: everything that one sample asks for.

A call that the card, the driver or its version does not support leaves out its own figure and no other. An
error that means that the card or the whole library is gone ends the sample.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import pynvml

from nvshare.gpu.nvml import simulated
from nvshare.gpu.reading import GpuReading, ProcessReading, Seen

XIDS_PER_LOOK: Final = 64
SESSION_OVER: Final = (
    pynvml.NVMLError_Uninitialized,
    pynvml.NVMLError_DriverNotLoaded,
    pynvml.NVMLError_LibraryNotFound,
    pynvml.NVMLError_LibRmVersionMismatch,
)
ENDS_THE_LOOK: Final = (*SESSION_OVER, pynvml.NVMLError_GpuIsLost)
_ECC_VOLATILE: Final = 0
SeePid = Callable[[int], Seen | None]


class Rising:
    """A counter of the driver that may restart at zero; ours does not."""

    __slots__ = ("_before", "_last")

    def __init__(self) -> None:
        self._before = 0
        self._last = 0

    def at(self, value: int | None) -> int | None:
        if value is None:
            return None
        if value < self._last:
            self._before += self._last
        self._last = value
        return self._before + value


class Card:
    """The state of one GPU between samples."""

    def __init__(self, uuid: str) -> None:
        self.uuid = uuid
        self._index = -1
        self._energy, self._corrected, self._uncorrected = Rising(), Rising(), Rising()
        self._events: Any = None
        self._session = -1
        self._xids: int | None = None
        self._last_xid = 0
        self._seen_us = 0

    def look(
        self, handle: Any, index: int, session: int, call: Callable[..., Any], see: SeePid, taken_ns: int
    ) -> GpuReading:
        """``call`` makes the NVML calls, and knows which one is under way."""
        self._index = index

        def ask(function: Callable[..., Any], *arguments: Any) -> Any:
            try:
                return call(function, handle, *arguments)
            except ENDS_THE_LOOK:
                raise
            except (pynvml.NVMLError, UnicodeDecodeError):  # the binding decodes names
                return None

        memory = ask(pynvml.nvmlDeviceGetMemoryInfo)
        rates = ask(pynvml.nvmlDeviceGetUtilizationRates)
        listed = ask(pynvml.nvmlDeviceGetComputeRunningProcesses)
        processes = None if listed is None else self._processes(listed, self._shares(call, handle), see)
        self._watch(handle, session, call)
        self._drain(call)
        return GpuReading(
            uuid=self.uuid,
            index=index,
            taken_ns=taken_ns,
            name=ask(pynvml.nvmlDeviceGetName),
            total_bytes=None if memory is None else int(memory.total),
            used_bytes=None if memory is None else int(memory.used),
            free_bytes=None if memory is None else int(memory.free),
            gpu_percent=None if rates is None else int(rates.gpu),
            memory_percent=None if rates is None else int(rates.memory),
            celsius=ask(pynvml.nvmlDeviceGetTemperature, pynvml.NVML_TEMPERATURE_GPU),
            milliwatts=ask(pynvml.nvmlDeviceGetPowerUsage),
            millijoules=self._energy.at(ask(pynvml.nvmlDeviceGetTotalEnergyConsumption)),
            sm_clock_mhz=ask(pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_SM),
            memory_clock_mhz=ask(pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_MEM),
            ecc_corrected=self._corrected.at(ask(pynvml.nvmlDeviceGetTotalEccErrors, 0, _ECC_VOLATILE)),
            ecc_uncorrected=self._uncorrected.at(ask(pynvml.nvmlDeviceGetTotalEccErrors, 1, _ECC_VOLATILE)),
            xids=self._xids,
            last_xid=self._last_xid,
            process_count=None if listed is None else len(listed),
            processes=processes,
            simulated=simulated(),
        )

    # ---- processes ---------------------------------------------------------------------------

    def _processes(
        self, listed: list[Any], shares: dict[int, int] | None, see: SeePid
    ) -> tuple[ProcessReading, ...]:
        found: dict[int, ProcessReading] = {}
        for row in listed:
            try:
                seen = see(row.pid)
            except OSError:  # no descriptor left, or /proc hides it: not a process we know
                seen = None
            if seen is not None:
                used = row.usedGpuMemory
                share = 0 if shares is not None else None
                found[row.pid] = ProcessReading(
                    row.pid, seen.start_ticks, seen.owner, None if used is None else int(used), share
                )
        for pid, percent in (shares or {}).items():
            if pid in found:
                found[pid] = found[pid]._replace(sm_percent=percent)
        return tuple(found.values())

    def _shares(self, call: Callable[..., Any], handle: Any) -> dict[int, int] | None:
        """Each process's latest sample since the last one; None where the driver does not report it."""
        try:
            samples = call(pynvml.nvmlDeviceGetProcessUtilization, handle, self._seen_us)
        except pynvml.NVMLError_NotFound:
            self._seen_us = int(time.time() * 1e6)  # else the next sample would cover this time as well
            return {}
        except ENDS_THE_LOOK:
            raise
        except pynvml.NVMLError:
            return None
        newest: dict[int, tuple[int, int]] = {}
        for sample in samples:
            if sample.pid and sample.timeStamp >= newest.get(sample.pid, (0, 0))[0]:
                newest[sample.pid] = (sample.timeStamp, sample.smUtil)
                self._seen_us = max(self._seen_us, sample.timeStamp)
        return {pid: percent for pid, (_, percent) in newest.items()}

    # ---- XID events --------------------------------------------------------------------------

    def _watch(self, handle: Any, session: int, call: Callable[..., Any]) -> None:
        """Events are reported from their registration on; a new session has to register anew."""
        if session == self._session:
            return
        self._session, self._events = session, None
        try:
            events = call(pynvml.nvmlEventSetCreate)
            call(pynvml.nvmlDeviceRegisterEvents, handle, pynvml.nvmlEventTypeXidCriticalError, events)
        except ENDS_THE_LOOK:
            raise
        except pynvml.NVMLError:
            return
        self._events = events
        self._xids = self._xids or 0

    def _drain(self, call: Callable[..., Any]) -> None:
        for _ in range(XIDS_PER_LOOK if self._events is not None else 0):
            try:
                event = call(pynvml.nvmlEventSetWait_v2, self._events, 0)
            except SESSION_OVER:
                raise
            except pynvml.NVMLError:
                return
            if event.eventType == pynvml.nvmlEventTypeXidCriticalError:
                self._xids = (self._xids or 0) + 1
                self._last_xid = int(event.eventData)

    def last_words(self, now_ns: int) -> GpuReading | None:
        """What is known of a card that does not answer: its last XIDs, which nobody else counts."""
        if self._xids is None:
            return None
        return GpuReading(self.uuid, self._index, now_ns, xids=self._xids, last_xid=self._last_xid)

    def drain_lost(self, call: Callable[..., Any]) -> None:
        """A lost card still reports its last XID."""
        try:
            self._drain(call)
        except Exception:  # the error that ended the sample must not end the thread
            self._session = -1
