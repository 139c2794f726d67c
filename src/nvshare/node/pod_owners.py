"""Which users pods belong to, and the limits that root's settings give them.

1. Root's settings for a user enter the limits of each of his pods, as the sources ``default`` and
   ``ceiling``, when he starts something in it and when a process of it registers or resumes.
2. New settings hold at once for connected clients.
3. They end with the pod: see ``runs``.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from nvshare.core.events import LimitsSet
from nvshare.core.limit_sources import CEILING, DEFAULT
from nvshare.node.dispatcher import Dispatcher
from nvshare.node.member import Member
from nvshare.node.users import Users
from nvshare.pods.peer import Peer
from nvshare.pods.tenant_name import TenantName
from nvshare.runtime.cooperative import in_pieces

SetLimits = Callable[[LimitsSet, str], object]


class PodOwners:
    def __init__(self, dispatcher: Dispatcher, expected: Mapping[int, Member], set_limits: SetLimits) -> None:
        self._dispatcher = dispatcher
        self._expected = expected
        self._set_limits = set_limits
        self._serves = os.geteuid() == 0  # only root's daemon has users
        self._pods: dict[int, Counter[str]] = {}  # by user: how many processes each of his pods has
        self._applying: asyncio.Task[None] | None = None
        self.users = Users()

    def count(self, member: Member, step: int) -> None:
        """A process comes or goes; in a Kubernetes pod it counts for no user."""
        if member.in_pod:
            return
        pods = self._pods.setdefault(member.uid, Counter())
        pods[member.pod] += step
        if not pods[member.pod]:
            del pods[member.pod]
        if not pods:
            del self._pods[member.uid]

    def clients(self, uid: int) -> int:
        """How many processes of a user are registered."""
        pods = self._pods.get(uid)
        return pods.total() if pods is not None else 0

    def owner(self, pod: str) -> int | None:
        """The user that a pod belongs to; None: the operator."""
        tenant = TenantName.of_key(pod)
        owner = tenant.owner_uid
        if tenant.is_process:
            here = (uid for uid, pods in self._pods.items() if pod in pods)
            expected = (member.uid for member in self._expected.values() if member.pod == pod)
            owner = next(here, None)
            owner = next(expected, None) if owner is None else owner
        return owner

    def too_many(self, peer: Peer, pod: str) -> bool:
        """Whether the user would have more pods than root permits."""
        most = self.users.ceiling(peer.uid, peer.groups).pods if self._serves else None
        pods = self._pods.get(peer.uid, ())
        return most is not None and not peer.place.pod_uid and pod not in pods and len(pods) >= most

    def apply(self, pod: str, peer: Peer) -> None:
        """Rule 1, if the peer is the pod's user, or in a container of that user, as the kernel knows it."""
        tenant = TenantName.of_key(pod)
        owner = peer.uid if tenant.is_process else tenant.owner_uid
        if not self._serves or owner is None or owner not in (peer.uid, peer.place.slice_uid):
            return
        groups = peer.groups if owner == peer.uid else frozenset()
        default, ceiling = self.users.default(owner, groups), self.users.ceiling(owner, groups)
        for source, terms in ((DEFAULT, default), (CEILING, ceiling)):
            stated = (terms.memory_bytes, terms.core_percent, None)
            if self._dispatcher.scheduler.limits.from_source(pod, source) != stated:
                self._set_limits(LimitsSet(pod, source, *stated), peer.owner)

    def take(self, users: Users, members: Iterable[Member]) -> None:
        """Rule 2."""
        changed, self.users = users != self.users, users
        if changed:
            self._applying = self._dispatcher.loop.create_task(self._apply_to(list(members)))

    async def _apply_to(self, members: list[Member]) -> None:
        dispatcher = self._dispatcher
        async for _ in in_pieces(
            self._apply_each(members), dispatcher.clock, dispatcher.counters.callbacks.add
        ):
            pass

    def _apply_each(self, members: list[Member]) -> Iterator[None]:
        for member in members:
            if (
                member.connection is not None
                and self._dispatcher.connections.get(member.client) is member.connection
            ):
                self.apply(member.pod, member.connection.peer)
                yield
