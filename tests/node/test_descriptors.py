"""How many descriptors all that the bounds permit may take."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nvshare.node.bounds import Bounds
from nvshare.node.descriptors import OWN, RUNS_LEAST, needed, within


@pytest.mark.parametrize(
    ("name", "each"),
    [
        *(("control_connections", 1), ("metrics_connections", 1), ("user_connections", 1)),
        *(("processes_ending", 1), ("unregistered", 3), ("clients", 3)),
    ],
)
def test_each_of_them_takes_some(name: str, each: int) -> None:
    bounds = Bounds()
    more = replace(bounds, **{name: getattr(bounds, name) + 10})
    assert needed(more) == needed(bounds) + 10 * each


@pytest.mark.parametrize("limit", [1 << 10, 4 << 10, 16 << 10])
def test_with_few_less_is_permitted(limit: int) -> None:
    bounds = within(Bounds(), limit)
    assert OWN < needed(bounds) <= limit
    assert within(Bounds(), needed(Bounds())).clients == Bounds().clients
    assert within(Bounds(), needed(Bounds()) + 7).runs == min(Bounds().runs, RUNS_LEAST + 7)
