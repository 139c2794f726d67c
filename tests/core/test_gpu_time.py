"""How told work becomes GPU time: the division, its bounds, and NVML's part."""

from __future__ import annotations

import pytest

from nvshare.core import events
from nvshare.core.books.gpu_time import CROWD, MOST_SLOTS, SLOT_NS, SLOTS_TOLD, parts
from tests.core.test_figures import GPU, MS, SECOND, Bench


def gpu_time_ms(bench: Bench, pod: str) -> float:
    copy, tenant = bench.of(pod)
    return copy.gpu_time_ns(tenant) / MS


def together(bench: Bench, count: int, version: int = 3) -> None:
    for key in range(1, count + 1):
        bench.do(events.ClientRegistered(key, f"p{key}", GPU, version))
        bench.do(events.LockRequested(key))


def report(bench: Bench, key: int, worked_ns: int, slots: int = 0) -> None:
    bench.do(events.BusyReported(key, worked_ns, 0, worked_ns, bench.now_ns // SLOT_NS, slots))


def test_a_slot_counts_by_how_many_had_work_in_it() -> None:
    assert parts([0b1111, 0b0011]) == [0.75, 0.5]
    assert parts([0b111, 0b111, 0b111]) == pytest.approx([1 / 3] * 3)
    assert parts([0b1100, 0b0011]) == [1.0, 1.0]
    assert parts([0]) == [1.0]


@pytest.mark.parametrize("apart", [True, False])
def test_when_they_had_work_decides(apart: bool) -> None:
    """Two that are busy half of the time, in turns or at the same time."""
    bench = Bench()
    together(bench, 2)
    worked = [0, 0]
    early = ((1 << 100) - 1) << (SLOTS_TOLD - 200)
    late = ((1 << 100) - 1) << (SLOTS_TOLD - 100)
    for _ in range(30):
        bench.pass_ms(100)
        for number, slots in enumerate((early, late if apart else early)):
            worked[number] += 50 * MS
            report(bench, number + 1, worked[number], slots)
    bench.settle()
    each = 1500 if apart else 750
    assert [gpu_time_ms(bench, f"p{key}") for key in (1, 2)] == pytest.approx([each] * 2, rel=0.01)


def test_nobody_has_more_than_time_has_passed() -> None:
    bench = Bench()
    together(bench, 2)
    bench.pass_ms(100)
    for worked_ns in (1 << 63, (1 << 64) - 1):
        report(bench, 1, worked_ns, (1 << SLOTS_TOLD) - 1)
        bench.pass_ms(100)
    bench.settle()
    assert 0 < gpu_time_ms(bench, "p1") <= 300
    assert gpu_time_ms(bench, "p2") == 0


def test_slots_are_bounded_however_long_nobody_looks() -> None:
    bench = Bench()
    together(bench, 1)
    for step in range(200):
        bench.pass_ms(100)
        report(bench, 1, (step + 1) * 50 * MS, (1 << SLOTS_TOLD) - 1)
    work = bench.scheduler.clients[1].work
    assert work.slots.bit_length() <= MOST_SLOTS + SLOTS_TOLD


@pytest.mark.parametrize("end_slot", [0, 1, 1 << 63, (1 << 64) - 1])
def test_slots_of_another_time_are_not_heard(end_slot: int) -> None:
    bench = Bench()
    bench.now_ns += 100 * SECOND
    together(bench, 2)
    bench.pass_ms(100)
    bench.do(events.BusyReported(1, 0, 0, 0, end_slot, (1 << SLOTS_TOLD) - 1))
    assert bench.scheduler.clients[1].work.slots == 0


def test_a_crowd_has_what_there_is() -> None:
    bench = Bench()
    count = CROWD + 4
    together(bench, count)
    for step in range(20):
        bench.pass_ms(100)
        for key in range(1, count + 1):
            report(bench, key, (step + 1) * 100 * MS)
    bench.settle()
    shown = [gpu_time_ms(bench, f"p{key}") for key in range(1, count + 1)]
    assert shown == pytest.approx([2000 / count] * count, rel=0.1)


def test_what_the_card_spends_on_switching_is_taken_from_nvml() -> None:
    bench = Bench()
    together(bench, 2)
    for step in range(100):
        bench.pass_ms(100)
        for key in (1, 2):
            report(bench, key, (step + 1) * 100 * MS, (1 << SLOTS_TOLD) - 1)
        if step % 10 == 9:
            bench.do(events.WorkSampled(GPU, bench.now_ns, ((1, 450 * MS), (2, 450 * MS))))
    bench.settle()
    assert gpu_time_ms(bench, "p1") == pytest.approx(4500, rel=0.03), "5000 without NVML"


def tells_alone(told_percent: int, nvml_percent: int, seconds: int) -> Bench:
    """One that has the card for itself and tells one thing while NVML tells another."""
    bench = Bench()
    together(bench, 1)
    worked_ns = 0
    for _ in range(seconds):
        for _ in range(10):
            bench.pass_ms(100)
            worked_ns += told_percent * MS
            report(bench, 1, worked_ns)
        bench.do(events.WorkSampled(GPU, bench.now_ns, ((1, nvml_percent * 10 * MS),)))
    bench.settle()
    return bench


@pytest.mark.parametrize(("told", "nvml"), [(90, 10), (100, 50), (10, 90), (0, 60)])
def test_who_is_alone_and_tells_what_cannot_be_is_set_right_by_nvml(told: int, nvml: int) -> None:
    """Host functions, stopped programs, lies: within a percent of the time, and two seconds' worth of it."""
    bench = tells_alone(told, nvml, 100)
    assert abs(gpu_time_ms(bench, "p1") - nvml * 1000) <= 1000 + 2 * 10 * abs(told - nvml)


@pytest.mark.parametrize("nvml", [29, 30, 31])
def test_who_is_alone_knows_better_than_a_percent(nvml: int) -> None:
    bench = tells_alone(30, nvml, 100)
    assert gpu_time_ms(bench, "p1") == pytest.approx(30_000, rel=0.001)


def test_a_driver_that_never_tells_of_a_process_is_not_believed() -> None:
    bench = tells_alone(50, 0, 20)
    assert gpu_time_ms(bench, "p1") == pytest.approx(10_000, rel=0.001)


def test_work_beside_others_keeps_its_place_while_one_is_alone_for_a_moment() -> None:
    bench = Bench()
    together(bench, 2)
    bench.pass_ms(100)
    report(bench, 1, 50 * MS, ((1 << 100) - 1) << (SLOTS_TOLD - 100))
    work = bench.scheduler.clients[1].work
    before, first_slot = work.slots, work.first_slot
    bench.scheduler.gpus[GPU].gpu_time.alone(bench.scheduler.clients[1], MS, bench.now_ns, bench.now_ns)
    assert (work.slots, work.first_slot) == (before, first_slot)


def test_two_processes_of_a_limited_pod_have_what_there_was_once() -> None:
    bench = Bench()
    bench.do(events.LimitsSet("pair", "ctl", core_percent=50))
    for key in (1, 2):
        bench.do(events.ClientRegistered(key, "pair", GPU, 3))
        bench.do(events.LockRequested(key))
    for step in range(20):
        bench.pass_ms(100)
        for key in (1, 2):
            report(bench, key, (step + 1) * 100 * MS, ((1 << 200) - 1) << (SLOTS_TOLD - 200))
    bench.settle()
    assert gpu_time_ms(bench, "pair") == pytest.approx(2000, rel=0.02)


def test_who_cannot_tell_has_what_nvml_says_or_what_it_held() -> None:
    bench = Bench()
    bench.do(events.ClientRegistered(1, "p1", GPU, 2))
    bench.do(events.LockRequested(1))
    bench.pass_ms(1000)
    assert gpu_time_ms(bench, "p1") == 1000, "held"
    bench.do(events.WorkSampled(GPU, bench.now_ns, ((1, 100 * MS),)))
    bench.pass_ms(1000)
    bench.do(events.WorkSampled(GPU, bench.now_ns, ((1, 100 * MS),)))
    bench.do(events.LockReleased(1))
    assert gpu_time_ms(bench, "p1") == 200


def test_scheduling_off_stops_no_figure() -> None:
    bench = Bench()
    together(bench, 1)
    bench.do(events.SchedulingSet(False))
    bench.pass_ms(100)
    bench.do(events.BusyReported(1, 50 * MS, 1, 50 * MS))
    bench.settle()
    assert gpu_time_ms(bench, "p1") == 50
    assert bench.of("p1")[1].holding == 0, "it told that it worked, not that it holds"
    assert bench.now_ns > SECOND
