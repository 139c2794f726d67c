"""Processes of the daemon's former life that may come back, each watched by one pidfd however many clients
it had.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from nvshare.node.member import Member
from nvshare.pods.peer import Process, open_process


class ExpectedProcesses:
    def __init__(self, loop: asyncio.AbstractEventLoop, ended: Callable[[Member], None]) -> None:
        """``ended`` is called for each client of a process that has ended."""
        self._loop = loop
        self._ended = ended
        self._expected: dict[Process, dict[int, Member]] = {}

    def watch(self, former: Member) -> bool:
        """Give it its process's pidfd; False if that is dead. Raises OSError if it cannot be watched."""
        process = former.process
        siblings = self._expected.get(process)
        if siblings is None:
            pidfd = open_process(process)
            if pidfd is None:
                return False
            siblings = self._expected[process] = {}
            self._loop.add_reader(pidfd, self._process_ended, process)
        else:
            pidfd = next(iter(siblings.values())).pidfd
        former.pidfd = pidfd
        siblings[former.client] = former
        return True

    def forget(self, former: Member) -> None:
        """It is back, or will not come. The last one's pidfd is closed."""
        siblings = self._expected[former.process]
        del siblings[former.client]
        if not siblings:
            del self._expected[former.process]
            self._loop.remove_reader(former.pidfd)
            os.close(former.pidfd)
        former.pidfd = -1

    def _process_ended(self, process: Process) -> None:
        for former in list(self._expected.get(process, {}).values()):
            self._ended(former)
