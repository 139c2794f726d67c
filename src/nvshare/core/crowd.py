"""What concerns everybody is done at once among few, and every so often in a crowd.

Rules:
1. What a client says costs the same however many others there are. Some of it concerns all of them: who is to
   know that somebody waits, whose memory goes. Among a few that is told or decided at once. Among more, it is
   not done again before a while has passed that is in proportion to their number.
2. So nobody can have a crowd told or looked at again and again: in any second no more than 1 / EACH_NS of
   them are, whoever says what how often.
3. What had to wait is done when the while is over, by a deadline of its own.
"""

from __future__ import annotations

from typing import Final

CROWD: Final = 64
EACH_NS: Final = 100_000


def pause_ns(many: int) -> int:
    """For how long something that concerned so many is not done again."""
    return many * EACH_NS if many > CROWD else 0
