"""How long a client waits before it connects again."""

from __future__ import annotations

import random
from typing import Final

JITTER_SEC: Final = 0.5
ROOM_SEC: Final = 1.0
ROOM_DOUBLINGS: Final = 3


def reconnect_delay_sec(refused: int = 0) -> float:
    """Up to half a second, so that not all clients meet a restarted daemon at once.

    After that many refusals in a row for want of room: longer and longer, up to 16 s.
    """
    if refused:
        return ROOM_SEC * (1 << min(refused - 1, ROOM_DOUBLINGS)) * random.uniform(1, 2)
    return random.uniform(0, JITTER_SEC)
