"""Keeps the plugin registered with the kubelet, whatever happens to either.

1. Every LOOK_SEC: is the kubelet's socket the one we registered at, is ours still under its name, and does
   the kubelet listen to our devices? If not, we serve and register anew. So a kubelet that restarts (and
   empties the directory), a socket that is deleted or replaced, and a stream that ends are one case.
2. A registration that fails is repeated after a pause, which grows up to PAUSE_MOST_SEC.
3. Nothing is registered before there is a GPU: the kubelet would show a resource of which there is none.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from nvshare.plugin.server import Answers, PluginSocket, options
from nvshare.pods.kubelet import device_plugin_pb2 as messages
from nvshare.pods.kubelet.interface import (
    KUBELET_SOCKET,
    PLUGIN_DIR,
    REGISTRATION,
    RESOURCE,
    VERSION,
    CallError,
    ask,
)
from nvshare.runtime import logs

ENDPOINT: Final = "nvshare.sock"
LOOK_SEC: Final = 0.25
ANSWER_SEC: Final = 2.0
STREAM_WAIT_SEC: Final = 2.0
"""After it has accepted us the kubelet connects, and asks for our devices."""
_PAUSE_LEAST_SEC: Final = 0.1
_PAUSE_MOST_SEC: Final = 1.6


class _Mark(NamedTuple):
    """Of a socket: another one under the same name differs."""

    device: int
    inode: int
    changed_ns: int


def _mark(path: Path) -> _Mark | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return _Mark(status.st_dev, status.st_ino, status.st_ctime_ns)


class Registrar:
    def __init__(self, kubelet_dir: Path, answers: Answers, has_gpus: Callable[[], bool]) -> None:
        self._directory = kubelet_dir / PLUGIN_DIR
        self._kubelet = self._directory / KUBELET_SOCKET
        self._answers = answers
        self._has_gpus = has_gpus
        self._socket = PluginSocket(self._directory / ENDPOINT, answers)
        self._at: _Mark | None = None  # the kubelet's socket that we are registered at
        self._since = 0.0
        self._problem = ""
        self.results: Counter[str] = Counter({"ok": 0, "failed": 0})

    def unready(self) -> str:
        """Why the kubelet does not use us; empty if it does."""
        if not self._has_gpus():
            return "there is no GPU to offer"
        return self._problem or ("" if self._at else "not registered with the kubelet yet")

    async def run(self) -> None:
        pause_sec = _PAUSE_LEAST_SEC
        try:
            while True:
                if not self._has_gpus() or self._is_registered():
                    await asyncio.sleep(LOOK_SEC)
                    continue
                if await self._register():
                    pause_sec = _PAUSE_LEAST_SEC
                    continue
                await asyncio.sleep(pause_sec)
                pause_sec = min(_PAUSE_MOST_SEC, 2 * pause_sec)
        finally:
            self._socket.close()

    def _is_registered(self) -> bool:
        if self._at is None or _mark(self._kubelet) != self._at or not self._socket.is_there():
            return False
        if self._answers.streams:
            self._since = time.monotonic()
        return time.monotonic() - self._since < STREAM_WAIT_SEC

    async def _register(self) -> bool:
        self._at = None
        found = _mark(self._kubelet)
        if found is None:
            return self._failed(f"{self._kubelet} is not there; is the kubelet running?")
        try:
            if not self._socket.is_there():
                await self._socket.open()
            await self._ask()
        except (CallError, OSError) as error:
            return self._failed(str(error))
        self._at, self._since, self._problem = found, time.monotonic(), ""
        self.results["ok"] += 1
        logs.info("registered with the kubelet", resource=RESOURCE, endpoint=ENDPOINT)
        return True

    async def _ask(self) -> None:
        request = messages.RegisterRequest(
            version=VERSION, endpoint=ENDPOINT, resource_name=RESOURCE, options=options()
        )
        await ask(self._kubelet, REGISTRATION, "Register", request, ANSWER_SEC)

    def _failed(self, why: str) -> bool:
        self.results["failed"] += 1
        if why != self._problem:
            logs.warning("not registered with the kubelet; it is tried again", why=why)
        self._problem = why
        return False
