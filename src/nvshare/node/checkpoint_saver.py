"""When the checkpoint is written.

1. After a change, but not sooner than a second after the last one was started. A request that needs its
   change on disk waits for that second as well; one checkpoint serves all that wait.
2. A checkpoint that could not be written is retried without a change, at longer and longer intervals.
3. Gathering it yields to the loop (``core.view.checkpoint``). The writer's thread makes the records and the
   bytes.
4. A disk that hangs or is full delays and refuses no client. A request waits a few seconds at most, and its
   answer says if the change is not on disk.
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
        self._begun = 0  # the number of the checkpoint that was started last
        self._begun_ns = self._dispatcher.clock() - every_ns
        self._ended = 0  # the last that was written or failed
        self._written = 0  # the last that was written
        self._finished_one = asyncio.Event()
        self._retry_ns = 0  # the pause after the last failure; 0: the last one was written
        self._retry_at_ns = NEVER
        self._gathering: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        writer.ended = self._report_ended

    def current(self) -> bool:
        """All changes are on disk."""
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
        wanted = self._begun + 1  # the one being gathered may be past the change already
        self._dispatcher.changed = True
        self.save_again()
        try:
            async with asyncio.timeout(FLUSH_SEC):
                while self._ended < wanted:
                    await self._finished_one.wait()
        except TimeoutError:
            words = "request answered before its change was on disk"
            self._dispatcher.repeats.warning(words, logs.OURSELVES, waited_sec=FLUSH_SEC)
            return f"the checkpoint was not written within {FLUSH_SEC:.0f} s"
        return "" if self._written >= wanted else self._writer.error or "the checkpoint was not written"

    def last(self) -> None:
        """The last checkpoint, at the daemon's end: at once and in one piece, since no client waits."""
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
        parts = (dict(node.members.registered), dict(node.members.expected), node.tenancy.runs())
        draft = Draft(number, gathering, *parts, node.drains.all(), journal=covers[0], journal_base=covers[1])
        if node.kubernetes is not None:
            draft = draft._replace(kubernetes=node.kubernetes.rows())
        self._writer.submit(draft)

    def _look(self, gpu: Gpu) -> int:
        return self._dispatcher.scheduler.advance_clock(gpu, self._dispatcher.clock())

    def _report_ended(self, number: int) -> None:
        """Called by the writer's thread."""
        with contextlib.suppress(RuntimeError):  # the daemon has ended meanwhile
            self._dispatcher.loop.call_soon_threadsafe(self._note_finished, number)

    def _note_finished(self, number: int) -> None:
        self._ended = number
        if self._writer.error:
            self._retry_ns = min(RETRY_MOST_NS, 2 * self._retry_ns or self._every_ns)
            self._retry_at_ns = self._dispatcher.clock() + self._retry_ns
        else:
            self._written = number
            self._retry_ns, self._retry_at_ns = 0, NEVER
            if self._node.journal is not None:
                self._node.journal.covered(self._writer.covered)
        self._finished_one.set()
        self._finished_one = asyncio.Event()
