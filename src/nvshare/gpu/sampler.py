"""Samples every GPU periodically, each in a thread of its own.

1. One thread finds GPUs: it opens NVML, counts, and starts a thread for each index. The thread of an index
   makes all calls for that GPU: a call that hangs delays that GPU alone, and no other call is made for it
   meanwhile.
2. A call that has not returned after HANG_NS hangs: it is counted once, and the GPU's figures are withdrawn.
3. NVML may be absent, disappear and return: after a failed sample the finder opens it anew in its next round.
   Any other exception is counted, logged when it begins and when it ends, and sampling goes on.
4. Threads only hand readings over; the loop decides what becomes of them.
5. GPUs once seen stay known, up to a bound, so that a missing one is noticed.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import pynvml

from nvshare.gpu.card import SESSION_OVER, Card, SeePid
from nvshare.gpu.nvml import mig_parts
from nvshare.gpu.reading import GpuReading, SourceState

HANG_NS: Final = 3_000_000_000
GPUS_MAX: Final = 64
NVML: Final = "nvml"
FINDER: Final = "finder"
Deliver = Callable[[GpuReading], None]
Tell = Callable[[str, bool, str], None]


class CallMonitor:
    """Makes the calls of one thread, and shows other threads since when one is under way."""

    def __init__(self) -> None:
        self.began_ns = -1
        self.hangs = 0
        self.failures = 0  # samples that raised
        self._counted_ns = -1

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> Any:
        self.began_ns = time.monotonic_ns()
        try:
            return function(*arguments)
        finally:
            self.hangs_now(time.monotonic_ns())
            self.began_ns = -1

    def hangs_now(self, now_ns: int) -> bool:
        """A call that hangs is counted once (rule 2), by the first thread that notices."""
        began_ns = self.began_ns
        if began_ns < 0 or now_ns - began_ns < HANG_NS:
            return False
        if self._counted_ns != began_ns:
            self._counted_ns = began_ns
            self.hangs += 1
        return True


class _Worker:
    """The thread of one index: of one GPU, or of the MIG instances it is split into."""

    def __init__(self, sampler: Sampler, index: int) -> None:
        self.call = CallMonitor()
        self.uuids: tuple[str, ...] = ()  # of the last sample
        self._sampler = sampler
        self._index = index
        self._name = f"gpu-{index}"
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        pause = Pause(self._sampler.interval_ns)
        while not self._sampler.stopped.wait(pause.next_sec()):
            session = self._sampler.session
            if session < 0:
                continue
            try:
                self._look(session)
                self._sampler.note(self._name, True)
            except SESSION_OVER as error:
                self._sampler.session_over(session, str(error))
            except Exception as error:
                self._failed(error)

    def _look(self, session: int) -> None:
        sampler, call = self._sampler, self.call
        handle = call(pynvml.nvmlDeviceGetHandleByIndex, self._index)
        seen = []
        for part in call(mig_parts, handle) or [handle]:
            uuid = call(pynvml.nvmlDeviceGetUUID, part)
            card = sampler.card(uuid, self)
            if card is not None:
                seen.append(uuid)
                began_ns = time.monotonic_ns()
                sampler.deliver(card.look(part, self._index, session, call, sampler.see, began_ns))
        self.uuids = tuple(seen)

    def _failed(self, error: Exception) -> None:
        """The card is lost, or something unforeseen happened: this sample is over, the next may succeed."""
        self._sampler.note_failure(self.call)
        self._sampler.note(self._name, False, repr(error))
        for uuid in self.uuids:
            self._sampler.lost(uuid, self.call)


class Pause:
    """The time to the next round of a timer that keeps its pace, however long a round takes."""

    def __init__(self, interval_ns: int) -> None:
        self._interval_ns = interval_ns
        self._due_ns = time.monotonic_ns()

    def next_sec(self) -> float:
        now_ns = time.monotonic_ns()
        wait_ns = max(0, self._due_ns - now_ns)
        self._due_ns = max(self._due_ns, now_ns) + self._interval_ns
        return wait_ns / 1e9


class Sampler:
    def __init__(self, interval_ns: int, deliver: Deliver, see: SeePid, tell: Tell) -> None:
        """All three are called in the threads; ``tell`` when NVML or a GPU starts or stops answering."""
        self.interval_ns = interval_ns
        self.see = see
        self.stopped = threading.Event()
        self.session = -1  # of NVML; -1: there is none
        self._deliver = deliver
        self._tell = tell
        self._reported_up: dict[str, bool] = {}
        self._sessions = 0
        self._lock = threading.Lock()
        self._workers: dict[int, _Worker] = {}
        self._cards: dict[str, Card] = {}
        self._calls: dict[str, CallMonitor] = {}
        self._readings: dict[str, GpuReading] = {}
        self._finder = CallMonitor()

    def start(self) -> None:
        threading.Thread(target=self._find, name="nvml", daemon=True).start()

    def stop(self) -> None:
        """No thread is waited for, since one may hang."""
        self.stopped.set()

    # ---- the finder's thread -----------------------------------------------------------------

    def _find(self) -> None:
        pause = Pause(self.interval_ns)
        while not self.stopped.wait(pause.next_sec()):
            try:
                if self.session < 0:
                    self._finder(pynvml.nvmlInit)
                    self._sessions += 1
                    self.session = self._sessions
                    self.note(NVML, True)
                for index in range(min(GPUS_MAX, self._finder(pynvml.nvmlDeviceGetCount))):
                    if index not in self._workers:
                        self._workers[index] = _Worker(self, index)
                self.note(FINDER, True)
            except pynvml.NVMLError as error:
                self.session_over(self.session, str(error))
            except Exception as error:  # for example a thread that cannot be started: the existing ones go on
                self._finder.failures += 1
                self.note(FINDER, False, repr(error))

    def note(self, source: str, up: bool, why: str = "") -> None:
        """Reported when it changes; only for NVML also the first answer."""
        if self._reported_up.get(source, None if source == NVML else True) is not up:
            self._reported_up[source] = up
            self._tell(source, up, why)

    def note_failure(self, call: CallMonitor) -> None:
        """Of a GPU, or of NVML while it is not known which GPU it is."""
        with self._lock:
            known = any(call is one for one in self._calls.values())
        (call if known else self._finder).failures += 1

    def session_over(self, session: int, why: str) -> None:
        """NVML is gone or cannot be opened: none of its figures holds any more. The finder opens it anew."""
        with self._lock:
            if session != self.session:
                return  # reported before
            self._finder.failures += 1
            self.note(NVML, False, why)  # before the finder may report its return
            self.session = -1
            self._readings.clear()
        if session >= 0:
            with contextlib.suppress(pynvml.NVMLError):
                pynvml.nvmlShutdown()

    # ---- the workers' threads ----------------------------------------------------------------

    def card(self, uuid: str, worker: _Worker) -> Card | None:
        with self._lock:
            if uuid not in self._cards:
                if len(self._cards) >= GPUS_MAX:
                    return None
                self._cards[uuid] = Card(uuid)
            self._calls[uuid] = worker.call
            return self._cards[uuid]

    def deliver(self, reading: GpuReading) -> None:
        with self._lock:
            if self.session < 0:
                return
            self._readings[reading.uuid] = reading
        self._deliver(reading)

    def lost(self, uuid: str, call: CallMonitor) -> None:
        with self._lock:
            self._readings.pop(uuid, None)
        self._cards[uuid].drain_lost(call)

    # ---- the loop ----------------------------------------------------------------------------

    def up(self) -> bool:
        return self.session >= 0 and not self._finder.hangs_now(time.monotonic_ns())

    def readings(self, now_ns: int) -> list[GpuReading]:
        """The latest reading of each GPU that answers, by index."""
        with self._lock:
            found = [
                reading
                for uuid, reading in self._readings.items()
                if not self._calls[uuid].hangs_now(now_ns) and self._fresh(reading, now_ns)
            ]
        return sorted(found, key=lambda reading: (reading.index, reading.uuid))

    def last_words(self, now_ns: int, readings: list[GpuReading]) -> list[GpuReading]:
        """Of GPUs that do not answer any more while NVML does."""
        answering = {reading.uuid for reading in readings}
        if not self.up():
            return []
        with self._lock:
            silent = [card for uuid, card in self._cards.items() if uuid not in answering]
        return [words for card in silent if (words := card.last_words(now_ns)) is not None]

    def _fresh(self, reading: GpuReading, now_ns: int) -> bool:
        """Figures that are not sampled any more are left out."""
        return now_ns - reading.taken_ns < HANG_NS + 2 * self.interval_ns

    def sources(self, now_ns: int) -> dict[str, SourceState]:
        taken = {reading.uuid: reading.taken_ns for reading in self.readings(now_ns)}
        with self._lock:
            calls = dict(self._calls)
        finder = self._finder
        found = {NVML: SourceState(self.up(), finder.hangs, finder.failures, max(taken.values(), default=-1))}
        for uuid, call in calls.items():
            found[uuid] = SourceState(uuid in taken, call.hangs, call.failures, taken.get(uuid, -1))
        return found
