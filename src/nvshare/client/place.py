"""Where the daemon's sockets are."""

from __future__ import annotations

import os
import random
from typing import Final

SOCKET: Final = "scheduler.sock"
JITTER_SEC: Final = 0.5


def socket_path(sock_dir: str | None) -> str:
    """As told, else by NVSHARE_SOCK_DIR, else a user's own daemon if there is one, else the machine's."""
    directory = sock_dir or os.environ.get("NVSHARE_SOCK_DIR", "")
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if not directory and os.geteuid() != 0 and os.path.exists(f"{runtime}/nvshare/{SOCKET}"):
        directory = f"{runtime}/nvshare"
    return os.path.join(directory or "/var/run/nvshare", SOCKET)


def reconnect_delay_sec() -> float:
    """Up to half a second, so that a restarted daemon is not met by everybody at once."""
    return random.uniform(0, JITTER_SEC)
