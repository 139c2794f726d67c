"""Reads a daemon's settings again while it runs.

A thread reads them, because a file may be long and its disk may hang. Only one reading runs at a time. A
request that arrives meanwhile causes one more, since the file may have changed behind the reader.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

ConfigT = TypeVar("ConfigT")


class Reloader(Generic[ConfigT]):
    """``take`` gets the new settings, ``complain`` the reason why there are none."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        read: Callable[[], ConfigT],
        take: Callable[[ConfigT], None],
        complain: Callable[[Exception], None],
    ) -> None:
        self._loop = loop
        self._read = read
        self._take = take
        self._complain = complain
        self._reading = False
        self._again = False

    def ask(self) -> None:
        if self._reading:
            self._again = True
            return
        self._reading = True
        threading.Thread(target=self._run, name="settings", daemon=True).start()

    def _run(self) -> None:
        done: Callable[[], None]
        try:
            done = partial(self._take, self._read())
        except Exception as error:  # whatever is wrong with a file, the old settings stay
            done = partial(self._complain, error)
        with contextlib.suppress(RuntimeError):  # the daemon has ended meanwhile
            self._loop.call_soon_threadsafe(self._finish, done)

    def _finish(self, done: Callable[[], None]) -> None:
        self._reading = False
        if self._again:
            self._again = False
            self.ask()
        else:
            done()
