"""Which devices the kubelet's pods hold, asked for every few seconds.

1. What it said last stays in force while it does not answer.
2. A device of another plugin with the id of one of our GPUs means that the whole GPU is given away.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from nvshare.plugin.devices import uuid_of
from nvshare.pods.kubelet import pod_resources_pb2
from nvshare.pods.kubelet.interface import POD_RESOURCES, POD_RESOURCES_SOCKET, RESOURCE, CallError, ask
from nvshare.runtime import logs

EVERY_SEC: Final = 2.0
ANSWER_SEC: Final = 5.0
_REPLICA: Final = "::"
"""NVIDIA's plugin appends this and a number to the UUID of a GPU that it shares by time slices."""


class Holdings(NamedTuple):
    """What pods hold; a pod is written namespace/name."""

    devices: frozenset[str] = frozenset()
    """Ours."""
    by_gpu: Mapping[str, Mapping[str, int]] = {}
    """How many of our devices each pod holds, by the UUID of the GPU."""
    whole: Mapping[str, str] = {}
    """GPUs that other plugins have given away, and to which pod."""


def holdings(pods: Any) -> Holdings:
    """``pods``: messages of type PodResources."""
    devices: set[str] = set()
    by_gpu: defaultdict[str, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
    whole: dict[str, str] = {}
    for pod in pods:
        name = f"{pod.namespace}/{pod.name}"
        for container in pod.containers:
            for held in container.devices:
                for device in held.device_ids:
                    if held.resource_name == RESOURCE:
                        devices.add(device)
                        by_gpu[uuid_of(device)][name] += 1
                    else:
                        whole[device.partition(_REPLICA)[0]] = f"{name} by {held.resource_name}"
    return Holdings(frozenset(devices), {uuid: dict(pods) for uuid, pods in by_gpu.items()}, whole)


class PodResources:
    def __init__(self, kubelet_dir: Path, changed: Callable[[Holdings], None]) -> None:
        """``changed`` is called when pods hold something else than before, and once at the beginning."""
        self._path = kubelet_dir / POD_RESOURCES_SOCKET
        self._changed = changed
        self.holdings = Holdings()
        self.up: bool | None = None
        self._asked = asyncio.Event()

    def ask_soon(self) -> None:
        """Something was just allocated."""
        self._asked.set()

    async def run(self) -> None:
        while True:
            await self._look()
            try:
                await asyncio.wait_for(self._asked.wait(), EVERY_SEC)
                self._asked.clear()
                await asyncio.sleep(EVERY_SEC / 4)  # an allocation is shown when its pod has been admitted
            except TimeoutError:
                pass

    async def _look(self) -> None:
        first = self.up is None
        found = self.holdings
        try:
            found = await self._list()
            self._note(True)
        except CallError as error:
            self._note(False, str(error))
        if first or found != self.holdings:
            self.holdings = found
            self._changed(found)

    async def _list(self) -> Holdings:
        request = pod_resources_pb2.ListPodResourcesRequest()
        answer = await ask(self._path, POD_RESOURCES, "List", request, ANSWER_SEC)
        return holdings(answer.pod_resources)

    def _note(self, up: bool, why: str = "") -> None:
        if up is not self.up:
            if not up:
                logs.warning("the kubelet does not say which devices pods hold", socket=self._path, why=why)
            elif self.up is False:
                logs.info("the kubelet says again which devices pods hold")
        self.up = up
