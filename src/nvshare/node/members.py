"""The clients that are registered or expected back, and how they end.

1. A member stays one while its process lives, connected or not. The pidfd shows the end of a process; its
   socket does not, because a child may keep it open.
2. A member that lost its connection may resume while its process lives, and its memory stays charged.
3. An expected member was registered with the previous daemon and has not resumed yet. It may resume while its
   process lives.
4. With a pod's last process end the limits that its programs' environments stated, and with its last run as
   well those that belong to its user.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections import deque
from collections.abc import Callable

from nvshare.core import events
from nvshare.node.bounds import Bounds
from nvshare.node.capacity import Capacity
from nvshare.node.connection import Connection
from nvshare.node.dispatcher import Dispatcher
from nvshare.node.environment_limits import EnvironmentLimits
from nvshare.node.expected_processes import ExpectedProcesses
from nvshare.node.limit_pauses import LimitPauses
from nvshare.node.limits import LimitUpdates
from nvshare.node.member import NO_CLIENT, EndedMember, Member, Role
from nvshare.node.member_processes import MemberProcesses
from nvshare.node.pod_owners import PodOwners
from nvshare.node.runs import USER_SOURCES, Runs
from nvshare.pods.peer import command_of
from nvshare.pods.tenancy import Tenancy


def close_pidfd(loop: asyncio.AbstractEventLoop, pidfd: int) -> None:
    if pidfd >= 0:
        loop.remove_reader(pidfd)
        os.close(pidfd)


class Members:
    def __init__(
        self, dispatcher: Dispatcher, bounds: Bounds, tenancy: Tenancy, limits: LimitUpdates
    ) -> None:
        self._dispatcher = dispatcher
        self._limits = limits
        self._tenancy = tenancy
        self.registered: dict[int, Member] = {}  # by client id
        self.processes = MemberProcesses()  # of those that are registered
        self.expected: dict[int, Member] = {}
        self.ended: deque[EndedMember] = deque(maxlen=bounds.clients)  # the latest ones
        self.pod_ended: Callable[[str], None] = lambda _pod: None  # called when its last process has ended
        self._absent: dict[Role, list[Member]] = {}  # members without a connection, expected ones too
        self.capacity = Capacity(bounds)
        self._expected_processes = ExpectedProcesses(dispatcher.loop, self.forget)
        self.runs = Runs(dispatcher, tenancy, self.capacity.has_pod, limits.withdraw)
        self.owners = PodOwners(dispatcher, self.expected, limits.set)
        self.limit_pauses = LimitPauses(dispatcher, self.capacity.clients_of)
        self.environment = EnvironmentLimits(dispatcher, self.limit_pauses, limits.set)

    def everybody(self) -> list[Member]:
        """Registered members, then expected ones."""
        return [*self.registered.values(), *self.expected.values()]

    def is_here(self, pod: str) -> bool:
        """A process or a run of the pod is registered."""
        return self.capacity.has_pod(pod) or self._tenancy.has_run(pod)

    def absent(self, role: Role) -> list[Member]:
        """The members in this role that have no connection."""
        return list(self._absent.get(role, ()))

    def unused_id(self) -> int:
        client = 0
        while client in NO_CLIENT or client in self.registered or client in self.expected:
            client = secrets.randbits(64)
        return client

    # ---- registered --------------------------------------------------------------------------

    def add(self, member: Member, connection: Connection) -> None:
        self.registered[member.client] = member
        self.processes.enter(member)
        self._take_place(member)
        self._dispatcher.connections[member.client] = connection
        connection.become(member.client, member.pod)

    def disconnected(self, member: Member, reason: str) -> None:
        """It may resume on another connection (rule 2)."""
        member.connection = None
        self._dispatcher.counters.disconnects[reason] += 1
        self._absent.setdefault(member.role, []).append(member)
        self._dispatcher.connections.pop(member.client, None)
        self._dispatcher.feed(events.ClientDisconnected(member.client))
        self.log("client disconnected", member)

    def process_ended(self, member: Member) -> None:
        self.end(member, "process ended", "ended")
        self._withdraw_limits(member)

    def end(self, member: Member, why: str, reason: str = "replaced") -> None:
        self.remove(member, reason)
        self.ended.append(member.ended())
        self._dispatcher.feed(events.ProcessGone(member.client))
        self.log("client gone", member, why=why)
        self.runs.forget_soon(member.pod)

    def remove(self, member: Member, reason: str) -> None:
        """End its connection and forget it; the caller tells the core."""
        del self.registered[member.client]
        self.processes.leave(member, self._dispatcher.clock())
        self._give_place_back(member)
        self._dispatcher.connections.pop(member.client, None)
        close_pidfd(self._dispatcher.loop, member.pidfd)
        if member.connection is not None:
            self._dispatcher.counters.disconnects[reason] += 1
            member.connection.pidfd = -1
            member.connection.abort()
        else:
            self._no_longer_absent(member)

    def log(self, words: str, member: Member, **fields: object) -> None:
        named = {"client": f"{member.client:016x}", "pod": member.pod, "gpu": member.gpu, **fields}
        self._dispatcher.repeats.info(words, member.accounted_to, **named)

    # ---- expected ----------------------------------------------------------------------------

    def expect(self, member: Member) -> bool:
        """A member of the previous daemon; False if its process is dead, or there is no capacity for it."""
        why: object = self.capacity.exceeded(member.pod, member.accounted_to, member.in_pod)
        if not why:
            try:
                if not self._expected_processes.watch(member):
                    return False
            except OSError as error:
                why = error
        if why:
            self._dispatcher.repeats.warning(
                "a client of the previous daemon is not expected back", member.accounted_to, why=why
            )
            return False
        member.command = command_of(member.process.pid)
        self.expected[member.client] = member
        self._take_place(member)
        self._absent.setdefault(member.role, []).append(member)
        return True

    def stop_watching_expected(self) -> None:
        """Other books replace these, before the core or a client knows of the expected members."""
        for member in self.expected.values():
            self._expected_processes.forget(member)
        self.expected.clear()

    def forget(self, member: Member) -> None:
        """An expected member will not resume."""
        if member.client not in self.expected:
            return
        self.stop_expecting(member)
        self.ended.append(member.ended())
        self._dispatcher.feed(events.ResumeCancelled(member.client, member.gpu))
        self._withdraw_limits(member)
        self.runs.forget_soon(member.pod)

    def stop_expecting(self, member: Member) -> None:
        del self.expected[member.client]
        self._give_place_back(member)
        self._no_longer_absent(member)
        self._expected_processes.forget(member)

    # ---- inside ------------------------------------------------------------------------------

    def _take_place(self, member: Member) -> None:
        self.capacity.take(member)
        self.owners.count(member, 1)

    def _give_place_back(self, member: Member) -> None:
        self.capacity.give_back(member)
        self.owners.count(member, -1)

    def _no_longer_absent(self, member: Member) -> None:
        self._absent[member.role].remove(member)
        if not self._absent[member.role]:
            del self._absent[member.role]

    def _withdraw_limits(self, member: Member) -> None:
        """Rule 4."""
        if self.capacity.has_pod(member.pod):
            return
        self.environment.withdraw(member.pod, member.accounted_to)
        stated = self._dispatcher.scheduler.limits.by_source(member.pod)
        belongs_to_user = not member.in_pod and any(source in stated for source in USER_SOURCES)
        if belongs_to_user and not self._tenancy.has_run(member.pod):
            self._limits.withdraw(member.pod, USER_SOURCES, member.accounted_to)
        self.pod_ended(member.pod)
