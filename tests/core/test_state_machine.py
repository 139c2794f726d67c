"""Hypothesis looks for the shortest way to break an invariant: 100 runs of 50 steps, or 1000."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from nvshare.core import events
from nvshare.core.settings import Settings

from .model import GIB, MS, SECOND, Model

pytestmark = pytest.mark.slow

PODS = st.sampled_from(("a", "b", "c", "d"))
GPUS = st.sampled_from(("GPU-0", "GPU-1"))
DELAYS = st.sampled_from((0, MS, 15 * MS, 70 * MS, 600 * MS, 2 * SECOND, 70 * SECOND))


class CoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.model = Model()

    @initialize(mode=st.sampled_from(("auto", "serial", "concurrent")), occupants=st.sampled_from((0, 5, 30)))
    def configure(self, mode: Literal["auto", "serial", "concurrent"], occupants: int) -> None:
        self.model = Model(Settings(scheduling_mode=mode, unlimited_min_percent=occupants))

    def pick(self, number: int, *words: str) -> int | None:
        keys = [
            client.key
            for client in self.model.clients.values()
            if client.connected and all(getattr(client, word) for word in words)
        ]
        return keys[number % len(keys)] if keys else None

    @precondition(lambda self: len(self.model.clients) < 10)
    @rule(pod=PODS, gpu=GPUS, version=st.sampled_from((1, 2, 3)))
    def register(self, pod: str, gpu: str, version: int) -> None:
        key = self.model.register(pod, gpu, version)
        assert self.model.core.clients[key].tenant.pod == pod

    @rule(number=st.integers(0, 9), delay=DELAYS)
    def request(self, number: int, delay: int) -> None:
        if (key := self.pick(number)) is not None:
            self.model.request(key, delay)

    @rule(number=st.integers(0, 9), delay=DELAYS, again=st.booleans(), tell=st.booleans())
    def release(self, number: int, delay: int, again: bool, tell: bool) -> None:
        if (key := self.pick(number, "holds")) is not None:
            self.model.release(key, delay, again, tell)

    @rule(number=st.integers(0, 9), idle=st.sampled_from((0, 2 * MS, 9 * MS)))
    def report_busy(self, number: int, idle: int) -> None:
        if (key := self.pick(number, "holds")) is not None:
            self.model.step(events.BusyReported(key, self.model.clients[key].busy_ns, idle), MS)

    @rule(number=st.integers(0, 9), used=st.sampled_from((0, GIB, 8 * GIB, 15 * GIB)))
    def use_memory(self, number: int, used: int) -> None:
        if (key := self.pick(number)) is not None:
            self.model.use(key, used)

    @rule(number=st.integers(0, 9))
    def disconnect(self, number: int) -> None:
        if (key := self.pick(number)) is not None:
            self.model.step(events.ClientDisconnected(key))

    @rule(number=st.integers(0, 9))
    def die(self, number: int) -> None:
        keys = list(self.model.clients)
        if keys:
            self.model.step(events.ProcessGone(keys[number % len(keys)]))

    @rule(pod=PODS, percent=st.sampled_from((1, 25, 50, 75, 99, 100, None)), share=st.booleans())
    def set_quota(self, pod: str, percent: int | None, share: bool) -> None:
        self.model.limit(pod, percent, share=share)

    @rule(pod=PODS, limit=st.sampled_from((None, GIB, 9 * GIB)))
    def set_memory_limit(self, pod: str, limit: int | None) -> None:
        self.model.step(events.LimitsSet(pod, "ctl", limit))

    @rule(delay=DELAYS)
    def wait(self, delay: int) -> None:
        self.model.pass_time(delay)

    @rule(used=st.sampled_from((0, 5 * GIB)))
    def sample(self, used: int) -> None:
        self.model.step(events.GpuSampled("GPU-1", used))

    @rule()
    def switch_off_and_on(self) -> None:
        self.model.step(events.SchedulingSet(False))
        assert self.model.holders("GPU-0") == self.model.holders("GPU-1") == []
        self.model.step(events.SchedulingSet(True))
        self.model.answer_recalls()


def _machine(examples: int) -> Any:
    case: Any = type("TestCase", (CoreMachine.TestCase,), {})
    case.settings = settings(
        max_examples=examples,
        stateful_step_count=50,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    return case


TestCore = _machine(100)
TestCoreAtLength = pytest.mark.verify(_machine(1000))
