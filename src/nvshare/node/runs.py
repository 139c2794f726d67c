"""Runs: what ``nvshare run`` has started, while any process of its pod lives.

A pod's limits end with its last run and its last process, so the background processes of a job keep them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from nvshare.core.limits import OF_OWNER
from nvshare.node.dispatcher import Dispatcher
from nvshare.pods.peer import Process, open_process
from nvshare.pods.tenancy import Run, Tenancy
from nvshare.runtime import logs

USER_SOURCES: Final = ("user", *OF_OWNER)
"""Sources of limits that end with the pod's last run and last process."""


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

    def add(self, process: Process, run: Run) -> bool:
        """Register a run; False if its process is dead already."""
        pidfd = open_process(process)
        if pidfd is None:
            return False
        try:
            self._tenancy.add_run(process, run)
        except ValueError:
            os.close(pidfd)
            raise
        self._dispatcher.loop.add_reader(pidfd, self._ended, process, pidfd)
        self._dispatcher.changed = True
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

    def _ended(self, process: Process, pidfd: int) -> None:
        self._dispatcher.loop.remove_reader(pidfd)
        os.close(pidfd)
        run = self._tenancy.end_run(process)
        self._dispatcher.changed = True
        if run is not None:
            self._forget(run.pod)

    def _forget(self, pod: str) -> None:
        if not self._is_used(pod) and self._tenancy.forget_ended(pod):
            self._dispatcher.changed = True
            self._withdraw(pod, ("run", *USER_SOURCES))
