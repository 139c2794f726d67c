"""Brings what threads find to the event loop: in order, in pieces, and in bounded number.

1. A thread that finds more than the loop takes has to wait, in C, until there is room.
2. The loop is woken once for whatever comes within GATHER_SEC, not for each item.
3. Items are taken in pieces (``cooperative``), so however many come, no callback takes long.
4. An item that cannot be taken is reported, and the next one is taken.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeVar

from nvshare.runtime.cooperative import in_pieces

GATHER_SEC: Final = 0.005
ITEMS_MAX: Final = 1024
ItemT = TypeVar("ItemT")


class Mailbox(Generic[ItemT]):
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        take: Callable[[ItemT], Iterator[object]],
        clock_ns: Callable[[], int],
        note_ns: Callable[[int], None],
        failed: Callable[[Exception], None],
        most: int = ITEMS_MAX,
    ) -> None:
        """``take`` deals with an item in steps; ``note_ns`` gets how long each piece held the loop."""
        self._loop = loop
        self._take = take
        self._clock_ns = clock_ns
        self._note_ns = note_ns
        self._failed = failed
        self._items: deque[ItemT] = deque()
        self._room = threading.Semaphore(most)
        self._lock = threading.Lock()
        self._woken = False  # or about to be
        self._closed = False
        self._taking: asyncio.Task[None] | None = None

    def put(self, item: ItemT) -> None:
        """Called by threads."""
        self._room.acquire()
        with self._lock:
            if self._closed:
                self._room.release()
                return
            self._items.append(item)
            if self._woken:
                return
            self._woken = True
            self._loop.call_soon_threadsafe(self._soon)

    def close(self) -> None:
        """Nothing is taken any more, and no thread waits."""
        with self._lock:
            self._closed = True
            self._items.clear()
        if self._taking is not None:
            self._taking.cancel()
        self._room.release(ITEMS_MAX)

    # ---- on the loop -------------------------------------------------------------------------

    def _soon(self) -> None:
        self._loop.call_later(GATHER_SEC, self._begin)

    def _begin(self) -> None:
        if not self._closed:
            self._taking = self._loop.create_task(self._take_all())

    async def _take_all(self) -> None:
        async for _ in in_pieces(self._steps(), self._clock_ns, self._note_ns):
            pass

    def _steps(self) -> Iterator[None]:
        while True:
            with self._lock:
                if not self._items:
                    self._woken = False
                    return
                item = self._items.popleft()
            self._room.release()
            try:
                for _ in self._take(item):
                    yield
            except Exception as error:  # rule 4
                self._failed(error)
            yield
