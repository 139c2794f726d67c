"""Nodes for tests: one that is up for a whole module, or bare directories."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.local.harness import Place, node_up, place


@pytest.fixture
def bare() -> Iterator[Place]:
    """Directories in which nothing runs yet."""
    with place() as found:
        yield found


@pytest.fixture(scope="module")
def node() -> Iterator[Place]:
    """A node with two simulated T4."""
    with node_up("--sim", "t4:2") as found:
        yield found
