"""Tenants whose memory does not fit together take the GPU in slices, and quotas hold over slices."""

from __future__ import annotations

import pytest

from nvshare.core import effects, events

from .clients import GIB, MS, SECOND, Clients
from .slices import MIXES, SAMPLE, WITHIN_POINTS, Outcome, describe, measure


def check(outcome: Outcome) -> None:
    had = ", ".join(describe(row) for row in outcome.rows)
    assert outcome.within(), f"had (due): {had}; {outcome.sequence()}"


@pytest.mark.parametrize("name", SAMPLE)
def test_each_has_its_due_over_slices(name: str) -> None:
    """What a set used in a slice was forgiven, so it was owed again at once: 60 % got 36 %."""
    check(measure(MIXES[name]))


@pytest.mark.verify
@pytest.mark.parametrize("name", MIXES)
def test_each_has_its_due_over_slices_in_every_mix(name: str) -> None:
    check(measure(MIXES[name]))


def test_a_tenant_that_may_borrow_borrows_nothing_that_others_want() -> None:
    """While anybody waited outside nothing ended its turn: 20 % beside one that fitted got 95 %."""
    clients = Clients()
    clients.limit("borrows", 20, share=True)
    borrows = clients.register("borrows", used_bytes=GIB)
    beside = clients.register("beside", used_bytes=GIB)
    outside = clients.register("outside", used_bytes=14 * GIB, always_busy=False)
    for key in (borrows, beside, outside):
        clients.ask(key)
    had = clients.percents(9 * SECOND)
    assert clients.holders() <= {"borrows", "beside"}, "the slice is not over yet"
    due = 100 * 20 / (20 + 40)  # of the slice, where 40 is half of what the quota leaves
    assert abs(had["borrows"] - due) <= WITHIN_POINTS, f"{had}"


def test_a_short_pause_does_not_swap_the_memory() -> None:
    """A sample of the memory in use, between a release and the next request, let the one outside in."""
    clients = Clients()
    inside = clients.register("inside", used_bytes=12 * GIB, always_busy=False)
    outside = clients.register("outside", used_bytes=12 * GIB)
    assert effects.Grant(inside) in clients.ask(inside)
    assert effects.WaitForMemory(outside) in clients.ask(outside)
    clients.run(SECOND)
    clients.release(inside)
    clients.run(1_000)
    sampled = clients.feed(events.GpuSampled("GPU-0", 12 * GIB))
    assert effects.MemoryAvailable(outside) not in sampled
    clients.run(MS)
    assert effects.Grant(inside) in clients.ask(inside), "it went on where it was"
