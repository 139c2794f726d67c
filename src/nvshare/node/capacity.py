"""How many clients there are: in all, of each pod, and of each owner.

1. Expected members count, so a restart of the daemon is no way to have more.
2. An owner is a container, or a user outside of them, as for ``fair_queue``. A Kubernetes pod is bounded only
   as a pod.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from nvshare.node.bounds import Bounds
from nvshare.node.member import Member, Role


class Capacity:
    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._taken = 0
        self._per_pod: Counter[str] = Counter()
        self._per_owner: Counter[str] = Counter()
        self._per_role: Counter[Role] = Counter()

    def take(self, member: Member) -> None:
        self._count(member, 1)

    def give_back(self, member: Member) -> None:
        self._count(member, -1)

    def exceeded(self, pod: str, owner: str, in_pod: bool) -> str:
        """The bound that one more client would exceed; empty if there is room."""
        bounds = self._bounds
        if self._taken >= bounds.clients:
            return "too_many_clients"
        if not in_pod and self._per_owner[owner] >= bounds.clients_per_uid:
            return "too_many_of_user"
        if self._per_pod[pod] >= bounds.clients_per_pod:
            return "too_many_in_pod"
        return ""

    def clients_of(self, pod: str) -> int:
        return self._per_pod[pod]

    def has_pod(self, pod: str) -> bool:
        """A process of the pod is registered or expected."""
        return pod in self._per_pod

    def has_role(self, role: Role) -> bool:
        """With or without a connection."""
        return role in self._per_role

    def _count(self, member: Member, step: int) -> None:
        self._taken += step
        _add(self._per_pod, member.pod, step)
        _add(self._per_owner, member.accounted_to, step)
        _add(self._per_role, member.role, step)


def _add(counter: Counter[Any], key: object, step: int) -> None:
    counter[key] += step
    if not counter[key]:
        del counter[key]
