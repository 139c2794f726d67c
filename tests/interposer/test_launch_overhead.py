"""What a launch costs, in instructions, which are the same on a slow machine."""

from __future__ import annotations

import pytest

from benchmarks.launch_overhead.measure import launch_instructions
from tests.interposer.harness import Node


@pytest.mark.parametrize(("limited", "most"), [(False, 30), (True, 200)])
def test_instructions_of_a_launch(node: Node, limited: bool, most: int) -> None:
    found = launch_instructions(node, limited, launches=5000)
    assert 10 < found.total <= most, found
