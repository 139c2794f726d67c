"""The simulated cards of a node: their UUIDs, and who can reach them.

1. A node's cards have the same UUIDs each time it is up, like real ones, so that programs that run on over
   ``nvshare down`` and ``up`` find them again. They are derived from the boot and the node's directory.
2. Root's cards are for the users that root's node serves. They are files that these users may write, as the
   driver in their programs does. So they are in a directory of their own, apart from private files.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import Final

from nvshare.local.state import Simulated
from nvshare.node.checkpoint import boot_id
from nvshare.node.users import Users
from nvshare.runtime import directories
from nvshare.sim.gpu import SimulatedNode, library_directory

_SEED: Final = "seed"
_SEED_BYTES: Final = 16
_OPEN_TO_ALL: Final = 0o1777
_OPEN_TO_GROUP: Final = 0o1770
_ROOT: Final = 0


def make_cards(directory: Path, cards: str, node: Path, users: Users | None) -> Simulated:
    """Make them anew. ``users``: who may use them beside us. Raises SimulatorError and OSError."""
    shutil.rmtree(directory, ignore_errors=True)
    os.close(directories.make(directory, directories.PRIVATE_DIR_MODE))
    seed = hashlib.sha256(f"{boot_id()} {os.geteuid()} {node}".encode()).digest()
    (directory / _SEED).write_bytes(seed[:_SEED_BYTES])
    SimulatedNode(directory, cards).close()
    if users is not None:
        _let_in(directory, users)
    return Simulated(cards, str(directory), str(library_directory()))


def _let_in(directory: Path, users: Users) -> None:
    gid = _ROOT if users.everybody else users.gid
    for path in directory.iterdir():
        os.chown(path, _ROOT, gid)
        path.chmod(0o666 if users.everybody else 0o660)
    os.chown(directory, _ROOT, gid)
    directory.chmod(_OPEN_TO_ALL if users.everybody else _OPEN_TO_GROUP)
