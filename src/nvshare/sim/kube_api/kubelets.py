"""Ends pods that are to be deleted, as the kubelets of their nodes would."""

from __future__ import annotations

import asyncio
import contextlib

from nvshare.sim.kube_api.errors import ApiError
from nvshare.sim.kube_api.objects import TRUSTED, Objects
from nvshare.sim.kube_api.resources import PODS
from nvshare.sim.kube_api.store import Change, Key


class SimulatedKubelets:
    def __init__(self, objects: Objects, after_sec: float) -> None:
        self._objects = objects
        self._after_sec = after_sec

    def observe(self, change: Change) -> None:
        metadata = change.after.fields["metadata"]
        if (
            change.resource is PODS
            and change.kind != "DELETED"
            and metadata.get("deletionGracePeriodSeconds")
        ):
            delay = min(self._after_sec, metadata["deletionGracePeriodSeconds"])
            asyncio.get_running_loop().call_later(delay, self._end, change.key, metadata["uid"])

    def wake(self, *, bookmark: bool = False) -> None:
        """It waits for nothing."""

    def _end(self, key: Key, uid: str) -> None:
        with contextlib.suppress(ApiError):  # gone already, or another pod of that name
            self._objects.delete(PODS, key, TRUSTED, grace_sec=0, preconditions={"uid": uid})
