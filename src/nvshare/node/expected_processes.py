"""Processes of expected members, each watched by one pidfd, however many clients it had."""

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
        self._watched: dict[Process, dict[int, Member]] = {}

    def watch(self, member: Member) -> bool:
        """Give the member its process's pidfd; False if the process is dead. Raises OSError if it cannot be
        watched.
        """
        process = member.process
        siblings = self._watched.get(process)
        if siblings is None:
            pidfd = open_process(process)
            if pidfd is None:
                return False
            siblings = self._watched[process] = {}
            self._loop.add_reader(pidfd, self._process_ended, process)
        else:
            pidfd = next(iter(siblings.values())).pidfd
        member.pidfd = pidfd
        siblings[member.client] = member
        return True

    def forget(self, member: Member) -> None:
        """It has resumed, or will not. With the last member of a process its pidfd is closed."""
        siblings = self._watched[member.process]
        del siblings[member.client]
        if not siblings:
            del self._watched[member.process]
            self._loop.remove_reader(member.pidfd)
            os.close(member.pidfd)
        member.pidfd = -1

    def _process_ended(self, process: Process) -> None:
        for member in list(self._watched.get(process, {}).values()):
            self._ended(member)
