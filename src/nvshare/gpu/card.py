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
from nvshare.gpu.reading import GpuReading, ProcessReading, Seen, Worked
from nvshare.gpu.utilisation import NO_NEWS, Sample, Utilisation, Work

XIDS_PER_LOOK: Final = 64
SAMPLE_TRIES: Final = 4
"""The binding asks how many samples there are, and then for as many: more may have come in between."""
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
        self._utilisation = Utilisation()

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
        encoder = ask(pynvml.nvmlDeviceGetEncoderUtilization)  # for its period
        self._utilisation.state_period(0 if encoder is None else int(encoder[1]))
        work = self._work(call, handle)
        processes = None if listed is None else self._processes(listed, work is not None, see)
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
            worked=None if work is None else _worked(work, taken_ns),
            simulated=simulated(),
        )

    # ---- processes ---------------------------------------------------------------------------

    def _processes(self, listed: list[Any], sampled: bool, see: SeePid) -> tuple[ProcessReading, ...]:
        found: dict[int, ProcessReading] = {}
        for row in listed:
            try:
                seen = see(row.pid)
            except OSError:  # no descriptor left, or /proc hides it: not a process we know
                seen = None
            if seen is not None:
                used = row.usedGpuMemory
                percent = self._utilisation.percent(row.pid) if sampled else None
                found[row.pid] = ProcessReading(
                    row.pid, seen.start_ticks, seen.owner, None if used is None else int(used), percent
                )
        return tuple(found.values())

    def _work(self, call: Callable[..., Any], handle: Any) -> Work | None:
        """What the driver has sampled since the last look; None if it does not tell."""
        samples: list[Sample] = []
        since_us = self._utilisation.ask_since(_wall_us())
        for _ in range(SAMPLE_TRIES):
            try:
                rows = call(pynvml.nvmlDeviceGetProcessUtilization, handle, since_us)
                samples = [Sample(row.pid, row.timeStamp, row.smUtil) for row in rows]
                break
            except pynvml.NVMLError_InsufficientSize:
                continue
            except pynvml.NVMLError_NotFound:
                break
            except ENDS_THE_LOOK:
                raise
            except pynvml.NVMLError as error:
                if error.value == pynvml.NVML_SUCCESS:  # the binding's word for none at all
                    break
                return None
        else:
            return NO_NEWS
        return self._utilisation.take(samples, _wall_us(), time.monotonic_ns() // 1000)

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


def _wall_us() -> int:
    return time.time_ns() // 1000


def _worked(work: Work, taken_ns: int) -> Worked:
    by_pid = {pid: us * 1000 for pid, us in work.worked_us.items()}
    return Worked(taken_ns - work.age_us * 1000, work.length_us * 1000, work.complete, by_pid)
