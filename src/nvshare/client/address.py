"""Where the daemon's sockets are."""

from __future__ import annotations

import os
import random
from typing import Final

SOCKET: Final = "scheduler.sock"
JITTER_SEC: Final = 0.5
ROOM_SEC: Final = 1.0
ROOM_DOUBLINGS: Final = 3


def socket_path(sock_dir: str | None) -> str:
    """As told, else by NVSHARE_SOCK_DIR, else a user's own daemon if there is one, else the machine's."""
    directory = sock_dir or os.environ.get("NVSHARE_SOCK_DIR", "")
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if not directory and os.geteuid() != 0 and os.path.exists(f"{runtime}/nvshare/{SOCKET}"):
        directory = f"{runtime}/nvshare"
    return os.path.join(directory or "/var/run/nvshare", SOCKET)


def oversubscribes() -> bool:
    """Whether this process may use more memory than a GPU has; as the library reads it."""
    return os.environ.get("NVSHARE_ENABLE_SINGLE_OVERSUB", "") in ("1", "true")


def reconnect_delay_sec(refused: int = 0) -> float:
    """Up to half a second, so that a restarted daemon is not met by everybody at once.

    Where there was no room, so often in a row: longer and longer, up to 16 s.
    """
    if refused:
        return ROOM_SEC * (1 << min(refused - 1, ROOM_DOUBLINGS)) * random.uniform(1, 2)
    return random.uniform(0, JITTER_SEC)
