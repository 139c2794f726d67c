"""Reads the settings again while the daemon runs.

Reading happens in a thread, because a file may be long and its disk may hang. One reading goes on at a time;
who asks meanwhile gets one more after it, since the file may have changed behind the reader.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable

from nvshare.node.config import Config


class Reloader:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        read: Callable[[], Config],
        take: Callable[[Config], None],
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
        found: Config | Exception
        try:
            found = self._read()
        except Exception as error:  # whatever is wrong with a file, the old settings stay
            found = error
        with contextlib.suppress(RuntimeError):  # the daemon has ended meanwhile
            self._loop.call_soon_threadsafe(self._done, found)

    def _done(self, found: Config | Exception) -> None:
        self._reading = False
        if self._again:
            self._again = False
            self.ask()
        elif isinstance(found, Exception):
            self._complain(found)
        else:
            self._take(found)
