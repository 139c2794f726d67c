"""Long work on the loop, in pieces: between two of them everybody else has a go.

A piece ends with the first step that ends after its time. Pieces are counted as callbacks are, with what is
made of them at once: they are what holds the loop.
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
    """What the steps of a work have come to, by pieces; ``note_ns`` hears how long each held the loop."""
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
    await asyncio.sleep(0)  # what comes next is no part of this piece
