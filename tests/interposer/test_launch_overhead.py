"""What a launch costs, in instructions, which are the same on a slow machine."""

from __future__ import annotations

import pytest

from benchmarks.launch_overhead.measure import launch_instructions
from tests.interposer.harness import Node


@pytest.mark.parametrize(
    ("limited", "two_streams", "most"),
    [(False, False, 30), (True, False, 200), (False, True, 100), (True, True, 200)],
)
def test_instructions_of_a_launch(node: Node, limited: bool, two_streams: bool, most: int) -> None:
    """Two streams: used in turn, with addresses that have the same place in the thread's table."""
    found = launch_instructions(node, limited, 5000, two_streams)
    assert 10 < found.total <= most, found
