"""The machine's own node, which is root's, as a plain user sees it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, NamedTuple

from nvshare.client.control import ControlClient, NoDaemon, NotPermitted, Rejected
from nvshare.runtime.paths import MACHINE_SOCK_DIR, SCHEDULER_SOCKET

_ANSWER_SEC: Final = 5


class MachineNode(NamedTuple):
    permitted: bool
    gpus: frozenset[str] = frozenset()  # UUIDs; not known of a node that denies access

    def may_serve(self, gpus: frozenset[str]) -> bool:
        return not self.permitted or bool(self.gpus & gpus)


def machine_node() -> MachineNode | None:
    """None: there is none, or we are root ourselves."""
    if os.geteuid() == 0:
        return None
    try:
        answer = ControlClient(Path(MACHINE_SOCK_DIR), SCHEDULER_SOCKET).ask(
            "GET", "/v1/gpus", timeout_sec=_ANSWER_SEC
        )
    except NotPermitted:
        return MachineNode(False)
    except (NoDaemon, Rejected):
        return None
    return MachineNode(True, frozenset(gpu["gpu"] for gpu in answer["gpus"]))
