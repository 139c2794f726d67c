"""Names of programs in no pod, for metrics: the user and the command, not the process.

Processes come and go, and each would leave series of its own behind in Prometheus. The figures of programs
with one name are added up. Programs choose their command, so the number of names is bounded: later programs
are called ``other``.
"""

from __future__ import annotations

import re
from typing import Final, Protocol

from nvshare.pods.tenant_name import TenantKind, TenantName

_PREFIX: Final = f"{TenantKind.PROCESS}:"
NAMES_PER_USER: Final = 32
NAMES_MAX: Final = 1024
OTHER: Final = "other"
_ODD: Final = re.compile(r"[^A-Za-z0-9._+-]")


def is_program(label: str) -> bool:
    """Whether a pod label is the name of a program in no pod."""
    return label.startswith(_PREFIX)


class Named(Protocol):
    @property
    def pod(self) -> str: ...

    @property
    def uid(self) -> int: ...

    @property
    def command(self) -> str: ...


class ProgramNames:
    """By tenant, the names of processes in no pod."""

    def __init__(self) -> None:
        self._of: dict[str, str] = {}
        self._given: dict[int, set[str]] = {}  # commands, by user
        self._count = 0

    def learn(self, program: Named) -> None:
        if program.pod not in self._of and TenantName.of_key(program.pod).is_process:
            self._of[program.pod] = _PREFIX + self._name(program.uid, program.command)

    def name(self, pod: str) -> str:
        return self._of.get(pod, _PREFIX + OTHER)

    def keep_only(self, pods: set[str]) -> None:
        for pod in self._of.keys() - pods:
            del self._of[pod]

    def _name(self, uid: int, command: str) -> str:
        command = _ODD.sub("_", command) or OTHER
        given = self._given.get(uid, set())
        if command not in given:
            if self._count >= NAMES_MAX and not given:
                return OTHER
            if self._count >= NAMES_MAX or len(given) >= NAMES_PER_USER:
                return f"{uid}/{OTHER}"
            self._given[uid] = given | {command}
            self._count += 1
        return f"{uid}/{command}"
