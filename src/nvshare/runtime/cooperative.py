"""Long work on the event loop, cut into pieces between which other callbacks run.

A piece ends with the first step that passes PIECE_NS. What the consumer does with a piece counts as part of
it, because it holds the loop as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final, TypeVar

PIECE_NS: Final = 200_000
Step = TypeVar("Step")


async def in_pieces(
    work: Iterator[Step], clock_ns: Callable[[], int], note_ns: Callable[[int], None]
) -> AsyncIterator[list[Step]]:
    """The results of the steps, piece by piece; ``note_ns`` gets the time that each piece held the loop."""
    found: list[Step] = []
    began_ns = clock_ns()
    for step in work:
        found.append(step)
        if clock_ns() - began_ns >= PIECE_NS:
            yield found
            found = []
            note_ns(clock_ns() - began_ns)
            await asyncio.sleep(0)
            began_ns = clock_ns()
    yield found
    note_ns(clock_ns() - began_ns)
    await asyncio.sleep(0)  # whatever follows is not part of this piece
