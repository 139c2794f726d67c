"""The node's annotation nvshare.com/node-gpus: which GPUs it shares, and which pods hold how many devices of
each.

1. It is JSON, a list with one object for each GPU, in the order of their indices.
2. It is written only when it says something new, and again after a failure, with growing pauses.
3. Annotations of a node are 256 KiB in all. One that would take too much names no pods.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote

import msgspec

from nvshare.plugin.devices import Gpu
from nvshare.pods.kubernetes.api_client import ApiClient, ApiError
from nvshare.pods.kubernetes.credentials import Credentials
from nvshare.pods.kubernetes.list_watch import Timing
from nvshare.runtime import logs

ANNOTATION: Final = "nvshare.com/node-gpus"
BYTES_MAX: Final = 128 << 10
_PAUSE_LEAST_SEC: Final = 0.5
_PAUSE_MOST_SEC: Final = 60.0


def annotation_text(
    gpus: Iterable[Gpu],
    slots: int,
    faults: Mapping[str, Iterable[str]],
    held: Mapping[str, Mapping[str, int]],
) -> str:
    """``held``: devices by GPU and pod, which is written namespace/name."""
    rows: list[dict[str, Any]] = [
        {
            "uuid": gpu.uuid,
            "index": gpu.index,
            "type": gpu.name,
            "memory": gpu.memory_bytes,
            "slots": slots,
            "unhealthy": list(map(str, faults.get(gpu.uuid, ()))),
            "allocations": dict(sorted(held.get(gpu.uuid, {}).items())),
        }
        for gpu in gpus
    ]
    text = msgspec.json.encode(rows).decode()
    if len(text.encode()) > BYTES_MAX:
        for row in rows:
            row["allocated"] = sum(row.pop("allocations").values())
        text = msgspec.json.encode(rows).decode()
    return text


class NodeAnnotation:
    """Writes it, from the event loop, by a thread that waits for the answers."""

    def __init__(self, credentials: Credentials, node: str) -> None:
        self._client = ApiClient(credentials, Timing())
        self._path = f"/api/v1/nodes/{quote(node, safe='')}?fieldManager=nvshare-device-plugin"
        self._wanted = ""
        self._written = ""
        self._changed = asyncio.Event()
        self.results: Counter[str] = Counter({"ok": 0, "failed": 0})
        self.up = True

    def want(self, text: str) -> None:
        if text != self._wanted:
            self._wanted = text
            self._changed.set()

    async def run(self, sleep: Callable[[float], Any] = asyncio.sleep) -> None:
        pause_sec = _PAUSE_LEAST_SEC
        while True:
            await self._changed.wait()
            self._changed.clear()
            if self._wanted == self._written:
                continue
            if await self._write(self._wanted):
                pause_sec = _PAUSE_LEAST_SEC
                continue
            await sleep(pause_sec)
            pause_sec = min(_PAUSE_MOST_SEC, 2 * pause_sec)
            self._changed.set()

    async def _write(self, text: str) -> bool:
        try:
            await asyncio.to_thread(self._patch, text)
        except ApiError as error:
            self.results["failed"] += 1
            if self.up:
                logs.warning("node annotation not written; it is tried again", why=error)
            self.up = False
            return False
        self.results["ok"] += 1
        if not self.up:
            logs.info("node annotation written again")
        self.up = True
        self._written = text
        return True

    def _patch(self, text: str) -> None:
        body = msgspec.json.encode({"metadata": {"annotations": {ANNOTATION: text}}})
        self._client.merge_patch(self._path, body)
        self._client.close()  # the next change may be hours away
