"""The table of who asked for how much and got it."""

from __future__ import annotations

from typing import Any

import pytest

from nvshare.local.summary import TOTALS_MAX, WINDOW_LOOKS, Look, Summary, Totals, as_lines

SECOND = 1_000_000_000


def tenant(
    pod: str,
    used_ns: int,
    percent: int = 30,
    reason: str = "quota",
    state: str = "waiting",
    here: bool = True,
) -> dict[str, Any]:
    return {
        "pod": pod,
        "core_percent": percent,
        "effective_percent": percent * 0.9 if percent < 100 else 100.0,
        "clients": [{}] if here else [],
        "share": False,
        "billed_ns": used_ns if percent < 100 else 0,
        "gpu_time_ns": used_ns,
        "used_bytes": 1 << 30,
        "memory_limit_bytes": 4 << 30,
        "explanation": {"state": state, "reason": reason},
    }


def look(second: int, *tenants: dict[str, Any]) -> Look:
    return Look.of(
        {"now_ns": second * SECOND, "gpus": [{"gpu": "GPU-x", "index": 0, "tenants": list(tenants)}]}
    )


def test_what_was_got_is_of_the_window() -> None:
    summary = Summary()
    for second in range(20):
        used_ns = second * SECOND // 2 if second < 10 else 5 * SECOND
        summary.add(look(second, tenant("a/b", used_ns)))
        [row] = summary.rows()
        if second == 9:
            assert row.got_percent == pytest.approx(50)
            assert row.state == "running"
    assert row.got_percent == 0, f"of the last {WINDOW_LOOKS} looks"
    assert row.state == "had its share"
    assert as_lines([row]) == [
        "gpu 0  a/b: asked 30 %, due 27.0 %, got 0.0 %, memory 1 GiB of 4 GiB, state had its share"
    ]


def test_without_a_quota_it_is_what_was_held() -> None:
    summary = Summary()
    for second in range(3):
        summary.add(look(second, tenant("a/b", second * SECOND, percent=100)))
    [row] = summary.rows()
    assert row.got_percent == pytest.approx(100)
    assert row.cells()[2:4] == ("no quota", "-")


def test_one_that_has_left_and_still_has_an_account_is_not_shown() -> None:
    """Its limits went with its processes: it would be shown as running without a quota."""
    summary, totals = Summary(), Totals()
    for second, here in ((0, True), (1, True), (2, False)):
        percent = 30 if here else 100
        moment = look(second, tenant("a/b", second * SECOND, percent=percent, here=here))
        summary.add(moment)
        totals.add(moment, summary.rows())
    assert summary.rows() == []
    [row] = totals.rows()
    assert (row.state, row.asked_percent) == ("left", 30)


def test_a_newcomer_has_no_figure_yet_and_a_new_account_starts_afresh() -> None:
    summary = Summary()
    summary.add(look(1, tenant("a/b", 9 * SECOND)))
    assert summary.rows()[0].got_percent is None
    summary.add(look(2, tenant("a/b", SECOND)))
    assert summary.rows()[0].got_percent is None, "the daemon began a new account"
    summary.add(look(3, tenant("a/b", 2 * SECOND)))
    assert summary.rows()[0].got_percent == pytest.approx(100)


def test_totals_count_from_the_first_asking_while_it_is_there() -> None:
    summary, totals = Summary(), Totals()

    def add(moment: Look) -> None:
        summary.add(moment)
        totals.add(moment, summary.rows())

    add(look(0, tenant("a/b", 0, reason="none", state="idle")))
    add(look(10, tenant("a/b", 0, reason="turn")))
    add(look(20, tenant("a/b", 3 * SECOND)))
    add(look(30))
    [row] = totals.rows()
    assert row.got_percent == pytest.approx(30)
    assert row.state == "left"


def test_what_a_tenant_gets_while_scheduling_is_off_is_not_known() -> None:
    summary, totals = Summary(), Totals()
    for at, used_ns, state in ((0, 0, "running"), (10, 5, "running"), (20, 5, "ungated"), (30, 5, "ungated")):
        reason = "off" if state == "ungated" else "running"
        moment = look(at, tenant("a/b", used_ns * SECOND, reason=reason, state=state))
        summary.add(moment)
        totals.add(moment, summary.rows())
    [row] = summary.rows()
    assert (row.got_percent, row.state) == (None, "ungated")
    [row] = totals.rows()
    assert row.got_percent == pytest.approx(50), "of the time in which it was known"


def test_totals_are_bounded() -> None:
    totals = Totals()
    for number in range(2 * TOTALS_MAX):
        summary = Summary()
        moment = look(number, tenant(f"a/{number}", 0))
        summary.add(moment)
        totals.add(moment, summary.rows())
    assert len(totals.rows()) == TOTALS_MAX
