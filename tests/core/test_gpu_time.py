"""How told work becomes GPU time: the division, its bounds, and NVML's part."""

from __future__ import annotations

import pytest

from nvshare.core import events
from nvshare.core.books.gpu_time import EXACT_MAX, MOST_SLOTS, SLOT_NS, SLOTS_REPORTED, TALLY_NS
from nvshare.core.books.time_slots import parts
from tests.core.bench import GPU, MS, SECOND, Bench


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
    early = ((1 << 100) - 1) << (SLOTS_REPORTED - 200)
    late = ((1 << 100) - 1) << (SLOTS_REPORTED - 100)
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
        report(bench, 1, worked_ns, (1 << SLOTS_REPORTED) - 1)
        bench.pass_ms(100)
    bench.settle()
    assert 0 < gpu_time_ms(bench, "p1") <= 300
    assert gpu_time_ms(bench, "p2") == 0


def test_slots_are_bounded_however_long_nobody_looks() -> None:
    bench = Bench()
    together(bench, 1)
    for step in range(200):
        bench.pass_ms(100)
        report(bench, 1, (step + 1) * 50 * MS, (1 << SLOTS_REPORTED) - 1)
    work = bench.scheduler.clients[1].work
    assert work.slots.bit_length() <= MOST_SLOTS + SLOTS_REPORTED


@pytest.mark.parametrize("end_slot", [0, 1, 1 << 63, (1 << 64) - 1])
def test_slots_of_another_time_are_not_heard(end_slot: int) -> None:
    bench = Bench()
    bench.now_ns += 100 * SECOND
    together(bench, 2)
    bench.pass_ms(100)
    bench.do(events.BusyReported(1, 0, 0, 0, end_slot, (1 << SLOTS_REPORTED) - 1))
    assert bench.scheduler.clients[1].work.slots == 0


def test_a_crowd_has_what_there_is() -> None:
    bench = Bench()
    count = EXACT_MAX + 4
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
            report(bench, key, (step + 1) * 100 * MS, (1 << SLOTS_REPORTED) - 1)
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
def test_impossible_reports_of_a_lone_tenant_are_corrected_by_nvml(told: int, nvml: int) -> None:
    """Host functions, stopped programs, lies: within a percent of the time, and two seconds' worth of it."""
    bench = tells_alone(told, nvml, 100)
    assert abs(gpu_time_ms(bench, "p1") - nvml * 1000) <= 1000 + 2 * 10 * abs(told - nvml)


@pytest.mark.parametrize("nvml", [29, 30, 31])
def test_a_lone_tenants_report_is_more_exact_than_a_percent(nvml: int) -> None:
    bench = tells_alone(30, nvml, 100)
    assert gpu_time_ms(bench, "p1") == pytest.approx(30_000, rel=0.001)


def test_a_driver_that_never_tells_of_a_process_is_not_believed() -> None:
    bench = tells_alone(50, 0, 20)
    assert gpu_time_ms(bench, "p1") == pytest.approx(10_000, rel=0.001)


def test_work_beside_others_keeps_its_place_while_one_is_alone_for_a_moment() -> None:
    bench = Bench()
    together(bench, 2)
    bench.pass_ms(100)
    report(bench, 1, 50 * MS, ((1 << 100) - 1) << (SLOTS_REPORTED - 100))
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
            report(bench, key, (step + 1) * 100 * MS, ((1 << 200) - 1) << (SLOTS_REPORTED - 200))
    bench.settle()
    assert gpu_time_ms(bench, "pair") == pytest.approx(2000, rel=0.02)


def test_a_client_that_cannot_report_has_what_nvml_reports_or_what_it_held() -> None:
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


def test_what_a_client_held_since_nvml_last_reported_is_left_to_its_next_report() -> None:
    bench = Bench()
    bench.now_ns += 100 * SECOND
    bench.do(events.ClientRegistered(1, "p1", GPU, 2))
    bench.do(events.LockRequested(1))
    bench.do(events.WorkSampled(GPU, bench.now_ns, ((1, 0),)))
    bench.pass_ms(500)
    bench.do(events.LockReleased(1))
    assert gpu_time_ms(bench, "p1") == 0
    bench.do(events.WorkSampled(GPU, bench.now_ns, ((1, 40 * MS),)))
    assert gpu_time_ms(bench, "p1") == 40


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


def wake_when_due(bench: Bench, ms: int) -> int:
    """Time passes, and nothing else happens; how often the core wanted to be woken."""
    end_ns, wakes = bench.now_ns + ms * MS, 0
    while (due_ns := bench.scheduler.next_deadline_ns()) is not None and due_ns <= end_ns:
        bench.now_ns = due_ns
        bench.do(events.Woken())
        wakes += 1
    bench.now_ns = end_ns
    return wakes


@pytest.mark.parametrize("ending", ["silent", "idle", "released", "off"])
def test_what_was_told_is_divided_a_second_later_whoever_looks(ending: str) -> None:
    """Nobody tells anything any more, and no NVML does: as in a daemon without metrics."""
    bench = Bench()
    together(bench, 2)
    if ending == "off":
        bench.do(events.SchedulingSet(False))
    bench.pass_ms(100)
    for key in (1, 2):
        if ending == "released":
            bench.do(events.LockReleased(key, 100 * MS))
        else:
            idle_ns = MS if ending == "idle" else 0
            bench.do(events.BusyReported(key, 100 * MS, idle_ns, 100 * MS))
    assert [gpu_time_ms(bench, f"p{key}") for key in (1, 2)] == [0, 0]
    wakes = wake_when_due(bench, 1100)
    assert [gpu_time_ms(bench, f"p{key}") for key in (1, 2)] == [50, 50]
    assert not bench.scheduler.gpus[GPU].gpu_time.is_behind
    assert wakes <= 6, "each tenant's pause, and at most two looks at what was told"
    assert wake_when_due(bench, 10_000) <= 2, "and then nothing is due"


def test_work_told_late_in_a_window_is_not_left_behind() -> None:
    """Each told at another moment; all of it is divided about a second after it was told."""
    bench = Bench()
    together(bench, 3)
    for key in (1, 2, 3):
        wake_when_due(bench, 250)
        report(bench, key, 100 * MS)
    wake_when_due(bench, 1200)
    assert not bench.scheduler.gpus[GPU].gpu_time.is_behind
    assert sum(gpu_time_ms(bench, f"p{key}") for key in (1, 2, 3)) == pytest.approx(300)


def test_reports_of_a_group_that_works_on_wake_nobody_more_often() -> None:
    """Reports have it divided themselves: a deadline is no more than a look now and then."""
    bench = Bench()
    together(bench, 2)
    wakes = 0
    for step in range(100):
        wakes += wake_when_due(bench, 100)
        for key in (1, 2):
            report(bench, key, (step + 1) * 50 * MS)
    assert wakes <= 30, "in 10 s"


class Older:
    """Programs that speak protocol 2, which let go every 50 ms, and NVML, which looks once a second."""

    def __init__(self, pods: int, percent: int | None = None) -> None:
        self.bench = Bench()
        self.keys = range(1, pods + 1)
        for key in self.keys:
            if percent is not None:
                self.bench.do(events.LimitsSet(f"p{key}", "ctl", None, percent))
            self.bench.do(events.ClientRegistered(key, f"p{key}", GPU, 2))
        self.since_ns = self.bench.now_ns
        self.held_ns = dict.fromkeys(self.keys, 0)
        self.reported_ns = dict.fromkeys(self.keys, 0)

    def run(self, ms: int, nvml: bool = True, idle: bool = False) -> None:
        """What the card worked for them is what they held, divided, or nothing while they are idle."""
        bench, clients = self.bench, self.bench.scheduler.clients
        for _ in range(ms):
            for key in self.keys:
                if not clients[key].holds and not clients[key].wants:
                    bench.do(events.LockRequested(key))
            holders = [key for key in self.keys if clients[key].holds]
            for key in holders:
                self.held_ns[key] += 0 if idle else MS // len(holders)
            bench.pass_ms(1)
            passed_ms = (bench.now_ns - self.since_ns) // MS
            for key in holders:
                if clients[key].dropping or passed_ms % 50 == 0:
                    bench.do(events.LockReleased(key))
            if nvml and passed_ms % 1000 == 0:
                self.look()

    def look(self) -> None:
        worked = tuple((key, self.held_ns[key] - self.reported_ns[key]) for key in self.keys)
        self.reported_ns = dict(self.held_ns)
        self.bench.do(events.WorkSampled(GPU, self.bench.now_ns, worked))

    def end(self) -> list[float]:
        """All go: what is left of them, in milliseconds."""
        for key in self.keys:
            self.bench.do(events.ProcessGone(key))
        copy = self.bench.look()
        left = {tenant.pod: copy.gpu_time_ns(tenant) for tenant in copy.tenants}
        left |= {pod: figures.gpu_time_ns for pod, figures in copy.departed}
        return [left[f"p{key}"] / MS for key in self.keys]


@pytest.mark.parametrize("percent", [None, 90])
@pytest.mark.parametrize("ms", [300, 1000, 1500, 1999, 2500])
def test_a_short_program_that_cannot_tell_has_all_it_held(ms: int, percent: int | None) -> None:
    """NVML told of it up to its last look; it went half a second later."""
    older = Older(1, percent)
    older.run(ms)
    worked_ms = older.held_ns[1] / MS
    assert older.end() == pytest.approx([worked_ms], rel=0.02)


def test_short_programs_that_run_at_once_share_what_they_held() -> None:
    older = Older(2)
    older.run(1500)
    assert older.end() == pytest.approx([750, 750], rel=0.05)


def test_what_nvml_says_was_idle_is_not_counted_when_a_program_goes() -> None:
    """It held the GPU for two seconds, and NVML saw it work for none of them."""
    older = Older(1)
    older.run(1000)
    older.run(1900, nvml=False, idle=True)
    assert older.bench.scheduler.clients[1].awaits_nvml, "so that NVML's word of 0 is asked for"
    older.look()
    assert older.end() == pytest.approx([1000], rel=0.02)


def test_held_time_is_bounded_by_the_time_since_nvml_told() -> None:
    """A hold that began before NVML's last look is in that for the most part."""
    bench = Bench()
    bench.do(events.ClientRegistered(1, "p1", GPU, 2))
    bench.do(events.LockRequested(1))
    bench.pass_ms(1000)
    bench.do(events.WorkSampled(GPU, bench.now_ns, ((1, 1000 * MS),)))
    bench.pass_ms(100)
    bench.do(events.ProcessGone(1))
    assert gpu_time_ms(bench, "p1") == 1100


def test_a_program_that_nvml_forgets_stands_still_no_longer_than_ten_seconds() -> None:
    older = Older(1)
    older.run(1000)
    older.run(12_000, nvml=False)
    [shown_ms] = older.end()
    assert 2000 < shown_ms <= 13_000


def test_the_daemon_is_woken_to_divide_work_that_was_reported_last() -> None:
    """The daemon sets its timer only if the bound of the next deadline is before it."""
    bench = Bench()
    together(bench, 2)
    bench.pass_ms(100)
    report(bench, 1, 50 * MS, 1)
    bound_ns = bench.scheduler.deadline_bound_ns
    due_ns = bench.scheduler.next_deadline_ns()
    assert due_ns is not None
    assert bound_ns <= due_ns <= bench.now_ns + TALLY_NS
