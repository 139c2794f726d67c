"""Ends processes of clients: those that do not respond, if the operator wants that, and those he names.

1. A process is signalled through the pidfd that was opened when it registered, or when the daemon started if
   it is expected back, and only while that is the pidfd of this process. So a pid that was given away
   meanwhile hits nobody.
2. Never init, and never the daemon itself.
3. Whoever is asked to end (SIGTERM) has a grace period and is killed (SIGKILL) after it. A process that the
   kernel cannot end, as while a driver hangs, is not waited for beyond KILLED_WITHIN_SEC.
4. What the core says of an unresponsive client ends up in ``Terminations.unresponsive`` and nowhere else: who
   wants to tell the owner of its pod does it there.
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
from nvshare.pods.peer import Process, pidfd_pid

MARK: Final = "mark"
KILL: Final = "kill"
_TOLD_AGAIN_NS: Final = 5_000_000_000
"""The core repeats itself twice a second. A client it was silent about for so long had responded."""


def send(process: Process, pidfd: int, number: signal.Signals) -> str:
    """Rules 1 and 2; one of ``outcomes`` if it cannot be signalled, else empty."""
    if process.pid <= 1 or process.pid == os.getpid():
        return "protected"
    if pidfd < 0 or pidfd_pid(pidfd) != process.pid:
        return "gone"
    try:
        signal.pidfd_send_signal(pidfd, number)
    except ProcessLookupError:
        return "gone"
    except PermissionError:
        return "not_permitted"
    return ""


class _Target:
    """A process that is to end, until it has; has its pidfd for itself, whatever becomes of its clients."""

    def __init__(self, member: Member, loop: asyncio.AbstractEventLoop) -> None:
        self.process = member.process
        self.member = member
        self.outcome = ""
        self.ended: asyncio.Future[None] = loop.create_future()
        self._loop = loop
        self._pidfd = os.dup(member.pidfd)
        loop.add_reader(self._pidfd, self._has_ended)

    def _has_ended(self) -> None:
        self._loop.remove_reader(self._pidfd)
        if not self.ended.done():
            self.ended.set_result(None)

    def send(self, number: signal.Signals) -> None:
        if not self.outcome and not self.ended.done():
            self.outcome = send(self.process, self._pidfd, number)

    @property
    def lives(self) -> bool:
        return not self.outcome and not self.ended.done()

    def close(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)


class Terminations:
    def __init__(
        self, dispatcher: Dispatcher, here: Mapping[int, Member], expected: Mapping[int, Member]
    ) -> None:
        self._dispatcher = dispatcher
        self._members = here
        self._expected = expected
        self._told_ns: dict[int, int] = {}  # by client, when it was last said not to respond
        self._killed: set[Process] = set()  # once is enough, also for one that cannot be
        self.on_unresponsive = MARK

    # ---- unresponsive clients ----------------------------------------------------------------

    def unresponsive(self, client: int) -> None:
        """The core: it has not drained for NVSHARE_DROP_TIMEOUT_SEC. Called again while that is so."""
        member = self._members.get(client)
        if member is None:
            return
        now_ns = self._dispatcher.clock()
        told_ns = self._told_ns.get(client, -NEVER)
        action = ""
        if self.on_unresponsive == KILL and member.process not in self._killed:
            action = send(member.process, member.pidfd, signal.SIGKILL) or "killed"
            self._dispatcher.counters.killed["unresponsive"] += action == "killed"
            self._killed.add(member.process)
        elif now_ns - told_ns > _TOLD_AGAIN_NS:
            action = "marked"
        self._told_ns[client] = now_ns
        if len(self._told_ns) > 2 * len(self._members):  # the rest are gone; seldom, or each would cost that
            self._forget_who_is_gone()
        if action:
            self._tell("client unresponsive", member, action=action)

    def _forget_who_is_gone(self) -> None:
        here = self._members
        self._told_ns = {client: at_ns for client, at_ns in self._told_ns.items() if client in here}
        self._killed &= {member.process for member in here.values()}

    def _tell(self, words: str, member: Member, **fields: object) -> None:
        named = {"pod": member.pod, "pid": member.process.pid, "gpu": member.gpu, "command": member.command}
        client = f"{member.client:016x}"
        self._dispatcher.repeats.warning(words, member.accounted_to, client=client, **named, **fields)

    # ---- by the operator ---------------------------------------------------------------------

    async def end(self, wanted: Set[Process], grace_sec: float) -> dict[Process, str]:
        """What became of each, in a word of ``outcomes``. Whoever is no client is gone, as far as we know."""
        everybody = (*self._expected.values(), *self._members.values())
        found = {member.process: member for member in everybody if member.process in wanted}
        targets = [_Target(member, self._dispatcher.loop) for member in found.values()]
        try:
            outcomes = await self._end(targets, grace_sec)
        finally:
            for target in targets:
                target.close()
        return {process: outcomes.get(process, "gone") for process in wanted}

    async def _end(self, targets: list[_Target], grace_sec: float) -> dict[Process, str]:
        outcomes: dict[Process, str] = {}
        stages = [(signal.SIGKILL, KILLED_WITHIN_SEC, "killed")]
        if grace_sec > 0:
            stages.insert(0, (signal.SIGTERM, grace_sec, "terminated"))
        for number, wait_sec, outcome in stages:
            living = [target for target in targets if target.lives]
            for target in living:
                target.send(number)
                await asyncio.sleep(0)  # each takes a system call or three
            waited = [target.ended for target in living if target.lives]
            if waited:
                await asyncio.wait(waited, timeout=wait_sec)
            for target in living:
                if target.ended.done() and target.process not in outcomes:
                    outcomes[target.process] = target.outcome or outcome
        for target in targets:
            outcomes.setdefault(target.process, target.outcome or "survived")
            ended_by_us = outcomes[target.process] in ("terminated", "killed", "survived")
            self._dispatcher.counters.killed["operator"] += ended_by_us
            self._tell("client ended by the operator", target.member, outcome=outcomes[target.process])
        return outcomes
