"""Two tenants of 12 GiB on 16 GiB: in slices, left to thrash, one after the other. The card is a model."""

from __future__ import annotations

import math
import sys
from typing import NamedTuple

import pytest

from tests.local.harness import WORKLOADS, Place, node_up, wait_until
from tests.local.shares import rates
from tests.node.harness import PATIENCE_SEC

SIDE = math.isqrt((12 << 30) // 16)
"""Of the four matrices of floats that a workload holds."""
PODS = ("pair/a", "pair/b")
QUEUES_ALL_IT_CAN = ("w1", "--iterations", "1000000")
WAITS_FOR_RESULTS = ("w5", "--duration", "100000")


class Figures(NamedTuple):
    alone: float  # additions a second, of one that has the card
    thrashing: float  # of both together
    in_slices: float
    switches: int


def start(place: Place, pods: tuple[str, ...], workload: tuple[str, ...]) -> list[list[int]]:
    """The workload in each pod; the pids, once all of them hold their memory and one of them works."""
    for pod in pods:
        place.run("--pod", pod, command=(*WORKLOADS, *workload, "--size", str(SIDE)))
    held_bytes = 4 * SIDE * SIDE * 4

    def ready() -> bool:
        rows = place.clients()
        return len(rows) == len(pods) and all(row["used_bytes"] == held_bytes for row in rows)

    wait_until(ready, "all hold their memory")
    pids = [row["pid"] for row in place.clients()]
    wait_until(lambda: any(row.completed_launches for row in place.cards()[0].processes), "one works")
    return [pids]


def stop(place: Place) -> None:
    place.close()
    place.started.clear()
    wait_until(lambda: place.clients() == [], "all are gone")


def measure(workload: tuple[str, ...], slice_sec: int, seconds: float, thrash_sec: float) -> Figures:
    slices = {"NVSHARE_SWITCH_TIME_MODE": "fixed", "NVSHARE_SWITCH_TIME_FIXED": str(slice_sec)}
    with node_up("--sim", "t4:1", **slices) as place:
        [alone], _ = rates(place, start(place, PODS[:1], workload), 3)
        stop(place)
        assert place.nvshare("ctl", "off").returncode == 0
        [thrashing], _ = rates(place, start(place, PODS, workload), thrash_sec)
        stop(place)
        assert place.nvshare("ctl", "on").returncode == 0
        pids = start(place, PODS, workload)
        # Who queued all it could before anybody waited drains that first, which nobody can take back.
        wait_until(lambda: _turns(place) >= 2, "both have had a turn", 2 * PATIENCE_SEC)
        before = place.control.ask("GET", "/v1/gpus")["gpus"][0]["handovers"]
        [in_slices], _ = rates(place, pids, seconds)
        after = place.control.ask("GET", "/v1/gpus")["gpus"][0]["handovers"]
    return Figures(alone, thrashing, in_slices, after - before)


def _turns(place: Place) -> int:
    return sum(row.completed_launches > 0 for row in place.cards()[0].processes)


def test_slices_beat_thrashing() -> None:
    """Short slices, of which paging takes a large part: still better than none."""
    figures = measure(WAITS_FOR_RESULTS, slice_sec=3, seconds=7, thrash_sec=3)
    assert figures.switches >= 1
    assert figures.in_slices > 2 * figures.thrashing, figures


@pytest.mark.verify
@pytest.mark.parametrize("workload", [QUEUES_ALL_IT_CAN, WAITS_FOR_RESULTS], ids=["w1", "w5"])
def test_slices_of_10_s_are_nearly_as_good_as_one_after_the_other(workload: tuple[str, ...]) -> None:
    figures = measure(workload, slice_sec=10, seconds=95, thrash_sec=20)
    print(figures, file=sys.stderr)
    assert figures.switches >= 6, figures
    assert figures.in_slices >= 3 * figures.thrashing, figures
    assert figures.in_slices * 1.25 >= figures.alone, figures
