"""A few minutes among liars, with the books audited at every event; the rest is `make verify-liars`."""

from __future__ import annotations

import pytest

from nvshare.core.audit import EVERY_EVENT
from nvshare.sim.scenario import SECOND_NS
from tests.sim import lying
from tests.sim.liars import run

pytestmark = pytest.mark.slow

LIE_NS = 15 * SECOND_NS
RUN_NS = 150 * SECOND_NS


@pytest.mark.parametrize("seed", [1, 2])
def test_the_honest_keep_theirs_among_liars(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kind of lie, one after the other."""
    monkeypatch.setattr(lying, "LIE_NS", LIE_NS)
    outcome = run(1, RUN_NS, seed, EVERY_EVENT, RUN_NS)
    missed = [
        (record.tenancy.spec.name, record.worst_points, outcome.wait_ns(record))
        for record in outcome.records
        if not outcome.good(record)
    ]
    assert not missed


@pytest.mark.parametrize("lie", lying.KINDS)
def test_no_kind_of_lie_pays(lie: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lying, "KINDS", (lie,))
    outcome = run(1, RUN_NS // 2, 3, EVERY_EVENT, RUN_NS // 2)
    missed = [
        (record.tenancy.spec.name, record.worst_points, outcome.wait_ns(record))
        for record in outcome.records
        if not outcome.good(record)
    ]
    assert not missed
