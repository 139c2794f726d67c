"""Members by the pid of their process, as NVML names them. Those that have gone are known a while longer."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple, TypeVar

from nvshare.node.member import Member

KEPT_NS: Final = 15_000_000_000
"""NVML tells of processes that have ended when it is next asked, 5 s later at most, or the time after."""
GONE_MOST: Final = 4096
Whose = TypeVar("Whose")


class Gone(NamedTuple):
    client: int
    pid: int
    gpu: str
    pod: str
    at_ns: int


class MemberProcesses:
    def __init__(self) -> None:
        self._here: dict[int, list[Member]] = {}
        self._gone: dict[int, list[Gone]] = {}
        self._order: deque[Gone] = deque()  # the first that went first

    def enter(self, member: Member) -> None:
        self._here.setdefault(member.process.pid, []).append(member)

    def leave(self, member: Member, now_ns: int) -> None:
        pid = member.process.pid
        _take(self._here, pid, member)
        while self._order and (len(self._order) >= GONE_MOST or now_ns - self._order[0].at_ns > KEPT_NS):
            first = self._order.popleft()
            _take(self._gone, first.pid, first)
        gone = Gone(member.client, pid, member.gpu, member.pod, now_ns)
        self._order.append(gone)
        self._gone.setdefault(pid, []).append(gone)

    def of(self, pid: int, gpu: str) -> list[Member]:
        """Those that it is there."""
        return [member for member in self._here.get(pid, ()) if member.gpu == gpu]

    def is_elsewhere(self, pid: int, gpu: str) -> bool:
        """Whether it is there on another GPU, too."""
        return any(member.gpu != gpu for member in self._here.get(pid, ()))

    def gone(self, pid: int, gpu: str, now_ns: int) -> list[Gone]:
        """Those that it was there until a while ago."""
        since_ns = now_ns - KEPT_NS
        return [gone for gone in self._gone.get(pid, ()) if gone.gpu == gpu and gone.at_ns >= since_ns]


def _take(found: dict[int, list[Whose]], pid: int, one: Whose) -> None:
    found[pid].remove(one)
    if not found[pid]:
        del found[pid]
