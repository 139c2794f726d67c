"""Commands of ours against a daemon of a test."""

from __future__ import annotations

import os
import subprocess
import sys

from nvshare.wire.messages import MessageType
from tests.node.harness import PATIENCE_SEC, DaemonProcess

T = MessageType


def nvshare(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "nvshare", *arguments]
    inherited = {name: text for name, text in os.environ.items() if not name.startswith("NVSHARE_")}
    return subprocess.run(
        command, env={**inherited, **environment}, capture_output=True, text=True, timeout=PATIENCE_SEC
    )


def ctl(daemon: DaemonProcess, *arguments: str) -> subprocess.CompletedProcess[str]:
    return nvshare("ctl", "--private-dir", str(daemon.private_dir), *arguments)
