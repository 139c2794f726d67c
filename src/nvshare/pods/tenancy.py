"""Which tenant a process belongs to.

In this order: the pod its cgroup tells; the pod that ``nvshare run`` made a cgroup around it for; the pod an
ancestor was started in by ``nvshare run``; its container; what it says, if it is trusted to say it; else the
process is a tenant of its own.

What a user's ``nvshare run`` started is his pod's only while it runs as that user, or as root: who becomes
another user below it does not join his pod.

A run whose process has ended is kept as long as something of its pod is left, so that what a job leaves
behind stays what it was.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from nvshare.pods.owners import owner_of
from nvshare.pods.peer import Peer, Process, ancestors

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


class Run(NamedTuple):
    """What one ``nvshare run`` registered."""

    pod: str
    cgroup: str = ""
    ended: bool = False


class Tenancy:
    """Remembers what ``nvshare run`` has registered."""

    def __init__(self) -> None:
        self._runs: dict[Process, Run] = {}
        self._pod_of_cgroup: dict[str, str] = {}
        self._pods_with_ended: set[str] = set()

    def add_run(self, process: Process, run: Run) -> None:
        if len(self._runs) >= RUNS_MAX and process not in self._runs:
            raise ValueError(f"{RUNS_MAX} runs are registered already")
        self._runs[process] = run
        if run.ended:
            self._pods_with_ended.add(run.pod)
        if run.cgroup:
            self._pod_of_cgroup[run.cgroup] = run.pod

    def end_run(self, process: Process) -> Run | None:
        """Its process is gone; None if it was not known."""
        run = self._runs.get(process)
        if run is None:
            return None
        self._pods_with_ended.add(run.pod)
        self._runs[process] = run._replace(ended=True)
        return run

    def forget_ended(self, pod: str) -> bool:
        """Nothing of the pod is left: its ended runs are over. True if that was the last of its runs."""
        if pod not in self._pods_with_ended:
            return False
        self._pods_with_ended.discard(pod)
        for process in [process for process, run in self._runs.items() if run.pod == pod and run.ended]:
            self._pod_of_cgroup.pop(self._runs.pop(process).cgroup, None)
        return not any(run.pod == pod for run in self._runs.values())

    def runs(self) -> dict[Process, Run]:
        return dict(self._runs)

    def has_run(self, pod: str) -> bool:
        """One that lives, or has left something of the pod."""
        return any(run.pod == pod for run in self._runs.values())

    def runs_of(self, uid: int) -> int:
        return sum(owner_of(run.pod) == uid for run in self._runs.values())

    def tenant_of(self, peer: Peer, said_namespace: str, said_name: str, trusted: bool) -> tuple[str, bool]:
        """The tenant, and whether what the peer said was passed over."""
        says = said_name not in _SAYS_NOTHING
        if peer.place.pod_uid:
            return f"pod:{peer.place.pod_uid}", says
        pod = self._run_pod_of(peer)
        if pod is not None:
            return pod, says
        if peer.place.container:
            return f"container:{peer.place.container}", says
        if says and trusted:
            namespace = said_namespace if said_namespace not in _SAYS_NOTHING else "default"
            said_pod = parse_pod(f"{namespace}/{said_name}")
            if said_pod is not None:
                return said_pod, False
        return f"process:{peer.process.pid}:{peer.process.start_ticks}", says

    def _run_pod_of(self, peer: Peer) -> str | None:
        for cgroup in peer.run_cgroups:
            if cgroup in self._pod_of_cgroup:
                return self._pod_of_cgroup[cgroup]
        for process in ancestors(peer.process) if self._runs else ():
            run = self._runs.get(process)
            if run is not None and _may_join(peer.uid, run.pod):
                return run.pod
        return None


def _may_join(uid: int, pod: str) -> bool:
    """-1: nobody asks, it is only looked at."""
    owner = owner_of(pod)
    return owner is None or uid in (owner, 0, -1)
