"""What the driver's samples tell, by models of drivers that sample at other paces."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

import pynvml
import pytest

from nvshare.core import events
from nvshare.gpu.card import SAMPLE_TRIES, Card
from nvshare.gpu.utilisation import BUFFER_US, Sample, Utilisation
from tests.core.bench import GPU, MS, Bench

SECOND_US: Final = 1_000_000
START_US: Final = 1_700_000_000_000_000
PID: Final = 7


class Driver:
    """Samples one process every so many milliseconds and keeps the last seconds, as NVML's buffers do."""

    def __init__(self, period_ms: int, kept_ms: int = 10_000) -> None:
        self.period_ms, self.kept = period_ms, kept_ms // period_ms
        self.now_ms = 0
        self._busy_ms = 0
        self._rows: list[Sample] = []

    @property
    def now_us(self) -> int:
        return START_US + self.now_ms * 1000

    def pass_ms(self, busy: bool) -> None:
        self.now_ms += 1
        self._busy_ms += busy
        if self.now_ms % self.period_ms == 0:
            if self._busy_ms:
                self._rows.append(Sample(PID, self.now_us, round(100 * self._busy_ms / self.period_ms)))
            self._busy_ms = 0
            least_us = self.now_us - self.kept * self.period_ms * 1000
            self._rows = [row for row in self._rows if row.at_us > least_us]

    def rows(self, since_us: int) -> list[Sample]:
        return [row for row in self._rows if row.at_us > since_us]


class Averaging(Driver):
    """Tells one sample, of all the time since it was last asked."""

    def rows(self, since_us: int) -> list[Sample]:
        found = super().rows(since_us)
        span_ms = min(self.kept * self.period_ms, self.now_ms, (self.now_us - since_us) // 1000)
        percent = round(sum(row.percent for row in found) * self.period_ms / max(1, span_ms))
        return [Sample(PID, self.now_us, percent)] if percent else []


def look(utilisation: Utilisation, driver: Driver, jump_us: int = 0) -> Any:
    """With a wall clock that was set by so much."""
    now_us = driver.now_us + jump_us
    utilisation.state_period(driver.period_ms * 1000)
    rows = driver.rows(utilisation.ask_since(now_us) - jump_us)
    moved = (row._replace(at_us=row.at_us + jump_us) for row in rows)
    return utilisation.take(moved, now_us, driver.now_us)


@pytest.mark.parametrize("period_ms", [100, 167, 333, 500, 1000])
@pytest.mark.parametrize(("busy_ms", "idle_ms"), [(300, 300), (100, 900), (40, 20), (2500, 1700)])
def test_all_samples_of_a_look_count(period_ms: int, busy_ms: int, idle_ms: int) -> None:
    """Of an honest program that works in bursts: the newest sample alone is of one burst, or of none."""
    driver, utilisation, random = Driver(period_ms), Utilisation(), Random(period_ms + busy_ms)
    worked_us = told_us = began_ms = difference_us = 0
    next_ms = 1000
    for ms in range(60_000):
        busy = ms % (busy_ms + idle_ms) < busy_ms
        driver.pass_ms(busy)
        worked_us += 1000 * busy
        if ms >= next_ms:
            work = look(utilisation, driver)
            next_ms += random.randint(950, 1050)
            told_us += work.worked_us.get(PID, 0)
            if not work.complete:
                worked_us = told_us = 0
                began_ms = ms
            difference_us = told_us - worked_us
    assert began_ms < 20_000
    assert abs(difference_us) <= 2000 * period_ms + 0.01 * worked_us


@pytest.mark.parametrize("period_ms", [167, 500, 1000])
def test_no_burst_of_an_honest_pod_is_disputed(period_ms: int) -> None:
    """Bursts of 300 ms, of which one sample sees all or nothing."""
    bench, driver, utilisation = Bench(), Driver(period_ms), Utilisation()
    bench.client(1, "p", 60)
    clients, tenant = bench.scheduler.clients, bench.scheduler.gpus[GPU].tenants["p"]
    worked_ns = left_ms = next_ms = 0
    for ms in range(120_000):
        if ms >= next_ms and not left_ms:
            left_ms = 300
            bench.do(events.LockRequested(1))
        busy = bool(left_ms) and clients[1].holds and not clients[1].dropping
        if busy:
            left_ms -= 1
            worked_ns += MS
            if not left_ms:
                next_ms = ms + 300
        driver.pass_ms(busy)
        bench.pass_ms(1)
        if clients[1].dropping or (clients[1].holds and not left_ms):
            bench.do(events.LockReleased(1, worked_ns, again=bool(left_ms), worked_ns=worked_ns))
        elif clients[1].holds and ms % 50 == 0:
            bench.do(events.BusyReported(1, worked_ns, 0, worked_ns))
        if ms % 1000 == 999:
            work = look(utilisation, driver)
            told = ((1, work.worked_us.get(PID, 0) * 1000),)
            if work.length_us:
                bench.do(events.WorkSampled(GPU, bench.now_ns - work.age_us * 1000, told, work.complete))
    assert tenant.figures.disputes == 0
    assert tenant.account.billed_ns <= 1.02 * worked_ns


@pytest.mark.parametrize("made", [Driver, Averaging])
def test_what_the_samples_do_not_cover_is_not_complete(made: type[Driver]) -> None:
    """A look every 15 s: the buffer knows the end of that, in which the program happened to work."""
    driver, utilisation = made(100, 6400), Utilisation()
    found = []
    for ms in range(180_000):
        driver.pass_ms(ms % 15_000 > 9_000)
        if ms % 15_000 == 14_999:
            found.append(look(utilisation, driver))
    assert not any(work.complete for work in found)
    assert all(work.length_us > BUFFER_US for work in found[1:])


@pytest.mark.parametrize("period_ms", [100, 1000])
def test_a_card_that_never_worked_is_known_to_be_idle(period_ms: int) -> None:
    """No sample says how often the driver takes one, and none is needed: all that it has was asked for."""
    driver, utilisation = Driver(period_ms), Utilisation()
    found = []
    for ms in range(5_000):
        driver.pass_ms(False)
        if ms % 1000 == 999:
            found.append(look(utilisation, driver))
    assert all(work.complete and not work.worked_us for work in found[1:])
    assert [work.length_us for work in found[1:]] == [SECOND_US] * 4


def test_a_driver_that_tells_one_sample_of_all_the_time_is_believed_for_a_second() -> None:
    driver, utilisation = Averaging(100), Utilisation()
    found = []
    for ms in range(30_000):
        driver.pass_ms(ms % 1000 < 400)
        if ms % 1000 == 999:
            found.append(look(utilisation, driver))
    assert all(work.complete for work in found[10:])
    assert [work.worked_us[PID] for work in found[10:]] == [400_000] * 20


@pytest.mark.parametrize("jump_us", [-3600 * SECOND_US, -3 * SECOND_US, 3600 * SECOND_US])
def test_a_wall_clock_that_is_set_costs_one_look(jump_us: int) -> None:
    driver, utilisation = Driver(100), Utilisation()
    found = []
    for ms in range(20_000):
        driver.pass_ms(ms % 100 < 30)
        if ms % 1000 == 999:
            found.append(look(utilisation, driver, jump_us if ms > 10_000 else 0))
    assert [work.complete for work in found[1:]] == [True] * 9 + [False] + [True] * 9
    assert all(work.length_us == SECOND_US for work in found[11:])
    assert {work.worked_us[PID] for work in found[11:]} == {300_000}
    assert found[10].length_us <= SECOND_US, "an hour that nobody lived through is billed to nobody"


def test_a_look_without_news_leaves_the_percent_as_it_was() -> None:
    driver, utilisation = Driver(1000), Utilisation()
    percents = []
    for ms in range(6_000):
        driver.pass_ms(ms % 10 < 4)
        if ms % 100 == 99:
            look(utilisation, driver)
            percents.append(utilisation.percent(PID))
    assert set(percents[10:]) == {40}


def read(answers: Callable[..., Any]) -> Any:
    """What a card's look makes of a driver that answers so when it is asked for samples."""

    def call(function: Callable[..., Any], *_arguments: Any) -> Any:
        if function is pynvml.nvmlDeviceGetComputeRunningProcesses:
            return []
        if function is pynvml.nvmlDeviceGetProcessUtilization:
            return answers()
        raise pynvml.NVMLError_NotSupported

    card = Card("GPU-a")
    return [card.look(None, 0, 1, call, lambda _pid: None, 7) for _ in range(2)][1].worked


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (pynvml.NVML_SUCCESS, True),
        (pynvml.NVML_ERROR_NOT_FOUND, True),
        (pynvml.NVML_ERROR_INSUFFICIENT_SIZE, True),
        (pynvml.NVML_ERROR_NO_PERMISSION, False),
        (pynvml.NVML_ERROR_NOT_SUPPORTED, False),
        (pynvml.NVML_ERROR_UNKNOWN, False),
    ],
)
def test_no_answer_to_the_question_for_samples_ends_a_look(error: int, told: bool) -> None:
    def answers() -> Any:
        raise pynvml.NVMLError(error)

    assert (read(answers) is not None) is told


def test_samples_that_come_while_they_are_counted_are_asked_for_again() -> None:
    tries = []

    def answers() -> Any:
        tries.append(1)
        if len(tries) % SAMPLE_TRIES:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
        return []

    assert read(answers) is not None
    assert len(tries) == 2 * SAMPLE_TRIES
