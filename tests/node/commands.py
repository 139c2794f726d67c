"""Commands of ours against a daemon of a test."""

from __future__ import annotations

import os
import subprocess

from nvshare.wire.messages import MessageType
from tests import fork_server
from tests.node.harness import PATIENCE_SEC, DaemonProcess

T = MessageType


def nvshare(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: text for name, text in os.environ.items() if not name.startswith("NVSHARE_")}
    return fork_server.run("nvshare", arguments, inherited | environment, PATIENCE_SEC)


def ctl(daemon: DaemonProcess, *arguments: str) -> subprocess.CompletedProcess[str]:
    return nvshare("ctl", "--private-dir", str(daemon.private_dir), *arguments)
