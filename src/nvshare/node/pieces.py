"""Long work on the loop, in pieces: between two of them everybody else has a go.

A piece ends with the first step that ends after its time. Pieces are counted as callbacks are, with what is
made of them at once: they are what holds the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Final, TypeVar

from nvshare.node.hub import Hub

PIECE_NS: Final = 200_000
Step = TypeVar("Step")


async def in_pieces(work: Iterator[Step], hub: Hub) -> AsyncIterator[list[Step]]:
    """What the steps of a work have come to, piece by piece."""
    found: list[Step] = []
    began_ns = hub.clock()
    for step in work:
        found.append(step)
        if hub.clock() - began_ns >= PIECE_NS:
            yield found
            found = []
            hub.counters.callbacks.add(hub.clock() - began_ns)
            await asyncio.sleep(0)
            began_ns = hub.clock()
    yield found
    hub.counters.callbacks.add(hub.clock() - began_ns)
