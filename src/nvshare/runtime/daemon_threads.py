"""Threads for what may wait: files, compression, passwords. A hung one never delays the end of a daemon.

asyncio's own executor is joined when the event loop is closed and once more when the interpreter exits, so a
file system that does not answer would keep a daemon from ending.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

THREADS_MAX: Final = 8


class DaemonThreads(ThreadPoolExecutor):
    """An executor for ``asyncio.to_thread`` whose threads nobody waits for."""

    def __init__(self, threads: int = THREADS_MAX) -> None:
        super().__init__(1)  # for its type, which the loop asks for; it starts no thread of its own
        self._most = threads
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._started = 0

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def work() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(function(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        self._work.put(work)
        if not self._idle.acquire(blocking=False) and self._started < self._most:
            self._started += 1
            threading.Thread(target=self._run, name=f"worker-{self._started}", daemon=True).start()
        return future

    def _run(self) -> None:
        while True:
            self._work.get()()
            self._idle.release()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Nothing to wait for."""
