"""Watches the GPUs through NVML, in a thread of its own.

1. Every EVERY_SEC all GPUs are asked for something that only a working one answers, and critical errors
   (XIDs) are fetched.
2. NVML may be absent, disappear and return: it is opened anew at every look until that succeeds.
3. A call that hangs does not hold up the loop. It is found there by ``hanging``, with the GPU that was asked.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pynvml

from nvshare.gpu.card import SESSION_OVER, XIDS_PER_LOOK
from nvshare.gpu.nvml import mig_parts
from nvshare.gpu.sampler import CallMonitor
from nvshare.plugin.devices import GPUS_MAX, Gpu

EVERY_SEC: Final = 0.4
SYSFS: Final = Path("/sys")


class Seen(NamedTuple):
    """The GPUs that answer."""

    gpus: tuple[Gpu, ...]


class Silent(NamedTuple):
    """There is no answer to be had from NVML."""

    why: str


class Xid(NamedTuple):
    uuid: str
    number: int


News = Seen | Silent | Xid


def numa_node(bus_id: str, sysfs: Path = SYSFS) -> int | None:
    """NVML writes the PCI domain with eight digits, the kernel with four."""
    domain, _, rest = bus_id.lower().partition(":")
    try:
        text = (sysfs / "bus/pci/devices" / f"{domain[-4:]}:{rest}" / "numa_node").read_text()
        return int(text) if int(text) >= 0 else None
    except (OSError, ValueError):
        return None


class DriverWatch:
    """``deliver`` is called in the thread."""

    def __init__(self, deliver: Callable[[News], None]) -> None:
        self._deliver = deliver
        self._call = CallMonitor()
        self._asked = ""  # the GPU of the call that is under way
        self._stopped = threading.Event()
        self._open = False
        self._events: Any = None
        self._watched: dict[
            int, tuple[str, ...]
        ] = {}  # by NVML's handle: its UUID, or those of its instances
        self._described: dict[str, Gpu] = {}

    def start(self) -> None:
        threading.Thread(target=self._run, name="nvml", daemon=True).start()

    def stop(self) -> None:
        """The thread is not waited for, since it may hang."""
        self._stopped.set()

    def hanging(self) -> str | None:
        """The UUID of a GPU whose call hangs; empty if it is no GPU's; None if nothing hangs."""
        return self._asked if self._call.hangs_now(time.monotonic_ns()) else None

    # ---- in the thread --------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._look()
            except Exception as error:  # whatever NVML or the binding does: the next look may succeed
                self._close()
                self._deliver(Silent(str(error) or repr(error)))
            self._stopped.wait(EVERY_SEC)

    def _look(self) -> None:
        if not self._open:
            self._call(pynvml.nvmlInit)
            self._open, self._events = True, None
            self._watched.clear()
        gpus = tuple(self._gpus())
        self._deliver(Seen(gpus))
        self._drain()

    def _close(self) -> None:
        if self._open:
            self._open = False
            try:
                pynvml.nvmlShutdown()
            except pynvml.NVMLError:
                return

    def _gpus(self) -> Iterator[Gpu]:
        found: set[int] = set()
        for index in range(min(GPUS_MAX, self._call(pynvml.nvmlDeviceGetCount))):
            try:
                handle = self._call(pynvml.nvmlDeviceGetHandleByIndex, index)
                parts = [self._gpu(part, handle, index) for part in self._call(mig_parts, handle) or [handle]]
            except SESSION_OVER:
                raise
            except pynvml.NVMLError:
                continue  # lost, or it does not say what it is
            finally:
                self._asked = ""
            key = _address(handle)
            found.add(key)
            self._register(handle, key, tuple(gpu.uuid for gpu in parts))
            yield from parts
        for key in self._watched.keys() - found:
            del self._watched[key]  # it registers again when it returns

    def _gpu(self, part: Any, handle: Any, index: int) -> Gpu:
        uuid = str(self._call(pynvml.nvmlDeviceGetUUID, part))
        self._asked = uuid
        memory = self._call(pynvml.nvmlDeviceGetMemoryInfo, part)  # a lost GPU does not answer this
        known = self._described.get(uuid)
        if known is None or known.index != index:
            known = Gpu(uuid, index, self._name(part), int(memory.total), self._numa_node(handle))
            self._described[uuid] = known
        return known

    def _name(self, part: Any) -> str:
        try:
            return str(self._call(pynvml.nvmlDeviceGetName, part))
        except (pynvml.NVMLError, UnicodeDecodeError):
            return ""

    def _numa_node(self, handle: Any) -> int | None:
        try:
            bus_id = self._call(pynvml.nvmlDeviceGetPciInfo, handle).busId
        except (pynvml.NVMLError, UnicodeDecodeError):
            return None
        return numa_node(bus_id.decode() if isinstance(bus_id, bytes) else str(bus_id))

    def _register(self, handle: Any, key: int, uuids: tuple[str, ...]) -> None:
        """Events are reported from their registration on."""
        known = key in self._watched
        self._watched[key] = uuids
        if known:
            return
        try:
            if self._events is None:
                self._events = self._call(pynvml.nvmlEventSetCreate)
            kind = pynvml.nvmlEventTypeXidCriticalError
            self._call(pynvml.nvmlDeviceRegisterEvents, handle, kind, self._events)
        except pynvml.NVMLError:
            return  # a driver without events: lost GPUs are noticed all the same

    def _drain(self) -> None:
        for _ in range(XIDS_PER_LOOK if self._events is not None else 0):
            try:
                event = self._call(pynvml.nvmlEventSetWait_v2, self._events, 0)
            except SESSION_OVER:
                raise
            except pynvml.NVMLError:
                return  # no more
            if event.eventType == pynvml.nvmlEventTypeXidCriticalError:
                for uuid in self._watched.get(_address(event.device), ()):
                    self._deliver(Xid(uuid, int(event.eventData)))


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
