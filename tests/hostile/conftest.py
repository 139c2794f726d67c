"""A running daemon to attack."""

from __future__ import annotations

from tests.node.conftest import daemon, open_path

__all__ = ["daemon", "open_path"]
