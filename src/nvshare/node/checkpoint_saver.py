"""When the checkpoint is written.

1. When something has changed, and a second after the last one was begun at the earliest. Who must know
   that a change is on disk waits for that second like all others; one checkpoint is for all who wait.
2. One that could not be written is tried again though nothing changes, at longer and longer intervals.
3. Gathering it yields to the loop again and again (``core.view.checkpoint``). The file's records and bytes
   are made in the writer's thread.
4. A disk that hangs or is full delays and refuses nobody: who waits, waits a few seconds at most, and is told
   if what he waits for is not on disk.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Final

from nvshare.core.account import NEVER
from nvshare.core.gpu import Gpu
from nvshare.core.view.checkpoint import Gathering
from nvshare.node.checkpoint import Draft, Writer
from nvshare.node.scheduler_node import SchedulerNode
from nvshare.runtime import logs
from nvshare.runtime.cooperative import in_pieces

FLUSH_SEC: Final = 5.0
RETRY_MOST_NS: Final = 30_000_000_000


class CheckpointSaver:
    def __init__(self, node: SchedulerNode, writer: Writer, every_ns: int) -> None:
        self._node = node
        self._dispatcher = node.dispatcher
        self._writer = writer
        self._every_ns = every_ns
        self._begun = 0  # checkpoints; also the number of the last
        self._begun_ns = self._dispatcher.clock() - every_ns
        self._ended = 0  # the number of the last that was written, or could not be
        self._written = 0  # and of the last that was
        self._one_ended = asyncio.Event()
        self._retry_ns = 0  # how long after the last failure; 0: the last one was written
        self._retry_at_ns = NEVER
        self._gathering: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        writer.ended = self._tell_ended

    def current(self) -> bool:
        """All that happened is on disk."""
        return (
            not self._dispatcher.changed
            and self._gathered()
            and self._writer.idle()
            and not self._writer.error
        )

    def save_again(self) -> None:
        """Now if it is due, and from now on whenever it is."""
        if self._timer is not None:
            self._timer.cancel()
        wait_ns = self._begun_ns + self._every_ns - self._dispatcher.clock()
        if wait_ns <= 0:
            wait_ns = self._every_ns
            if (
                self._dispatcher.changed or self._dispatcher.clock() >= self._retry_at_ns
            ) and self._gathered():
                self._begin()
        self._timer = self._dispatcher.loop.call_later(wait_ns / 1e9 + 0.001, self.save_again)

    async def flush(self) -> str:
        """Wait until the present state is on disk; the reason why it is not (rule 4), empty if it is."""
        wanted = self._begun + 1  # the one being gathered may have passed it already
        self._dispatcher.changed = True
        self.save_again()
        try:
            async with asyncio.timeout(FLUSH_SEC):
                while self._ended < wanted:
                    await self._one_ended.wait()
        except TimeoutError:
            words = "request answered before its change was on disk"
            self._dispatcher.repeats.warning(words, logs.OURSELVES, waited_sec=FLUSH_SEC)
            return f"the checkpoint was not written within {FLUSH_SEC:.0f} s"
        return "" if self._written >= wanted else self._writer.error or "the checkpoint was not written"

    def last(self) -> None:
        """At the end, in one go and whenever the one before was: nobody is waiting any more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._gathering is not None:
            self._gathering.cancel()
        self._begun += 1
        for _ in self._work(self._begun):
            pass

    # ---- inside ------------------------------------------------------------------------------

    def _gathered(self) -> bool:
        return self._gathering is None or self._gathering.done()

    def _begin(self) -> None:
        self._dispatcher.changed = False
        self._retry_at_ns = NEVER
        self._begun += 1
        self._begun_ns = self._dispatcher.clock()
        self._gathering = self._dispatcher.loop.create_task(self._gather(self._begun))

    async def _gather(self, number: int) -> None:
        dispatcher = self._dispatcher
        async for _ in in_pieces(self._work(number), dispatcher.clock, dispatcher.counters.callbacks.add):
            pass

    def _work(self, number: int) -> Iterator[None]:
        node, dispatcher = self._node, self._dispatcher
        gathering = Gathering(dispatcher.scheduler, self._look, dispatcher.clock())
        dispatcher.gathering = True
        try:
            yield from gathering.steps()
            gathering.finish()
        finally:
            dispatcher.gathering = False
        journal = node.journal
        covers = (journal.number, journal.base) if journal is not None else (0, -1)
        everybody = (dict(node.members.registered), dict(node.members.expected), node.tenancy.runs())
        self._writer.submit(Draft(number, gathering, *everybody, node.drains.all(), *covers))

    def _look(self, gpu: Gpu) -> int:
        return self._dispatcher.scheduler.look(gpu, self._dispatcher.clock())

    def _tell_ended(self, number: int) -> None:
        """Of the writer's thread."""
        with contextlib.suppress(RuntimeError):  # the daemon has ended meanwhile
            self._dispatcher.loop.call_soon_threadsafe(self._note_ended, number)

    def _note_ended(self, number: int) -> None:
        self._ended = number
        if self._writer.error:
            self._retry_ns = min(RETRY_MOST_NS, 2 * self._retry_ns or self._every_ns)
            self._retry_at_ns = self._dispatcher.clock() + self._retry_ns
        else:
            self._written = number
            self._retry_ns, self._retry_at_ns = 0, NEVER
            if self._node.journal is not None:
                self._node.journal.covered(self._writer.covered)
        self._one_ended.set()
        self._one_ended = asyncio.Event()
