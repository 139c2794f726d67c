"""Nodes with metrics."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.exporters.node import MetricsNode, metrics_node


@pytest.fixture
def place() -> Iterator[Path]:
    """A short path: sockets have names of a hundred bytes."""
    with tempfile.TemporaryDirectory(prefix="nvshare-test-") as name:
        yield Path(name)


@pytest.fixture
def node(place: Path) -> Iterator[MetricsNode]:
    """One T4."""
    with metrics_node(place) as found:
        yield found
