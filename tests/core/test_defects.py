"""Mistakes that schedulers of this kind are known to make: one test each, that fails on a core with it."""

from __future__ import annotations

import pytest

from nvshare.core import effects, events
from nvshare.core.settings import Settings

from .model import GIB, MS, SECOND, Model


def grants(wanted: list[effects.Effect]) -> list[int]:
    return [effect.client for effect in wanted if isinstance(effect, effects.Grant)]


def drops(wanted: list[effects.Effect]) -> list[int]:
    return [effect.client for effect in wanted if isinstance(effect, effects.Drop)]


def test_asking_twice_while_running_or_waiting_queues_once() -> None:
    """A duplicate entry outlived its client and aliased the next one's record."""
    model = Model()
    for pod in ("a", "b"):
        model.limit(pod, 50)
    first, second = model.register("a"), model.register("b")
    assert grants(model.request(first)) == [first]
    assert model.request(first) == []
    for _ in range(3):
        assert grants(model.request(second)) == []
    snapshot = model.core.snapshot(model.now_ns).gpus[0]
    assert (snapshot.running_clients, snapshot.request_queue_clients) == (1, 1)
    model.step(events.ProcessGone(second))
    snapshot = model.core.snapshot(model.now_ns).gpus[0]
    assert snapshot.request_queue_clients == snapshot.wait_queue_clients == 0
    assert grants(model.release(first, 5 * MS)) == []


def test_off_and_on_leaves_no_runner_behind() -> None:
    """OFF left the running list as it was, so each runner was queued a second time after ON."""
    model = Model()
    keys = [model.register(f"pod-{number}") for number in range(3)]
    for key in keys:
        model.request(key)
    off = model.step(events.SchedulingSet(False))
    assert {effect.client for effect in off if isinstance(effect, effects.SendScheduling)} == set(keys)
    assert model.core.snapshot(model.now_ns).gpus[0].running_clients == 0
    assert grants(model.request(keys[0])) == [], "while off, requests are ignored: clients run ungated"
    model.step(events.SchedulingSet(True))
    assert model.holders() == []
    assert grants(model.request(keys[0])) == [keys[0]]
    assert model.core.snapshot(model.now_ns).gpus[0].running_clients == 1


def test_a_leaving_client_is_out_of_every_queue_before_anybody_is_granted() -> None:
    """The next was scheduled first, and the grant went to the one that was leaving."""
    model = Model()
    for pod in ("a", "b", "c"):
        model.limit(pod, 30)
    first, second, third = (model.register(pod) for pod in ("a", "b", "c"))
    model.request(first)
    model.request(second)
    model.request(third)
    assert model.open_gates() == [first]
    model.request(first)
    gone = model.step(events.ClientDisconnected(first), 5 * MS)
    assert first not in {effect.client for effect in gone}
    assert grants(gone) == [second], "the GPU went to the next at once"
    gone = model.step(events.ProcessGone(third), MS)
    assert third not in {effect.client for effect in gone}
    assert model.core.snapshot(model.now_ns).gpus[0].request_queue_clients == 0


def test_a_new_client_starts_with_nothing() -> None:
    """Records were not cleared: random usage, random quotas, memory counted twice."""
    model = Model()
    key = model.register("a")
    tenant = model.core.snapshot(model.now_ns).gpus[0].tenants[0]
    assert (tenant.used_bytes, tenant.memory_limit_bytes, tenant.core_percent) == (0, 0, 100)
    model.use(key, 256 << 20)
    model.request(key)
    gpu = model.core.snapshot(model.now_ns).gpus[0]
    assert gpu.running_bytes == gpu.tenants[0].used_bytes == 256 << 20
    again = model.register("b")
    model.request(again)
    assert model.core.snapshot(model.now_ns).gpus[0].running_bytes == 256 << 20
    assert not model.core.snapshot(model.now_ns).gpus[0].overloaded


def test_the_slice_of_unlimited_tenants_that_do_not_fit_fires() -> None:
    """The slice could never be reached: the first tenant kept the GPU until it went idle."""
    model = Model()
    first, second = model.register("a"), model.register("b")
    model.use(first, 12 * GIB)
    model.use(second, 12 * GIB)
    model.request(first)
    waits = model.request(second)
    assert effects.WaitForMemory(second) in waits
    assert grants(waits) == []
    assert model.gpu().slice_ns() == 60 * SECOND
    model.pass_time(59 * SECOND)
    assert model.open_gates() == [first]
    model.pass_time(2 * SECOND)
    assert model.clients[first].dropping
    released = model.release(first, 10 * MS, again=True)
    assert [effect for effect in released if isinstance(effect, effects.MemoryAvailable | effects.Grant)] == [
        effects.MemoryAvailable(second),
        effects.Grant(second),
    ]
    model.pass_time(61 * SECOND)
    assert model.clients[second].dropping, "and back again after the next slice"


def test_set_tq_replaces_the_slice() -> None:
    """SET_TQ was stored and never used."""
    model = Model()
    first, second = model.register("a"), model.register("b")
    model.use(first, 12 * GIB)
    model.use(second, 12 * GIB)
    model.request(first)
    model.request(second)
    model.step(events.SliceSet(SECOND))
    model.pass_time(1100 * MS)
    assert model.clients[first].dropping


def test_a_quota_belongs_to_the_pod_not_to_each_process() -> None:
    """N processes of a pod each had the pod's percentage, and its whole memory limit."""
    model = Model()
    model.limit("a", 50, memory=4 * GIB)
    first, second = model.register("a"), model.register("a")
    model.step(events.LeaseReturned(first, model.clients[first].lease_generation, 3 * GIB))
    model.use(first, 3 * GIB)
    model.clients[second].waiting_answer[1] = 2 * GIB
    refused = model.step(events.MemoryRequested(second, 1, 2 * GIB))
    assert refused == [effects.Refused(second, 1, 4 * GIB, 3 * GIB, 2 * GIB)]
    assert grants(model.request(first)) == [first]
    assert grants(model.request(second)) == [second], "in a turn all of a pod's processes run together"
    started_ns, busy_ns = model.now_ns, 0
    while model.now_ns - started_ns < 20 * SECOND:
        began_ns = model.now_ns
        model.pass_time(500 * MS) if not model.open_gates() else model.pass_time(5 * MS)
        if set(model.holders()) & {first, second}:
            busy_ns += model.now_ns - began_ns
        for key in (first, second):
            if model.clients[key].dropping:
                model.release(key, again=True)
    billed_ns = model.tenant("a").account.billed_ns + model.tenant("a").account.held_since_settled(
        model.now_ns
    )
    share = billed_ns / (model.now_ns - started_ns)
    assert abs(share - 0.5) < 0.01, f"the pod was billed {share:.3f} of the time, once for both"


def test_idle_tenants_do_not_shrink_the_others() -> None:
    """Every registered limited client counted in the sum, idle or not."""
    model = Model()
    for pod in ("a", "b", "c"):
        model.limit(pod, 60)
    keys = [model.register(pod) for pod in ("a", "b", "c")]
    model.request(keys[0])
    tenants = {tenant.pod: tenant for tenant in model.core.snapshot(model.now_ns).gpus[0].tenants}
    assert tenants["a"].effective_percent == 60.0
    model.request(keys[1])
    tenants = {tenant.pod: tenant for tenant in model.core.snapshot(model.now_ns).gpus[0].tenants}
    assert tenants["a"].effective_percent == tenants["b"].effective_percent == 50.0


def test_a_limited_tenant_does_not_pay_for_an_unlimited_ones_time() -> None:
    """Clients at 100 % were outside all accounting: 30 % beside one got 11 %."""
    model = Model()
    model.limit("limited", 30)
    limited, unlimited = model.register("limited"), model.register("unlimited")
    model.request(unlimited)
    model.request(limited)
    served = dict.fromkeys((limited, unlimited), 0)
    started_ns = model.now_ns
    while model.now_ns - started_ns < 20 * SECOND:
        began_ns, running = model.now_ns, model.holders()
        for key in list(running):
            if model.clients[key].dropping:
                model.release(key, again=True)
        model.pass_time(MS)
        assert len(running) <= 1, "an exclusive turn is exclusive"
        for key in running:
            served[key] += model.now_ns - began_ns
    share = served[limited] / (model.now_ns - started_ns)
    assert abs(share - 0.30) < 0.01, f"30 % beside an unlimited tenant got {share:.3f}"
    assert served[unlimited] > 0.65 * (model.now_ns - started_ns)


def test_holds_shorter_than_a_millisecond_are_billed() -> None:
    """Whole milliseconds: 30,000 short holds a second cost nothing, and no quota ever held."""
    model = Model()
    model.limit("a", 50)
    key = model.register("a")
    held_ns = 0
    model.request(key)
    for _ in range(2000):
        if not model.clients[key].holds:
            break
        model.release(key, 300_000, again=True)
        held_ns += 300_000
    assert model.tenant("a").account.billed_ns == held_ns
    assert held_ns < 60 * MS, "and soon its quota held it back"
    assert model.core.snapshot(model.now_ns).gpus[0].tenants[0].throttled


def test_a_tenant_that_ignores_drop_goes_on_being_billed() -> None:
    """A client that did not answer DROP was never billed again, and most of it was forgiven."""
    model = Model()
    model.limit("bad", 50)
    model.limit("good", 50)
    bad, good = model.register("bad"), model.register("good")
    model.request(bad)
    model.request(good)
    model.pass_time(700 * MS)
    assert model.clients[good].holds, "others go on beside it after the grace period"
    model.pass_time(4 * SECOND)
    before = model.lag_ms("bad")
    assert before < -2000, f"4.7 s at 50 % make 2.3 s of debt, not {-before:.0f} ms"
    assert model.core.snapshot(model.now_ns).gpus[0].overlaps >= 1
    model.step(events.LockReleased(bad))
    assert abs(model.lag_ms("bad") - before) < 1, "and the debt stays when it lets go at last"


def test_names_of_one_card_are_one_card() -> None:
    """Raw strings made "0", "all" and "GPU-..." three cards that knew nothing of each other."""
    model = Model()
    key = model.register("a", "GPU-0")
    for name in ("0", "all", "GPU-0,GPU-1"):  # the daemon resolves these; the core has one key a card
        with pytest.raises(ValueError, match="no such GPU"):
            model.core.handle(events.ClientRegistered(99, "b", name), model.now_ns)
    assert set(model.core.gpus) == {"GPU-0", "GPU-1"}
    assert model.core.clients[key].tenant is model.gpu("GPU-0").tenants["a"]


def test_memory_of_strangers_and_contexts_is_not_given_away() -> None:
    """Total memory ignored processes outside the system and each context's own cost."""
    model = Model(Settings(memory_reserve_percent=10))
    first, second = model.register("a"), model.register("b")
    model.use(first, 6 * GIB)
    model.use(second, 6 * GIB)
    model.request(first)
    assert grants(model.request(second)) == [second], "12 of 14.4 GiB: they run together"
    stranger = 4 * GIB
    model.step(events.GpuSampled("GPU-0", 12 * GIB + stranger))
    snapshot = model.core.snapshot(model.now_ns).gpus[0]
    assert snapshot.stranger_bytes == stranger
    assert snapshot.safe_limit_bytes == 16 * GIB * 90 // 100 - stranger
    assert snapshot.overloaded
    assert sum(model.clients[key].dropping for key in (first, second)) == 2
    model.step(events.GpuSampled("GPU-0", 10 * GIB, paged_out_bytes=6 * GIB))
    snapshot = model.core.snapshot(model.now_ns).gpus[0]
    assert snapshot.stranger_bytes == 4 * GIB, "of the 12 GiB of tenants 6 are on the GPU"


def test_overload_ends_when_memory_falls() -> None:
    """The flag was never cleared: an empty GPU made the second of two small clients wait."""
    model = Model()
    first, second = model.register("a"), model.register("b")
    model.use(first, GIB)
    model.use(second, GIB)
    model.request(first)
    model.request(second)
    model.use(second, 15 * GIB)
    assert model.core.snapshot(model.now_ns).gpus[0].overloaded
    for key in (first, second):
        model.release(key, MS)
    model.use(second, GIB)
    model.pass_time(2 * SECOND)
    assert not model.core.snapshot(model.now_ns).gpus[0].overloaded
    assert grants(model.request(first)) == [first]
    assert grants(model.request(second)) == [second]


def test_overload_is_seen_when_nobody_grew() -> None:
    """Two that never fitted together are the ordinary case, and it showed 0 all along."""
    model = Model()
    first, second = model.register("a"), model.register("b")
    for key in (first, second):
        model.use(key, 10 * GIB)
    model.request(first)
    assert not model.core.snapshot(model.now_ns).gpus[0].overloaded, "one alone is no overload"
    assert effects.WaitForMemory(second) in model.request(second)
    assert model.core.snapshot(model.now_ns).gpus[0].overloaded
    model.pass_time(61 * SECOND)
    model.release(first, MS)
    assert model.open_gates() == [second]
    model.request(first)
    assert model.core.snapshot(model.now_ns).gpus[0].overloaded, "slice after slice"
    model.use(first, GIB)
    assert not model.core.snapshot(model.now_ns).gpus[0].overloaded


def test_waiting_in_serial_mode_is_no_overload_if_both_fit() -> None:
    model = Model(Settings(scheduling_mode="serial"))
    first, second = model.register("a"), model.register("b")
    for key in (first, second):
        model.use(key, GIB)
        model.request(key)
    snapshot = model.core.snapshot(model.now_ns).gpus[0]
    assert len(model.gpu().resident_set.outside) == 1
    assert not snapshot.overloaded
