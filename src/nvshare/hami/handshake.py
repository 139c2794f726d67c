"""The annotation ``hami.io/node-handshake``: whether HAMi's scheduler takes a node for alive.

::

    handshake  = "Requesting_" time | "Reported " rest | "Deleted_" time | anything
    time       = YYYY-MM-DD HH:MM:SS, earlier YYYY.MM.DD HH:MM:SS, in the local zone of whoever wrote it

What is none of these counts as alive, as it does for HAMi. The zone is not in the text, so the time is not
used to judge an age: ``is_gone`` asks for what the node can allocate, which needs no clock.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

HANDSHAKE: Final = "hami.io/node-handshake"
REQUESTING: Final = "requesting"
REPORTED: Final = "reported"
DELETED: Final = "deleted"
UNKNOWN: Final = "unknown"
_STAMPED: Final = re.compile(
    r"(?P<word>Requesting|Deleted)_(?P<time>\d{4}([-.])\d\d\3\d\d \d\d:\d\d:\d\d)", re.ASCII
)
_REPORTED: Final = "Reported "


class Handshake(NamedTuple):
    state: str
    time: str = ""  # as it was written


def parse_handshake(text: str) -> Handshake:
    if text.startswith(_REPORTED):
        return Handshake(REPORTED, text.removeprefix(_REPORTED))
    match = _STAMPED.fullmatch(text)
    return Handshake(match["word"].lower(), match["time"]) if match else Handshake(UNKNOWN, text)


def format_handshake(handshake: Handshake) -> str:
    if handshake.state == REPORTED:
        return _REPORTED + handshake.time
    if handshake.state == UNKNOWN:
        return handshake.time
    return f"{handshake.state.capitalize()}_{handshake.time}"


def is_gone(handshake: Handshake | None, allocatable: int | None) -> bool:
    """Whether the node's devices are out of use. ``allocatable``: of the GPU resource; None: not listed."""
    if handshake is None or (allocatable or 0) > 0:
        return False
    return handshake.state == DELETED or (handshake.state == REQUESTING and allocatable == 0)
