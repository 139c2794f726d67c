"""A daemon whose disk takes no checkpoint."""

from __future__ import annotations

import errno
import os
import runpy
from pathlib import Path

from nvshare.node import checkpoint


def refuse(_directory: Path, _content: bytes) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


checkpoint.write = refuse  # type: ignore[assignment]
runpy.run_module("tests.node.run_daemon")
