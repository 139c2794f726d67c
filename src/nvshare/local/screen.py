"""Shows a node that is up, until told to end: a live table on a terminal, else a few lines now and then."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from nvshare.local.node import Node
from nvshare.local.summary import Look, Summary, Totals, as_lines, as_table, on_terminal
from nvshare.node.controlling import NoDaemon

REFRESH_SEC: Final = 1.0
LINES_EVERY_SEC: Final = 10.0
_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def told_to_end() -> Iterator[int]:
    """A descriptor that can be read once a signal has asked us to end."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)

    def note(_number: int, _frame: object) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(writing, b"e")

    before = {number: signal.signal(number, note) for number in _ENDING}
    try:
        yield reading
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(reading)
        os.close(writing)


def was_told(reading: int) -> bool:
    os.set_blocking(reading, False)
    try:
        return bool(os.read(reading, 1))
    except BlockingIOError:
        return False


class Screen:
    """One node's summary; ``head`` is said once at the top, ``foot`` stands below the table."""

    def __init__(self, node: Node, head: str, foot: str) -> None:
        self._node = node
        self._head = head
        self._foot = foot
        self.summary = Summary()
        self.totals = Totals()

    def look(self) -> None:
        try:
            look = Look.of(self._node.control.ask("GET", "/v1/gpus"))
        except NoDaemon:
            return  # it is being started again; the last look stays
        self.summary.add(look)
        self.totals.add(look, self.summary.rows())

    def _picture(self) -> RenderableType:
        rows = self.summary.rows()
        restarts = f", the daemon was restarted {self._node.restarts} times" if self._node.restarts else ""
        title = f"{len(rows)} tenants{restarts}"
        return Group(as_table(rows, title), Text(self._foot))

    def show(self, wake: int, seconds: float | None = None, tick: Callable[[], None] = lambda: None) -> None:
        """For so long, or until ``wake`` can be read. ``tick`` is called at each look."""
        deadline = None if seconds is None else time.monotonic() + seconds
        if on_terminal():
            console = Console()
            console.print(Text(self._head))
            with Live(self._picture(), console=console, auto_refresh=False, transient=True) as live:
                self._loop(wake, deadline, tick, lambda: live.update(self._picture(), refresh=True))
        else:
            print(f"{self._head}\n{self._foot}", flush=True)
            self._loop(wake, deadline, tick, _Lines(self.summary).show)

    def _loop(
        self, wake: int, deadline: float | None, tick: Callable[[], None], show: Callable[[], None]
    ) -> None:
        while deadline is None or time.monotonic() < deadline:
            self._node.watch(REFRESH_SEC, wake)
            if was_told(wake):
                return
            tick()
            self.look()
            show()


class _Lines:
    """Plain lines, seldom enough to be read."""

    def __init__(self, summary: Summary) -> None:
        self._summary = summary
        self._next = time.monotonic() + LINES_EVERY_SEC

    def show(self) -> None:
        if time.monotonic() < self._next:
            return
        self._next += LINES_EVERY_SEC
        stamp = time.strftime("%H:%M:%S")
        for line in as_lines(self._summary.rows()):
            print(f"{stamp}  {line}", flush=True)
