"""A daemon whose disk takes a checkpoint and never says that it has it."""

from __future__ import annotations

import runpy
import threading
from pathlib import Path

from nvshare.node import checkpoint


def hang(_directory: Path, _content: bytes) -> None:
    threading.Event().wait()


checkpoint.write = hang  # type: ignore[assignment]
runpy.run_module("tests.node.run_daemon")
