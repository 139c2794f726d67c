"""Runs: what ``nvshare run`` has started, while any process of its pod lives.

A pod's limits end with its last run and its last process, so the background processes of a job keep them:
those that use a GPU, and where the run has a cgroup, all.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from nvshare.core.limit_sources import OWNER_SOURCES
from nvshare.node.dispatcher import Dispatcher
from nvshare.pods.cgroup_mounts import is_populated
from nvshare.pods.peer import Process, open_process
from nvshare.pods.tenancy import Run, Tenancy
from nvshare.runtime import logs

USER_SOURCES: Final = ("user", *OWNER_SOURCES)
"""Sources of limits that end with the pod's last run and last process."""
LEFTOVERS_CHECKED_SEC: Final = 5.0


class Runs:
    def __init__(
        self,
        dispatcher: Dispatcher,
        tenancy: Tenancy,
        is_used: Callable[[str], bool],
        withdraw: Callable[[str, tuple[str, ...]], None],
    ) -> None:
        """``is_used``: whether a pod has processes. ``withdraw`` takes back what sources state for it."""
        self._dispatcher = dispatcher
        self._tenancy = tenancy
        self._is_used = is_used
        self._withdraw = withdraw
        self._checked_again: set[str] = set()  # pods with a timer

    def add(self, process: Process, run: Run) -> bool:
        """Register a run; False if its process is dead already.

        A process that registers again, as a run within a run does, leaves its earlier pod.
        """
        earlier = self._tenancy.run_of(process)
        watched = earlier is not None and not earlier.ended
        pidfd = None if watched else open_process(process)
        if pidfd is None and not watched:
            return False
        try:
            self._tenancy.add_run(process, run)
        except ValueError:
            if pidfd is not None:
                os.close(pidfd)
            raise
        if pidfd is not None:
            self._dispatcher.loop.add_reader(pidfd, self._ended, process, pidfd)
        self._dispatcher.changed = True
        if earlier is not None and earlier.pod != run.pod:
            self._forget(earlier.pod)
        return True

    def restore(self, process: Process, run: Run) -> None:
        """A run of the previous daemon, which may have ended since."""
        try:
            ended = run.ended or not self.add(process, run)
        except OSError as error:  # it cannot be watched, so it counts while a process of its pod is here
            logs.warning("a run of the previous daemon cannot be watched", pod=run.pod, why=error)
            ended = True
        if ended:
            self._tenancy.add_run(process, run._replace(ended=True))
            self._forget(run.pod)

    def forget_soon(self, pod: str) -> None:
        """After this callback: a client that leaves may be about to register afresh."""
        self._dispatcher.loop.call_soon(self._forget, pod)

    def _check_again(self, pod: str) -> None:
        if pod not in self._checked_again:
            self._checked_again.add(pod)
            self._dispatcher.loop.call_later(LEFTOVERS_CHECKED_SEC, self._check, pod)

    def _check(self, pod: str) -> None:
        self._checked_again.discard(pod)
        self._forget(pod)

    def _ended(self, process: Process, pidfd: int) -> None:
        self._dispatcher.loop.remove_reader(pidfd)
        os.close(pidfd)
        run = self._tenancy.end_run(process)
        self._dispatcher.changed = True
        if run is not None:
            self._forget(run.pod)

    def _forget(self, pod: str) -> None:
        if self._is_used(pod):
            return
        if any(map(is_populated, self._tenancy.cgroups_of_ended(pod))):
            # The job left processes that have not used a GPU yet. They belong to its pod all the same.
            self._check_again(pod)
        elif self._tenancy.forget_ended(pod):
            self._dispatcher.changed = True
            self._withdraw(pod, ("run", *USER_SOURCES))
