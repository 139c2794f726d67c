"""Names of the daemon's sockets, and the directories they are in by default.

Root's daemon serves the whole machine. A plain user's daemon has directories of its own below
``$XDG_RUNTIME_DIR``.
"""

from __future__ import annotations

import os
from typing import Final

SCHEDULER_SOCKET: Final = "scheduler.sock"
CONTROL_SOCKET: Final = "control.sock"
MACHINE_SOCK_DIR: Final = "/var/run/nvshare"
MACHINE_PRIVATE_DIR: Final = "/run/nvshare-private"
_USER_SOCK_DIR: Final = "nvshare"
_USER_PRIVATE_DIR: Final = "nvshare-private"


def _user_runtime_dir() -> str:
    """Empty for root, and where there is none."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    return runtime if os.geteuid() != 0 and runtime.startswith("/") else ""


def default_directories() -> tuple[str, str]:
    """The socket directory and the private directory of a daemon started by this user."""
    runtime = _user_runtime_dir()
    if runtime:
        return f"{runtime}/{_USER_SOCK_DIR}", f"{runtime}/{_USER_PRIVATE_DIR}"
    return MACHINE_SOCK_DIR, MACHINE_PRIVATE_DIR


def scheduler_socket(sock_dir: str | None = None) -> str:
    """The socket a client connects to.

    In ``sock_dir``, else in NVSHARE_SOCK_DIR, else the user's own daemon if there is one, else the machine's.
    """
    directory = sock_dir or os.environ.get("NVSHARE_SOCK_DIR", "")
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    own = f"{runtime}/{_USER_SOCK_DIR}"
    if not directory and os.geteuid() != 0 and os.path.exists(f"{own}/{SCHEDULER_SOCKET}"):
        directory = own
    return os.path.join(directory or MACHINE_SOCK_DIR, SCHEDULER_SOCKET)
