"""How commands fail: one line that says what to do, and the exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NoReturn

from nvshare.client.control import ControlClient, NoDaemon, NotPermitted, Rejected
from nvshare.plain_text import plain_lines
from nvshare.runtime.paths import MACHINE_SOCK_DIR, SCHEDULER_SOCKET, default_directories
from nvshare.runtime.settings import AbsolutePath

EXIT_NOT_DONE: Final = 1
EXIT_BAD_INPUT: Final = 2
EXIT_NO_DAEMON: Final = 3
EXIT_NOT_PERMITTED: Final = 5
START_ONE: Final = (
    "; start one with `nvshare up`, or say where it is with --private-dir or NVSHARE_PRIVATE_DIR"
)
"""Advice for when no daemon runs."""


def fail(message: object, code: int) -> NoReturn:
    print(f"Error: {plain_lines(str(message))}", file=sys.stderr)
    sys.exit(code)


@contextmanager
def daemon_errors(no_daemon: str = "", not_permitted: str = "") -> Iterator[None]:
    """Ends the command when the daemon is not there, denies access, or rejects the request."""
    try:
        yield
    except NoDaemon as error:
        fail(f"{error}{no_daemon}", EXIT_NO_DAEMON)
    except NotPermitted as error:
        fail(f"{error}{not_permitted}", EXIT_NOT_PERMITTED)
    except Rejected as error:
        fail(error, EXIT_BAD_INPUT)


def private_directory(given: str | None = None) -> Path:
    """The directory of the control socket: as given, by NVSHARE_PRIVATE_DIR, or the default."""
    directory = given or os.environ.get("NVSHARE_PRIVATE_DIR") or default_directories()[1]
    if AbsolutePath().read(directory) is None:
        accepted = AbsolutePath().describe()
        fail(f"NVSHARE_PRIVATE_DIR={directory!r} is not accepted; accepted: {accepted}", EXIT_BAD_INPUT)
    return Path(directory)


def control_client(private_dir: str | None) -> ControlClient:
    """The daemon of our own node, or for a plain user without one, the machine's."""
    sock_dir = os.environ.get("NVSHARE_SOCK_DIR") or MACHINE_SOCK_DIR
    users_socket = None if os.geteuid() == 0 else Path(sock_dir) / SCHEDULER_SOCKET
    return ControlClient(private_directory(private_dir), users_socket=users_socket)
