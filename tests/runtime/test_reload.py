"""Settings are read beside the loop, one reading at a time."""

from __future__ import annotations

import asyncio
import threading

from nvshare.node.config import Config, load
from nvshare.runtime.reload import Reloader
from tests.node.harness import PATIENCE_SEC


def test_asking_during_a_reading_means_one_more_and_the_last_counts() -> None:
    started, go_on = threading.Semaphore(0), threading.Semaphore(0)
    readings: list[Config] = []

    def read() -> Config:
        readings.append(load({}, {"NVSHARE_LOG": ("info", "error", "debug")[len(readings)]}, None))
        found = readings[-1]
        started.release()
        assert go_on.acquire(timeout=PATIENCE_SEC)
        return found

    async def live() -> Config:
        taken: asyncio.Queue[Config] = asyncio.Queue()
        reloader = Reloader(asyncio.get_running_loop(), read, taken.put_nowait, lambda _error: None)
        reloader.ask()
        assert await asyncio.to_thread(started.acquire, timeout=PATIENCE_SEC)
        for _ in range(5):
            reloader.ask()
        go_on.release()
        go_on.release()
        found = await taken.get()
        assert taken.empty()
        return found

    assert asyncio.run(asyncio.wait_for(live(), PATIENCE_SEC)).log_level == "error"
    assert len(readings) == 2


def test_whatever_is_wrong_is_reported() -> None:
    def read() -> Config:
        raise ZeroDivisionError("of the file's own kind")

    async def live() -> Exception:
        told: asyncio.Queue[Exception] = asyncio.Queue()
        Reloader(asyncio.get_running_loop(), read, lambda _config: None, told.put_nowait).ask()
        return await told.get()

    assert isinstance(asyncio.run(asyncio.wait_for(live(), PATIENCE_SEC)), ZeroDivisionError)
