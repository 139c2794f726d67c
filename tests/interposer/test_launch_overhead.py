"""What a launch costs, in instructions.

On a slow machine the library's thread also has work to do while a program launches. That only ever adds, so
the least of a few runs is the cost.
"""

from __future__ import annotations

import pytest

from benchmarks.launch_overhead.measure import PerLaunch, launch_instructions
from tests.interposer.harness import Node

RUNS_MOST = 10


@pytest.mark.parametrize(
    ("limited", "two_streams", "most"),
    [(False, False, 30), (True, False, 200), (False, True, 100), (True, True, 200)],
)
def test_instructions_of_a_launch(node: Node, limited: bool, two_streams: bool, most: int) -> None:
    """Two streams: used in turn, with addresses that have the same place in the thread's table."""
    found: list[PerLaunch] = []
    while not found or (found[-1].total > most and len(found) < RUNS_MOST):
        found.append(launch_instructions(node, limited, 5000, two_streams))
    assert 10 < min(one.total for one in found) <= most, found
