"""Where the servers of these tests live."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def place() -> Iterator[Path]:
    """A short path: sockets have names of a hundred bytes."""
    with tempfile.TemporaryDirectory(prefix="nvshare-test-") as name:
        yield Path(name)
