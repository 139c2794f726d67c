"""What drives the core: time, deadlines, audits. What each event does is in ``scheduler``.

Rules:
1. The caller passes every event to ``handle``, in order of time, and ``Woken`` when the next deadline has
   come. Nothing else makes anything happen, so a run is a function of its events.
2. Time never goes back: an event older than the last one is handled at the time of the last one, and counted.
3. The books are audited after events as often as ``checking`` says: see ``audit``.
"""

from __future__ import annotations

from nvshare.core import audit, events
from nvshare.core.account import NEVER
from nvshare.core.audit import Checking, Health
from nvshare.core.client import Client
from nvshare.core.deadlines import Deadlines
from nvshare.core.effects import Effect
from nvshare.core.gpu import Gpu
from nvshare.core.policy import decide
from nvshare.core.view.observe import Observation, Observations
from nvshare.core.view.report import GpuReport
from nvshare.core.view.snapshot import Snapshot


class Engine:
    """The GPUs of a node and their clients, brought forward in time by events."""

    def __init__(self, checking: Checking) -> None:
        self.checking = checking
        self._check_every = checking.every_events
        self._touched: list[Gpu] = []  # by the current event, if every event is audited
        self.health = Health()
        self.on = True
        self.off_since_ns = -1  # -1: scheduling is on
        self.gpus: dict[str, Gpu] = {}
        self.clients: dict[int, Client] = {}
        self.observations = Observations()
        self._deadlines = Deadlines()
        self._now_ns = -NEVER
        self._events = 0

    def handle(self, event: events.Event, now_ns: int) -> list[Effect]:
        out: list[Effect] = []
        if now_ns < self._now_ns:
            now_ns = self._went_back(event, now_ns)
        self._now_ns = now_ns
        if self._deadlines.bound_ns <= now_ns and type(event) is not events.StoodStill:
            for gpu in self._deadlines.pop_due(now_ns):
                if self.observations.open:
                    self.observations.before_change(gpu)
                if gpu.occupants.holder is None or not decide.end_turn_if_due(gpu, now_ns, out):
                    self._advance(gpu, now_ns, out)
                else:
                    self._decided(gpu, NEVER, now_ns)
        if self.observations.open:
            self.observations.before_event(event, self.gpus, self.clients)
        self._perform(event, now_ns, out)
        self._events += 1
        if self._events >= self._check_every:
            self._audit(event)
        return out

    def _audit(self, event: events.Event) -> None:
        self._events = 0
        if self._check_every > 1:
            touched = [self.health.next_of(self.gpus)] if self.gpus else []
        else:
            touched, self._touched = list(dict.fromkeys(self._touched)), []
        for gpu in touched:
            audit.audit(gpu, self.checking, self.health, self.clients, event)

    def _went_back(self, event: events.Event, now_ns: int) -> int:
        self.health.note_clock(event, self._now_ns - now_ns)
        if self.checking.fatal:
            raise ValueError(self.health.last_fault)
        return self._now_ns

    def next_deadline_ns(self) -> int | None:
        """When ``Woken`` must be passed at the latest, or None if no deadline is pending."""
        return self._deadlines.next_ns()

    @property
    def deadline_bound_ns(self) -> int:
        """A lower bound of the next deadline that costs nothing to compute."""
        return self._deadlines.bound_ns

    def _advance(self, gpu: Gpu, now_ns: int, out: list[Effect]) -> None:
        self._decided(gpu, decide.decide(gpu, now_ns, out), now_ns)

    def _decided(self, gpu: Gpu, drop_ns: int, now_ns: int) -> None:
        """Every change of a GPU's books ends here, except reports of memory and work."""
        self._deadlines.note(gpu, drop_ns, now_ns)
        self._touch(gpu)

    def _left_undecided(self, gpu: Gpu) -> None:
        """A client reported its work, and no decision follows."""
        self._deadlines.hasten(gpu, gpu.gpu_time.deadline_ns)
        self._touch(gpu)

    def _touch(self, gpu: Gpu) -> None:
        """Audit its books when the event ends, if every event is audited."""
        if self._check_every == 1:
            self._touched.append(gpu)

    def _perform(self, event: events.Event, now_ns: int, out: list[Effect]) -> None:
        raise NotImplementedError

    # ---- reading --------------------------------------------------------------------------

    def advance_clock(self, gpu: Gpu, now_ns: int) -> int:
        """Bring a GPU's clock to a moment between two decisions, to read its books; returns it."""
        if self.observations.open:
            self.observations.before_change(gpu)
        self._move_clock(gpu, now_ns)
        return now_ns

    def _move_clock(self, gpu: Gpu, now_ns: int) -> None:
        if gpu.deadline.end_open:
            self._deadlines.settle(gpu)
        gpu.advance(now_ns)

    def begin_observation(self, forget_before_ns: int, now_ns: int) -> Observation:
        """Observe all GPUs as they are now, without pods that left before then. The caller must end it."""
        return Observation(self.gpus.values(), self._move_clock, forget_before_ns, now_ns, self.observations)

    def snapshot(self, now_ns: int) -> Snapshot:
        """All GPUs at one moment."""
        gpus = []
        for gpu in self.gpus.values():
            report = GpuReport(gpu, lambda gpu: self.advance_clock(gpu, now_ns), self.off_since_ns)
            gpus.append(report.summary(tuple(report.tenants())))
        return Snapshot(now_ns, self.on, tuple(gpus))
