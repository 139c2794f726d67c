"""How often work that concerns every client is repeated: at once among few, at intervals among many.

Rules:
1. A client's message costs the same however many clients there are. Some of its consequences concern all of
   them: sending a hint that somebody waits, choosing whose memory is evicted. Among few clients that is done
   at once. Among many it is not repeated before an interval in proportion to their number has passed.
2. So no client can make the daemon go through all others again and again: whatever clients send, no more than
   one is visited per EACH_NS on average.
3. Work that was put off is done when the interval is over, by a deadline of its own.
"""

from __future__ import annotations

from typing import Final

MANY: Final = 64
EACH_NS: Final = 100_000


def interval_ns(count: int) -> int:
    """How long work that concerned this many clients is not repeated."""
    return count * EACH_NS if count > MANY else 0
