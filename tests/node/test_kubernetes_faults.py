"""A sample of the table of faults and points; `make verify-kubernetes` runs the whole."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from nvshare.sim.kube_api import Fault, Point
from tests.node.kubernetes import IS_ROOT
from tests.node.kubernetes_faults import Case, FaultyCluster, faulty_cluster

pytestmark = pytest.mark.skipif(not IS_ROOT, reason="only root can make cgroups of pods")
SAMPLE = [
    ("list", Point.ACCEPT, Fault.CUT),
    ("watch", Point.HANDSHAKE, Fault.WRONG_HOST),
    ("list", Point.BEFORE_HEADERS, Fault.INTERNAL_ERROR),
    ("list", Point.BETWEEN_PAGES, Fault.GARBAGE),
    ("list", Point.MID_OBJECT, Fault.TRUNCATED_JSON),
    ("watch", Point.BEFORE_HEADERS, Fault.GONE),
    ("watch", Point.BETWEEN_EVENTS, Fault.HALF_CLOSE),
    ("watch", Point.BOOKMARK, Fault.WRONG_TYPE),
]


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyCluster]:
    with faulty_cluster(tmp_path_factory.mktemp("faults")) as found:
        yield found
        found.assert_undisturbed()


@pytest.mark.parametrize("case", SAMPLE, ids=" ".join)
def test_limits_are_kept_and_right_again(faulty: FaultyCluster, case: Case) -> None:
    assert faulty.run(case).struck


def test_a_slow_api_server_holds_nobody_up(faulty: FaultyCluster) -> None:
    """Every answer takes 1.5 s; in that time clients register, and have their turns, as ever."""
    api = faulty.kube.api
    api.fault(Point.BEFORE_HEADERS, Fault.DELAY, seconds=1.5)
    api.fault(Point.BETWEEN_EVENTS, Fault.CUT, operation="watch", resource="pods", times=1)
    api.patch("pods", "filler-0", {"metadata": {"labels": {"touched": "slowly"}}})
    begun = time.monotonic()
    for _ in range(100):
        faulty.client.cycle()
    answered = time.monotonic() - begun
    api.clear_faults()
    assert answered < 1.5, "all of them before the server's first answer"
