"""A running daemon for a test."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node.harness import DaemonProcess, running


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A directory that other users may enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="nvshare-test-") as name:
        path = Path(name)
        path.chmod(0o711)
        yield path


@pytest.fixture
def daemon(open_path: Path) -> Iterator[DaemonProcess]:
    with running(open_path) as process:
        yield process
