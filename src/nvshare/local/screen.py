"""Shows a node that is up: a live table on a terminal, else a few lines now and then."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.segment import Segment
from rich.text import Text

from nvshare.client.control import NoDaemon
from nvshare.core.units import counted, times
from nvshare.local.summary import Look, Summary, Totals, as_lines, as_table, on_terminal
from nvshare.local.supervisor import Node

REFRESH_SEC: Final = 1.0
LINES_EVERY_SEC: Final = 10.0
_LATELY_LOOKS: Final = 60
_TABLE: Final = 2
_BY_IMPORTANCE: Final = (_TABLE, 3, 0, 1)
"""Importance of head, story, table and foot."""
_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def end_signal() -> Iterator[int]:
    """A descriptor that becomes readable when a signal asks us to end."""
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


def end_requested(reading: int) -> bool:
    os.set_blocking(reading, False)
    try:
        return bool(os.read(reading, 1))
    except BlockingIOError:
        return False


def _own_console() -> Console:
    """The present size of the window, not the one that the shell exported."""
    fixed = ("COLUMNS", "LINES")
    return Console(_environ={name: text for name, text in os.environ.items() if name not in fixed})


class Stack:
    """Parts one below the other, each whole or not at all: if not all fit, the least important go."""

    def __init__(self, parts: Sequence[RenderableType], by_importance: Sequence[int]) -> None:
        self._parts = parts
        self._by_importance = by_importance

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        left = console.height
        options = options.update(height=None)
        shown: dict[int, list[list[Segment]]] = {}
        for place in self._by_importance:
            lines = console.render_lines(self._parts[place], options, pad=False)
            if len(lines) <= left or not shown:
                shown[place] = lines[:left]
                left -= len(shown[place])
        for place in sorted(shown):
            for line in shown[place]:
                yield from line
                yield Segment.line()


class Screen:
    """One node's summary: ``head`` describes the node, ``foot`` what to do with it, ``story`` its tenants.

    On a terminal it has a screen of its own, redrawn every second, so that it survives any change of the
    window's size. ``head`` is also printed above it.
    """

    def __init__(self, node: Node, head: str, foot: str, story: str = "") -> None:
        self._node = node
        self._head = head
        self._foot = foot
        self._story = story
        self._lately: deque[int] = deque(maxlen=_LATELY_LOOKS)  # how many tenants there were
        self.summary = Summary()
        self.totals = Totals()

    def look(self) -> None:
        try:
            look = Look.of(self._node.control.ask("GET", "/v1/gpus"))
        except NoDaemon:
            return  # the daemon restarts; the last figures stay
        self.summary.add(look)
        self.totals.add(look, self.summary.rows())

    def _picture(self) -> RenderableType:
        rows = self.summary.rows()
        title = counted(len(rows), "tenant")
        if self._node.simulated is not None:
            title += " on simulated GPUs"
        if self._node.restarts:
            title += f"; the daemon was restarted {times(self._node.restarts)}"
        parts = [Text(f"{text}\n") if text else Group() for text in (self._head, self._story, "", self._foot)]
        # As tall as it was lately, so that the parts around it do not move with every visitor.
        self._lately.append(len(rows))
        parts[_TABLE] = Group(as_table(rows, title), Text("\n" * (max(self._lately) - len(rows))))
        return Stack(parts, _BY_IMPORTANCE)

    def show(self, wake: int, seconds: float | None = None, tick: Callable[[], None] = lambda: None) -> None:
        """For this long, or until ``wake`` is readable. ``tick`` is called each time."""
        deadline = None if seconds is None else time.monotonic() + seconds
        if on_terminal():
            console = _own_console()
            console.print(Text(self._head))
            with Live(self._picture(), console=console, auto_refresh=False, screen=True) as live:
                self._loop(wake, deadline, tick, lambda: live.update(self._picture(), refresh=True))
        else:
            print("\n".join(text for text in (self._head, self._story, self._foot) if text), flush=True)
            self._loop(wake, deadline, tick, _Lines(self.summary).show)

    def _loop(
        self, wake: int, deadline: float | None, tick: Callable[[], None], show: Callable[[], None]
    ) -> None:
        while deadline is None or time.monotonic() < deadline:
            self._node.watch(REFRESH_SEC, wake)
            if end_requested(wake):
                return
            tick()
            self.look()
            show()


class _Lines:
    """Plain lines, few enough to be read."""

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
