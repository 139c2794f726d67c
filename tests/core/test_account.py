"""Lag, clocks and windows, to the nanosecond."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nvshare.core.account import WHOLE, Account, VirtualClock
from nvshare.core.books.usage_window import UsageWindow

SECOND = 1_000_000_000


def test_the_clock_slows_down_exactly() -> None:
    clock = VirtualClock(0)
    clock.set_rate(0, 2, 3)
    for now_ns in range(1, 3001):
        clock.advance(now_ns)
    assert clock.virtual_ns == 2000, "remainders are carried, none is lost"


def test_time_does_not_go_back() -> None:
    clock = VirtualClock(1000)
    clock.advance(5000)
    assert clock.advance(4000) == 4000


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=50), st.integers(1000, WHOLE))
def test_bills_are_conserved_to_the_nanosecond(bills: list[int], weight: int) -> None:
    account, clock = Account(weight, 0), VirtualClock(0)
    now_ns = 0
    for bill in bills:
        account.open(now_ns)
        now_ns += bill
        account.close(now_ns)
        account.settle_hold(now_ns, bill, bill, bill)
    clock.advance(now_ns)
    assert account.billed_ns == account.occupied_ns == sum(bills)
    due_ns = now_ns * weight // WHOLE
    assert abs(account.lag_ns(clock, now_ns) - (due_ns - sum(bills))) <= 1


def test_a_settled_hold_is_billed_and_begins_again() -> None:
    account = Account(WHOLE, 0)
    account.open(0)
    account.settle_hold(100, 100, 40, 40)
    assert (account.billed_ns, account.occupied_ns, account.virtual_ns) == (40, 100, 40)
    assert account.held_since_settled(130) == 30, "it still holds"


@given(st.integers(-(10**12), 10**12), st.integers(1000, WHOLE), st.integers(1000, WHOLE))
def test_a_new_weight_keeps_the_lag(lag_ns: int, old: int, new: int) -> None:
    clock = VirtualClock(0)
    clock.advance(10**13)
    account = Account(old, clock.virtual_ns - lag_ns * WHOLE // old)
    before = account.lag_ns(clock, 0)
    account.reweigh(new, clock)
    assert abs(account.lag_ns(clock, 0) - before) <= 2


def test_the_window_holds_what_was_billed_within_it() -> None:
    window = UsageWindow(2 * SECOND)
    window.bill(0, SECOND, SECOND)
    assert window.used_ns(SECOND) == SECOND
    window.bill(SECOND, 2 * SECOND, SECOND // 2)
    assert window.used_ns(2 * SECOND) == pytest.approx(1.5 * SECOND, rel=0.05)
    assert window.used_ns(3 * SECOND) == pytest.approx(0.5 * SECOND, rel=0.1)
    assert window.used_ns(9 * SECOND) == 0


def test_a_bill_longer_than_the_window_counts_only_its_end() -> None:
    window = UsageWindow(2 * SECOND)
    window.bill(0, 100 * SECOND, 100 * SECOND)
    assert window.used_ns(100 * SECOND) == pytest.approx(2 * SECOND, rel=0.05)


def test_remainders_of_bills_are_carried() -> None:
    account = Account(30_000, 0)
    for now_ns in (1, 2, 3):
        account.settle_hold(now_ns, 1, 1, 1)
    assert account.virtual_ns == 10, "three nanoseconds at 30 %"
    charged = Account(30_000, 0)
    for _ in range(3):
        charged.charge(1)
    assert charged.virtual_ns == 10
