"""Which tenant a process belongs to.

In this order: the Kubernetes pod of its cgroup; the local pod whose ``nvshare run`` made a cgroup around it;
the local pod in which ``nvshare run`` started an ancestor; its container; the pod it claims, if it is
trusted. Any other process is a tenant of its own.

A process below a user's ``nvshare run`` belongs to the pod only while it runs as that user or as root.

A run whose process has ended is kept while any process of its pod is left, so that background processes of a
job stay in its pod.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from nvshare.pods.peer import Peer, Process, ancestors
from nvshare.pods.tenant_name import DEFAULT_NAMESPACE, TenantName

RUNS_MAX: Final = 4096
_NO_CLAIM: Final = frozenset({"", "none"})


class Run(NamedTuple):
    """One ``nvshare run``."""

    pod: str
    cgroup: str = ""
    ended: bool = False


class Tenancy:
    """Remembers the runs that are registered."""

    def __init__(self, runs_max: int = RUNS_MAX) -> None:
        self._runs_max = runs_max
        self._runs: dict[Process, Run] = {}
        self._pod_of_cgroup: dict[str, str] = {}
        self._pods_with_ended: set[str] = set()

    def add_run(self, process: Process, run: Run) -> None:
        earlier = self._runs.get(process)
        if len(self._runs) >= self._runs_max and earlier is None:
            raise ValueError(f"{self._runs_max} runs are registered already")
        if earlier is not None:  # it takes part in one pod at a time
            self._pods_with_ended.add(earlier.pod)
            self._pod_of_cgroup.pop(earlier.cgroup, None)
        self._runs[process] = run
        if run.ended:
            self._pods_with_ended.add(run.pod)
        if run.cgroup:
            self._pod_of_cgroup[run.cgroup] = run.pod

    def end_run(self, process: Process) -> Run | None:
        """Its process has ended; None if it was not registered."""
        run = self._runs.get(process)
        if run is None:
            return None
        self._pods_with_ended.add(run.pod)
        self._runs[process] = run._replace(ended=True)
        return run

    def forget_ended(self, pod: str) -> bool:
        """No process of the pod is left, so its ended runs are over. True if it has no other runs."""
        if pod not in self._pods_with_ended:
            return False
        self._pods_with_ended.discard(pod)
        for process in [process for process, run in self._runs.items() if run.pod == pod and run.ended]:
            self._pod_of_cgroup.pop(self._runs.pop(process).cgroup, None)
        return not any(run.pod == pod for run in self._runs.values())

    def cgroups_of_ended(self, pod: str) -> list[str]:
        """The cgroups of its runs whose process has ended."""
        if pod not in self._pods_with_ended:
            return []
        runs = self._runs.values()
        return [run.cgroup for run in runs if run.pod == pod and run.ended and run.cgroup]

    def run_of(self, process: Process) -> Run | None:
        return self._runs.get(process)

    def runs(self) -> dict[Process, Run]:
        return dict(self._runs)

    def __len__(self) -> int:
        """How many runs are registered."""
        return len(self._runs)

    def has_run(self, pod: str) -> bool:
        """A run of the pod lives, or has left processes behind."""
        return any(run.pod == pod for run in self._runs.values())

    def runs_of(self, uid: int) -> int:
        return sum(TenantName.of_key(run.pod).owner_uid == uid for run in self._runs.values())

    def tenant_of(
        self, peer: Peer, claimed_namespace: str, claimed_name: str, trusted: bool
    ) -> tuple[TenantName, bool]:
        """The tenant, and whether a name that the peer claimed was ignored."""
        claims = claimed_name not in _NO_CLAIM
        tenant = TenantName.of_place(peer.place)
        if tenant is not None and peer.place.pod_uid:
            return tenant, claims
        pod = self._run_pod_of(peer)
        if pod is not None:
            return TenantName.of_key(pod), claims
        if tenant is not None:
            return tenant, claims
        if claims and trusted:
            namespace = claimed_namespace if claimed_namespace not in _NO_CLAIM else DEFAULT_NAMESPACE
            claimed = TenantName.parse(f"{namespace}/{claimed_name}")
            if claimed is not None:
                return claimed, False
        return TenantName.of_process(*peer.process), claims

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
    """A process of this user belongs to the pod; -1: the user is not known."""
    owner = TenantName.of_key(pod).owner_uid
    return owner is None or uid in (owner, 0, -1)
