"""A liar is named. What lies gain is measured by `make verify-lies`."""

from __future__ import annotations

from pathlib import Path

import pytest

from nvshare.core.disputes import TRUSTED_DISPUTES
from tests.hostile.lies import LIES, NEIGHBOUR_PERCENT, Lie, busy, is_good, measure, stage
from tests.interposer.harness import Node
from tests.noise import measuring


def disputes(node: Node, pod: str) -> float:
    return node.scrape().value("nvshare_pod_disputed_bills_total", pod=pod)


def test_a_bill_that_nvml_contradicts_is_disputed(tmp_path: Path) -> None:
    with measuring(), stage(tmp_path, Lie("busy 0"), NEIGHBOUR_PERCENT) as (node, _liar, neighbour):
        node.wait_for(lambda: disputes(node, "liar") > TRUSTED_DISPUTES)
        _, _, kept = busy(node, neighbour.pid)
        assert kept > 0
        assert disputes(node, "neighbour") <= 2, "where processors are scarce, samples and reports are late"


@pytest.mark.verify
@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.title)
def test_lies_do_not_pay(lie: Lie) -> None:
    assert is_good(lie, measure(lie, NEIGHBOUR_PERCENT, 30), measure(lie, 100, 30))
