"""Which GPUs the kubelet has given to which pods: its pod-resources service.

It needs the extra `k8s`. Without that, or without the kubelet's socket, a pod is shown from its first
process on.
"""

from __future__ import annotations

import asyncio
import importlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from nvshare.runtime import logs

ANSWER_SEC: Final = 5.0
_UUID: Final = r"(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
GPU_ID: Final = re.compile(rf"(?P<uuid>{_UUID})(?:::?[^/]*)?", re.ASCII)
"""Plugins that share a GPU put the number of the part behind the UUID."""
Key = tuple[str, str]  # namespace, pod


def allocated_gpus(pods: Iterable[Any]) -> dict[Key, frozenset[str]]:
    """``pods``: messages of type PodResources."""
    found: dict[Key, frozenset[str]] = {}
    for pod in pods:
        names = (name for one in pod.containers for held in one.devices for name in held.device_ids)
        uuids = frozenset(match["uuid"] for match in map(GPU_ID.match, names) if match)
        if uuids:
            found[pod.namespace, pod.name] = uuids
    return found


class AllocatedGpus:
    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._up = True
        self.by_pod: Mapping[Key, frozenset[str]] = {}

    async def refresh(self) -> None:
        """What was said last stays while the kubelet does not answer."""
        try:
            interface: Any = importlib.import_module("nvshare.pods.kubelet.interface")
            messages: Any = importlib.import_module("nvshare.pods.kubelet.pod_resources_pb2")
            request = messages.ListPodResourcesRequest()
            service = interface.POD_RESOURCES
            async with asyncio.timeout(2 * ANSWER_SEC):
                answer = await interface.ask(self._socket, service, "List", request, ANSWER_SEC)
            self.by_pod = allocated_gpus(answer.pod_resources)
            self._note(True, "")
        except ImportError as error:
            self._note(False, f"the extra k8s is not installed: {error}")
        except Exception as error:  # the call's own kind of error is in the extra
            self._note(False, str(error) or repr(error))

    def _note(self, up: bool, why: str) -> None:
        if up != self._up:
            if up:
                logs.info("the kubelet says which GPUs pods have")
            else:
                logs.warning("pods are shown from their first process on", socket=self._socket, why=why)
        self._up = up
