"""Which tenant a process belongs to.

In this order: the pod its cgroup tells; the pod an ancestor was started in by ``nvshare run``; its container;
what it says, if it is trusted to say it; else the process is a tenant of its own.
"""

from __future__ import annotations

import re
from typing import Final

from nvshare.pods.identity import Peer, Process, ancestors

RUNS_MAX: Final = 4096
_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_SAYS_NOTHING: Final = frozenset({"", "none"})
ACCEPTED_POD: Final = (
    "[namespace/]name of lower-case letters, digits, '.' and '-', or a tenant as `ctl clients` shows it"
)
_TENANT: Final = re.compile(
    r"(?:pod:[0-9a-f-]{32,36}|container:[A-Za-z0-9._/-]{1,128}|process:[0-9]+:[0-9]+)"
)


def parse_pod(text: str) -> str | None:
    """A tenant as people write it, in the one form the core knows; None if it cannot be meant."""
    if _TENANT.fullmatch(text):
        return text
    namespace, slash, name = text.rpartition("/")
    namespace = namespace if slash else "default"
    return f"{namespace}/{name}" if _NAME.fullmatch(namespace) and _NAME.fullmatch(name) else None


class Tenancy:
    """Remembers what ``nvshare run`` has registered."""

    def __init__(self) -> None:
        self._runs: dict[Process, str] = {}

    def add_run(self, process: Process, pod: str) -> None:
        if len(self._runs) >= RUNS_MAX and process not in self._runs:
            raise ValueError(f"{RUNS_MAX} runs are registered already")
        self._runs[process] = pod

    def remove_run(self, process: Process) -> str | None:
        return self._runs.pop(process, None)

    def runs(self) -> dict[Process, str]:
        return dict(self._runs)

    def tenant_of(self, peer: Peer, said_namespace: str, said_name: str, trusted: bool) -> tuple[str, bool]:
        """The tenant, and whether what the peer said was passed over."""
        says = said_name not in _SAYS_NOTHING
        if peer.place.pod_uid:
            return f"pod:{peer.place.pod_uid}", says
        if self._runs:
            for process in ancestors(peer.process):
                pod = self._runs.get(process)
                if pod is not None:
                    return pod, says
        if peer.place.container:
            return f"container:{peer.place.container}", says
        if says and trusted:
            namespace = said_namespace if said_namespace not in _SAYS_NOTHING else "default"
            pod = parse_pod(f"{namespace}/{said_name}")
            if pod is not None:
                return pod, False
        return f"process:{peer.process.pid}:{peer.process.start_ticks}", says
