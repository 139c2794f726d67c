"""Turns, quotas, drains and memory sets, seen through grants and drops."""

from __future__ import annotations

import pytest

from nvshare.core import effects, events
from nvshare.core.effects import DropReason
from nvshare.core.policy.hints import LIMITED_PRESENT
from nvshare.core.settings import Settings

from .model import GIB, MS, SECOND, Model
from .test_defects import drops, grants


def reasons(wanted: list[effects.Effect]) -> list[DropReason]:
    return [effect.reason for effect in wanted if isinstance(effect, effects.Drop)]


def test_unlimited_tenants_that_fit_run_together_and_are_never_dropped() -> None:
    model = Model()
    keys = [model.register(f"pod-{number}") for number in range(4)]
    for key in keys:
        assert grants(model.request(key)) == [key]
    model.pass_time(3600 * SECOND)
    assert model.open_gates() == keys


def test_in_serial_mode_unlimited_tenants_take_turns_by_slices() -> None:
    model = Model(Settings(scheduling_mode="serial"))
    first, second = model.register("a"), model.register("b")
    model.request(first)
    told = {type(effect) for effect in model.request(second)}
    assert told.isdisjoint({effects.Grant, effects.WaitForMemory}), "it waits, and not for memory"
    gpu = model.core.snapshot(model.now_ns).gpus[0]
    assert (gpu.request_queue_clients, gpu.wait_queue_clients, gpu.wait_for_memory_total) == (1, 0, 0)
    assert [tenant.explanation.reason for tenant in gpu.tenants] == ["running", "turn"]
    model.pass_time(10 * SECOND + MS)
    assert model.clients[first].dropping
    assert grants(model.release(first, MS, again=True)) == [second]


def test_a_slice_does_not_end_when_nobody_waits() -> None:
    model = Model(Settings(switch_time_mode="fixed", switch_time_fixed_ns=SECOND))
    key = model.register("a")
    model.use(key, 15 * GIB)
    model.request(key)
    model.pass_time(1000 * SECOND)
    assert model.open_gates() == [key]


@pytest.mark.parametrize(
    ("gib", "multiplier", "seconds"), [(1, 5, 10), (12, 5, 60), (12, 1, 12), (14, 100, 300)]
)
def test_the_slice_follows_the_memory(gib: int, multiplier: int, seconds: int) -> None:
    model = Model(Settings(switch_time_multiplier=multiplier))
    key = model.register("a")
    model.use(key, gib * GIB)
    model.request(key)
    assert model.gpu().slice_ns() == seconds * SECOND


def test_max_runtime_caps_a_slice() -> None:
    model = Model(
        Settings(switch_time_mode="fixed", switch_time_fixed_ns=80 * SECOND, max_runtime_ns=20 * SECOND)
    )
    first, second = model.register("a"), model.register("b")
    for key in (first, second):
        model.use(key, 12 * GIB)
        model.request(key)
    model.pass_time(20 * SECOND + MS)
    assert model.clients[first].dropping


def test_a_cap_holds_although_nobody_waits() -> None:
    model = Model()
    model.limit("a", 25)
    key = model.register("a")
    model.request(key)
    model.pass_time(100 * MS)
    assert model.clients[key].dropping
    assert model.gpu().figures.drops[DropReason.QUOTA] == 1
    assert grants(model.release(key, again=True)) == []
    explanation = model.core.snapshot(model.now_ns).gpus[0].tenants[0].explanation
    assert (explanation.state, explanation.reason) == ("waiting", "quota")
    assert "25 %" in explanation.remedy
    model.pass_time(400 * MS)
    assert model.clients[key].holds, "and it runs again when time has repaid it"


def test_a_share_borrows_what_nobody_wants_and_gives_it_back_at_once() -> None:
    model = Model()
    model.limit("borrower", 20, share=True)
    model.limit("owner", 50)
    borrower, owner = model.register("borrower"), model.register("owner")
    model.request(borrower)
    model.pass_time(10 * SECOND)
    assert model.open_gates() == [borrower], "alone it has the whole GPU"
    assert model.core.snapshot(model.now_ns).gpus[0].tenants[0].debt_ns < SECOND, "and owes nothing for it"
    model.request(owner)
    assert model.clients[borrower].dropping


def test_debt_outlives_the_processes_that_made_it() -> None:
    model = Model()
    model.limit("a", 10)
    key = model.register("a")
    model.request(key)
    model.release(key, 5 * SECOND)
    owed = model.lag_ms("a")
    assert owed < -4000
    model.step(events.ProcessGone(key))
    model.pass_time(10 * SECOND)
    again = model.register("a")
    assert grants(model.request(again)) == []
    assert model.lag_ms("a") == pytest.approx(owed + 1000, abs=2)
    model.pass_time(40 * SECOND)
    assert model.clients[again].holds


def test_a_tenant_without_debt_is_forgotten() -> None:
    model = Model()
    model.limit("a", 50)
    key = model.register("a")
    model.request(key)
    model.release(key, MS)
    model.step(events.ProcessGone(key))
    model.pass_time(5 * SECOND)
    assert model.gpu().tenants == {}


def test_waking_brings_at_most_one_turn_of_credit() -> None:
    model = Model()
    model.limit("a", 50)
    key = model.register("a")
    model.request(key)
    model.release(key, MS)
    model.pass_time(3600 * SECOND)
    model.request(key)
    assert 0 < model.lag_ms("a") <= model.gpu().pace.turn_ns / MS


def test_a_changed_quota_keeps_what_was_billed() -> None:
    model = Model()
    model.limit("a", 10)
    key = model.register("a")
    model.request(key)
    model.release(key, SECOND, again=True)
    before = model.lag_ms("a")
    model.limit("a", 90)
    assert model.lag_ms("a") == pytest.approx(before, abs=0.01)
    assert model.core.snapshot(model.now_ns).gpus[0].tenants[0].core_percent == 90


def test_a_quota_given_to_a_running_unlimited_tenant_takes_hold_at_once() -> None:
    model = Model()
    first, second = model.register("a"), model.register("b")
    model.request(first)
    model.request(second)
    model.limit("a", 30)
    assert model.clients[first].dropping
    assert model.clients[second].holds
    model.release(first, MS, again=True)
    model.limit("a", 100)
    model.pass_time(MS)
    assert model.open_gates() == [second, first] or model.open_gates() == [first, second]


def test_a_gap_stops_the_bill_and_ends_the_hold_when_somebody_waits() -> None:
    model = Model()
    model.limit("a", 90)
    model.limit("b", 90)
    first, second = model.register("a"), model.register("b")
    model.request(first)
    model.pass_time(10 * MS)
    model.step(events.BusyReported(first, 8 * MS, 2 * MS))
    assert model.tenant("a").account.billed_ns == 8 * MS
    model.pass_time(500 * MS)
    assert model.clients[first].holds
    assert model.tenant("a").account.billed_ns == 8 * MS, "holding without working costs nothing"
    assert drops(model.request(second)) == [first]
    assert model.gpu().figures.drops[DropReason.IDLE] == 1


def test_the_next_runs_beside_a_holder_that_does_not_drain() -> None:
    model = Model()
    for pod in ("late", "next"):
        model.limit(pod, 50)
    late, following = model.register("late"), model.register("next")
    model.request(late)
    model.request(following)
    model.pass_time(300 * MS)
    assert model.clients[late].dropping
    assert model.open_gates() == []
    model.pass_time(400 * MS)
    assert model.clients[following].holds
    tenants = {tenant.pod: tenant for tenant in model.core.snapshot(model.now_ns).gpus[0].tenants}
    assert tenants["late"].late
    assert tenants["late"].explanation.state == "late"


def test_nobody_waits_for_a_late_tenants_drains_until_it_has_drained_in_time_ten_times() -> None:
    model = Model()
    for pod in ("late", "next"):
        model.limit(pod, 50)
    late, following = model.register("late"), model.register("next")
    model.request(late)
    model.request(following)
    model.pass_time(700 * MS)
    model.release(late, again=True)
    assert model.tenant("late").habits.late_turns == 10
    for _ in range(400):
        for key in (late, following):
            if model.clients[key].dropping:
                model.release(key, MS, again=True)
        model.pass_time(20 * MS)
        if model.tenant("late").habits.late_turns == 0:
            break
    assert model.tenant("late").habits.late_turns == 0


def test_a_pod_on_two_gpus_waits_half_a_second_at_most() -> None:
    model = Model()
    model.limit("wide", 1)
    model.limit("other", 99)
    one, two = model.register("wide", "GPU-0"), model.register("wide", "GPU-1")
    other = model.register("other", "GPU-0")
    model.request(one)
    model.request(two)
    model.release(one, 2 * SECOND, again=True)
    model.request(other)
    assert model.lag_ms("wide") < -1000
    model.pass_time(501 * MS)
    assert model.clients[one].holds, "its kernel on GPU-1 may spin for this one"


def test_small_requests_overtake_a_big_one_for_ten_seconds() -> None:
    model = Model(Settings(switch_time_mode="fixed", switch_time_fixed_ns=200 * SECOND))
    keys = [model.register(f"small-{number}") for number in range(4)]
    big = model.register("big")
    model.use(keys[0], 2 * GIB)
    model.use(big, 13 * GIB)
    model.request(keys[0])
    assert grants(model.request(big)) == []
    assert grants(model.request(keys[1], 5 * SECOND)) == [keys[1]]
    model.pass_time(4900 * MS)
    assert not model.clients[big].holds
    model.pass_time(200 * MS)
    assert all(model.clients[key].dropping for key in keys[:2]), "then room is made"
    model.use(keys[2], 2 * GIB)
    assert grants(model.request(keys[2])) == [], "and nobody else is let in past it"
    model.release(keys[0], MS)
    assert grants(model.release(keys[1], MS)) == [big]


def test_a_member_that_grows_over_the_limit_pushes_out_idle_members() -> None:
    model = Model()
    for pod in ("a", "b"):
        model.limit(pod, 50)
    first, second = model.register("a"), model.register("b")
    for key in (first, second):
        model.use(key, 4 * GIB)
        model.request(key)
    waits = model.use(first, 13 * GIB)
    assert effects.WaitForMemory(second) in waits
    assert model.clients[first].holds
    snapshot = model.core.snapshot(model.now_ns).gpus[0]
    assert snapshot.overloaded
    assert snapshot.wait_queue_clients == 1


def test_an_unresponsive_holder_of_a_slice_is_marked_after_the_drop_timeout() -> None:
    model = Model(Settings(switch_time_mode="fixed", switch_time_fixed_ns=10 * SECOND))
    holder, small = model.register("a"), model.register("b")
    model.use(holder, 12 * GIB)
    model.use(small, 4 * GIB)
    model.request(holder)
    model.request(small)
    model.pass_time(10 * SECOND + 59 * SECOND)
    assert not model.clients[small].holds
    assert model.clients[holder].dropping
    model.pass_time(2 * SECOND)
    snapshot = model.core.snapshot(model.now_ns).gpus[0]
    assert snapshot.unresponsive_total == 1
    assert not model.clients[small].holds, "its memory does not fit beside the one that hangs"
    model.use(small, GIB)
    model.pass_time(MS)
    assert model.clients[small].holds, "and now it does"


def test_turn_and_queue_place_end_with_the_connection_memory_with_the_process() -> None:
    model = Model()
    model.limit("a", memory=8 * GIB)
    key = model.register("a")
    model.use(key, 5 * GIB)
    model.request(key)
    model.step(events.ClientDisconnected(key))
    tenant = model.core.snapshot(model.now_ns).gpus[0].tenants[0]
    assert tenant.clients[0].state == "gone"
    assert tenant.used_bytes == 5 * GIB
    assert model.core.snapshot(model.now_ns).gpus[0].running_clients == 0
    model.step(events.ProcessGone(key))
    assert model.tenant("a").footprint.used_bytes == 0


def test_v2_clients_are_billed_by_what_they_held() -> None:
    model = Model()
    model.limit("old", 50)
    key = model.register("old", version=2)
    model.request(key)
    model.release(key, 15 * MS)
    assert model.tenant("old").account.billed_ns == 15 * MS


def test_hints_reach_v3_holders_only_and_only_when_they_change() -> None:
    model = Model()
    model.limit("a", 50)
    model.limit("b", 50)
    new, old = model.register("a"), model.register("b", version=2)
    granted = model.request(new)
    hints = [effect for effect in granted if isinstance(effect, effects.SendHints)]
    waits = model.request(old)
    hints += [effect for effect in waits if isinstance(effect, effects.SendHints)]
    assert hints == [effects.SendHints(new, True, True, False)]


def test_a_tenant_that_waits_for_memory_does_not_make_holders_let_go_at_every_gap() -> None:
    model = Model()
    model.limit("a", 50)
    model.limit("b", 50)
    holder, outside = model.register("a"), model.register("b")
    for key in (holder, outside):
        model.use(key, 12 * GIB)
    model.request(holder)
    waits = model.request(outside)
    assert effects.WaitForMemory(outside) in waits
    assert not any(isinstance(effect, effects.SendHints) and effect.others_wait for effect in waits)
    model.step(events.BusyReported(holder, MS, 2 * MS), 5 * MS)
    assert model.open_gates() == [holder], "a pause of two milliseconds is no reason to swap 12 GiB"


def test_queues_are_kept_short_while_somebody_waits_for_memory() -> None:
    """Else a holder that queues all it can would drain for minutes when its slice ends."""
    model = Model(Settings(switch_time_mode="fixed", switch_time_fixed_ns=SECOND))
    first, second = model.register("a"), model.register("b")
    for key in (first, second):
        model.use(key, 12 * GIB)
    model.request(first)
    assert not model.gpu().sent_hints.limited_present
    told = [effect for effect in model.request(second) if isinstance(effect, effects.SendHints)]
    assert {effect.client: effect.limited_present for effect in told}[first]
    model.pass_time(SECOND + MS)
    model.release(first, MS, again=True)
    assert model.open_gates() == [second]
    assert model.core.clients[second].hints & LIMITED_PRESENT, "the other now waits"
    model.step(events.ProcessGone(first))
    assert not model.core.clients[second].hints & LIMITED_PRESENT


def test_turns_are_longer_as_soon_as_handing_over_is_known_to_cost_more() -> None:
    pace = Model().gpu().pace
    before_ns = pace.turn_ns
    pace.learn_dead(10 * MS)
    assert pace.turn_ns > before_ns


@pytest.mark.parametrize(
    ("held_ms", "unused_us", "paused", "learned"),
    [
        (20, 2000, False, True),
        (20, 2000, True, False),
        (6, 2000, False, False),
        (120, 24_000, False, False),
    ],
    ids=["handing over", "it paused", "its own gaps", "more than handing over can cost"],
)
def test_what_handing_over_costs_is_learned_from_turns_without_gaps(
    held_ms: int, unused_us: int, paused: bool, learned: bool
) -> None:
    model = Model(gpus=1)
    model.limit("a", 50)
    key = model.register("a")
    dead_ns, busy_ns = model.gpu().pace.dead_ns, held_ms * MS - 1000 * unused_us
    model.request(key)
    if paused:
        model.step(events.BusyReported(key, busy_ns, 1000 * unused_us), held_ms * MS)
    else:
        model.step(events.LockReleased(key, busy_ns), held_ms * MS)
    assert (model.gpu().pace.dead_ns != dead_ns) is learned


def test_how_much_of_its_turns_a_tenant_uses_is_learned_both_ways() -> None:
    model = Model(gpus=1)
    model.limit("a", 50)
    key, busy_ns, found = model.register("a"), 0, []
    for used_ms in (10, 10, 10, 20, 20, 20):
        model.pass_time(200 * MS)
        model.request(key)
        busy_ns += used_ms * MS
        model.step(events.LockReleased(key, busy_ns), 20 * MS)
        found.append(model.tenant("a").account.duty_percent)
    assert found[0] > found[1] > found[2] < found[3] < found[4] < found[5]


def test_when_a_turn_with_gaps_ends_does_not_depend_on_how_often_it_is_computed() -> None:
    model = Model(gpus=1)
    model.limit("gappy", 30)
    key, busy_ns = model.register("gappy"), 0
    for _ in range(10):  # half of each hold is used
        model.request(key)
        busy_ns += 10 * MS
        model.step(events.LockReleased(key, busy_ns), 20 * MS)
        model.pass_time(SECOND)
    model.request(key)
    model.pass_time(10 * MS)
    first_ns = model.core.next_deadline_ns()
    assert first_ns is not None
    model.step(events.LimitsSet("gappy", "ctl", GIB, 30), (first_ns - model.now_ns) * 3 // 4)
    again_ns = model.core.next_deadline_ns()
    assert again_ns is not None
    assert abs(again_ns - first_ns) <= MS, f"{(again_ns - first_ns) / MS} ms"


def test_a_tenant_that_filled_gaps_keeps_its_queue_short_no_longer_than_they_last() -> None:
    model = Model(gpus=1)
    model.limit("gappy", 50)
    gappy, small, busy_ns = model.register("gappy"), model.register("small"), 0
    model.request(small)
    model.step(events.LockReleased(small, MS, kernel_ns=100_000), MS)
    for _ in range(10):  # half of each hold is used
        model.pass_time(100 * MS)
        model.request(gappy)
        busy_ns += 10 * MS
        model.step(events.LockReleased(gappy, busy_ns), 20 * MS)
    model.pass_time(100 * MS)
    model.request(gappy)
    assert effects.SendHints(small, False, True, True) in model.request(small)
    ended = model.step(events.LockReleased(gappy, busy_ns + 10 * MS), 20 * MS)
    assert effects.SendHints(small, False, True, False) in ended
