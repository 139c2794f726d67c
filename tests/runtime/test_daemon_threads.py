"""Threads that nobody waits for: work is done, bounded, and a hung one delays no end."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from nvshare.runtime.daemon_threads import DaemonThreads
from tests.exporters.node import ROOT

HANGS = """
import asyncio, threading
from nvshare.runtime.daemon_threads import DaemonThreads

async def main():
    asyncio.get_running_loop().set_default_executor(DaemonThreads())
    hung = asyncio.create_task(asyncio.to_thread(threading.Event().wait))
    print(await asyncio.to_thread(str, 7), flush=True)
    hung.cancel()

with asyncio.Runner() as runner:
    runner.run(main())
print("ended", flush=True)
"""


def test_a_thread_that_hangs_delays_neither_the_loop_nor_the_end() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HANGS], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout.split()) == (0, ["7", "ended"]), done.stderr


def test_results_and_errors_come_back_and_threads_are_bounded() -> None:
    names = set()

    def work(number: int) -> int:
        names.add(threading.current_thread().name)
        if number == 3:
            raise ValueError("three")
        return number

    async def main() -> None:
        asyncio.get_running_loop().set_default_executor(DaemonThreads(2))
        jobs = [asyncio.to_thread(work, number) for number in range(50)]
        found = await asyncio.gather(*jobs, return_exceptions=True)
        assert [one for one in found if isinstance(one, int)] == [n for n in range(50) if n != 3]
        with pytest.raises(ValueError, match="three"):
            await asyncio.to_thread(work, 3)

    asyncio.run(main())
    assert len(names) <= 2
