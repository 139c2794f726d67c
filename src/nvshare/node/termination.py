"""Ends processes of clients: unresponsive ones, if the operator wants that, and those he names.

1. A process is signalled through the pidfd that was opened when it registered, or at the daemon's start if it
   is expected back, and only while that is the pidfd of this process. So a reused pid is never hit.
2. Init and the daemon itself are never ended. For a user, only those are that the user could end by kill(2)
   at this moment: a process that was the user's may have become root's since it registered. If it does so
   between the check and the signal, it has not run as root for longer than that.
3. A process that is asked to end (SIGTERM) has a grace period and is then killed (SIGKILL). A process that
   the kernel cannot end, for instance while a driver hangs, is not waited for beyond KILLED_WITHIN_SEC.
4. The core's report of an unresponsive client ends up in ``Terminations.unresponsive`` and nowhere else. That
   is the place to inform the owner of its pod.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Set
from typing import Final

from nvshare.core.account import NEVER
from nvshare.node.dispatcher import Dispatcher
from nvshare.node.kill_outcomes import KILLED_WITHIN_SEC
from nvshare.node.member import Member
from nvshare.pods.peer import Process, pidfd_pid, uids_of

MARK: Final = "mark"
KILL: Final = "kill"
_REPORT_AGAIN_NS: Final = 5_000_000_000
"""The core repeats itself twice a second. A client it has not mentioned for so long had responded."""


def send(process: Process, pidfd: int, number: signal.Signals, by: int | None = None) -> str:
    """Rules 1 and 2; the key of ``kill_outcomes`` if it cannot be signalled, else empty.

    ``by``: the user who wants it; None: an operator, or ourselves.
    """
    if process.pid <= 1 or process.pid == os.getpid():
        return "protected"
    uids = uids_of(process.pid) if by is not None else None
    if pidfd < 0 or pidfd_pid(pidfd) != process.pid:  # if it is, the uids are this process's, too
        return "gone"
    if by is not None and (uids is None or by not in (uids.real, uids.saved)):
        return "not_yours"
    try:
        signal.pidfd_send_signal(pidfd, number)
    except ProcessLookupError:
        return "gone"
    except PermissionError:
        return "not_permitted"
    return ""


class TooMany(Exception):  # noqa: N818 - a state of ours
    """More processes are being ended than the bounds permit."""


class _Target:
    """A process that is to end. It has a pidfd of its own, whatever becomes of its clients.

    Several requests may end one process at a time, each with its own grace period: they share it.
    """

    def __init__(self, member: Member, loop: asyncio.AbstractEventLoop) -> None:
        self.requests = 0
        self.process = member.process
        self.member = member
        self.ended: asyncio.Future[None] = loop.create_future()
        self._loop = loop
        self._pidfd = os.dup(member.pidfd)
        loop.add_reader(self._pidfd, self._has_ended)

    def _has_ended(self) -> None:
        self._loop.remove_reader(self._pidfd)
        if not self.ended.done():
            self.ended.set_result(None)

    def send(self, number: signal.Signals, by: int | None) -> str:
        return send(self.process, self._pidfd, number, by) if self.lives else ""

    @property
    def lives(self) -> bool:
        return not self.ended.done()

    def close(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)


class Terminations:
    def __init__(
        self,
        dispatcher: Dispatcher,
        here: Mapping[int, Member],
        expected: Mapping[int, Member],
        ending_max: int,
    ) -> None:
        self._ending_max = ending_max  # processes at a time: each takes a descriptor
        self._dispatcher = dispatcher
        self._members = here
        self._expected = expected
        self._reported_ns: dict[int, int] = {}  # by client, the last report
        self._killed: set[Process] = set()  # once is enough, even where it fails
        self._ending: dict[Process, _Target] = {}
        self.on_unresponsive = MARK

    # ---- unresponsive clients ----------------------------------------------------------------

    def unresponsive(self, client: int) -> None:
        """The core: it has not drained for NVSHARE_DROP_TIMEOUT_SEC. Repeated while that is so."""
        member = self._members.get(client)
        if member is None:
            return
        now_ns = self._dispatcher.clock()
        reported_ns = self._reported_ns.get(client, -NEVER)
        action = ""
        if self.on_unresponsive == KILL and member.process not in self._killed:
            action = send(member.process, member.pidfd, signal.SIGKILL) or "killed"
            self._dispatcher.counters.killed["unresponsive"] += action == "killed"
            self._killed.add(member.process)
        elif now_ns - reported_ns > _REPORT_AGAIN_NS:
            action = "marked"
        self._reported_ns[client] = now_ns
        if len(self._reported_ns) > 2 * len(self._members):  # seldom, since it costs time
            self._forget_gone()
        if action:
            self._log("client unresponsive", member, action=action)

    def _forget_gone(self) -> None:
        here = self._members
        self._reported_ns = {client: at_ns for client, at_ns in self._reported_ns.items() if client in here}
        self._killed &= {member.process for member in here.values()}

    def _log(self, event: str, member: Member, **fields: object) -> None:
        named = {"pod": member.pod, "pid": member.process.pid, "gpu": member.gpu, "command": member.command}
        client = f"{member.client:016x}"
        self._dispatcher.repeats.warning(event, member.accounted_to, client=client, **named, **fields)

    # ---- by the operator, or by a user -------------------------------------------------------

    async def end(self, wanted: Set[Process], grace_sec: float, by: int | None = None) -> dict[Process, str]:
        """The outcome of each, a key of ``kill_outcomes``. A process without a client counts as gone.

        ``by`` is as in ``send``.

        Raises TooMany.
        """
        everybody = (*self._expected.values(), *self._members.values())
        found = {member.process: member for member in everybody if member.process in wanted}
        if len(self._ending.keys() | found.keys()) > self._ending_max:
            raise TooMany
        targets: list[_Target] = []
        try:
            for member in found.values():
                targets.append(self._target(member))
            outcomes = await self._end(targets, grace_sec, by)
        finally:
            for target in targets:
                self._release(target)
        return {process: outcomes.get(process, "gone") for process in wanted}

    def _target(self, member: Member) -> _Target:
        target = self._ending.get(member.process)
        if target is None:
            target = self._ending[member.process] = _Target(member, self._dispatcher.loop)
        target.requests += 1
        return target

    def _release(self, target: _Target) -> None:
        target.requests -= 1
        if not target.requests:
            del self._ending[target.process]
            target.close()

    async def _end(self, targets: list[_Target], grace_sec: float, by: int | None) -> dict[Process, str]:
        outcomes: dict[Process, str] = {}
        stages = [(signal.SIGKILL, KILLED_WITHIN_SEC, "killed")]
        if grace_sec > 0:
            stages.insert(0, (signal.SIGTERM, grace_sec, "terminated"))
        for number, wait_sec, outcome in stages:
            signalled = []
            for target in targets:
                if target.lives and target.process not in outcomes:
                    if why_not := target.send(number, by):
                        outcomes[target.process] = why_not
                    else:
                        signalled.append(target)
                await asyncio.sleep(0)  # each takes a few system calls
            waited = [target.ended for target in signalled if target.lives]
            if waited:
                await asyncio.wait(waited, timeout=wait_sec)
            outcomes |= {target.process: outcome for target in signalled if not target.lives}
        for target in targets:
            outcomes.setdefault(target.process, "survived" if target.lives else "gone")
            ended_by_us = outcomes[target.process] in ("terminated", "killed", "survived")
            self._dispatcher.counters.killed["operator"] += ended_by_us
            self._log("client ended by the operator", target.member, outcome=outcomes[target.process])
        return outcomes
