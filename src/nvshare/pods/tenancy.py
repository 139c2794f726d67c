"""Which tenant a process belongs to.

In this order: the Kubernetes pod of its cgroup; the local pod of the nearest ``nvshare run`` that made a
cgroup around it or started an ancestor of it; its container; the pod it claims, if it is trusted. Any other
process is a tenant of its own.

A process below a user's ``nvshare run`` belongs to the pod only if it runs as that user: what has become
another user's, root's included, is no longer the first one's to limit. Below an operator's, everybody does.

A run whose process has ended is kept while any process of its pod is left, so that background processes of a
job stay in its pod.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from nvshare.pods.peer import Peer, Process, ancestors, run_cgroups_around
from nvshare.pods.tenant_name import DEFAULT_NAMESPACE, TenantName

RUNS_MAX: Final = 4096
_NO_CLAIM: Final = frozenset({"", "none"})


class Run(NamedTuple):
    """One ``nvshare run``."""

    pod: str
    cgroup: str = ""
    ended: bool = False
    operators: bool = False
    """An operator started it, and may have done so in a user's namespace."""

    def is_of(self, uid: int) -> bool:
        """This user started it."""
        return not self.operators and TenantName.of_key(self.pod).owner_uid == uid

    def takes(self, uid: int) -> bool:
        """A process of this user, below it, belongs to it."""
        return self.operators or TenantName.of_key(self.pod).owner_uid in (None, uid)


class Tenancy:
    """Remembers the runs that are registered."""

    def __init__(self, runs_max: int = RUNS_MAX) -> None:
        self._runs_max = runs_max
        self._runs: dict[Process, Run] = {}
        self._run_of_cgroup: dict[str, Run] = {}
        self._pods_with_ended: set[str] = set()

    def add_run(self, process: Process, run: Run) -> None:
        earlier = self._runs.get(process)
        if len(self._runs) >= self._runs_max and earlier is None:
            raise ValueError(f"{self._runs_max} runs are registered already")
        if earlier is not None:  # it takes part in one pod at a time
            self._pods_with_ended.add(earlier.pod)
            self._run_of_cgroup.pop(earlier.cgroup, None)
        if run.cgroup in self._run_of_cgroup:  # that of a run around this one, which has none
            run = run._replace(cgroup="")
        self._runs[process] = run
        if run.ended:
            self._pods_with_ended.add(run.pod)
        if run.cgroup:
            self._run_of_cgroup[run.cgroup] = run

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
            self._run_of_cgroup.pop(self._runs.pop(process).cgroup, None)
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
        run = self.run_around(peer)
        if run is not None:
            return TenantName.of_key(run.pod), claims
        if tenant is not None:
            return tenant, claims
        if claims and trusted:
            namespace = claimed_namespace if claimed_namespace not in _NO_CLAIM else DEFAULT_NAMESPACE
            claimed = TenantName.parse(f"{namespace}/{claimed_name}")
            if claimed is not None:
                return claimed, False
        return TenantName.of_process(*peer.process), claims

    def run_around(self, peer: Peer) -> Run | None:
        """The nearest run that a process belongs to."""
        around = next(
            (
                cgroup
                for cgroup in peer.run_cgroups
                if cgroup in self._run_of_cgroup and self._run_of_cgroup[cgroup].takes(peer.uid)
            ),
            "",
        )
        by_cgroup = self._run_of_cgroup.get(around)
        for process in ancestors(peer.process) if self._runs else ():
            run = self._runs.get(process)
            if run is not None and run.takes(peer.uid):
                # A run within the one that made the cgroup is in that cgroup, too.
                return run if by_cgroup is None or around in run_cgroups_around(process) else by_cgroup
        return by_cgroup
