"""The double's side of a registered plugin: a connection, and a thread that receives its list of devices."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import grpc

from nvshare.pods.kubelet import device_plugin_pb2 as messages
from nvshare.pods.kubelet.interface import DEVICE_PLUGIN
from nvshare.sim.kubelet.services import OPTIONS, address, call

ANSWER_SEC: Final = 30.0


class Endpoint:
    """``listed`` and ``ended`` are called in the thread."""

    def __init__(
        self,
        path: Path,
        options: messages.DevicePluginOptions,
        listed: Callable[[Endpoint, Sequence[messages.Device]], None],
        ended: Callable[[Endpoint], None],
    ) -> None:
        self.options = options
        self.stopped = False
        self._channel: Any = grpc.insecure_channel(address(path), options=OPTIONS)
        self._listed, self._ended = listed, ended
        self._stream: Any = None
        self._thread = threading.Thread(target=self._run, name="list-and-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        try:
            self._stream = call(self._channel, DEVICE_PLUGIN, "ListAndWatch")(messages.Empty())
            for answer in self._stream:
                self._listed(self, answer.devices)
        except (grpc.RpcError, ValueError):  # ValueError: the channel was closed before it began
            pass
        self.stopped = True
        self._ended(self)

    def ask(self, name: str, request: Any) -> Any:
        """Raises grpc.RpcError."""
        return call(self._channel, DEVICE_PLUGIN, name)(request, timeout=ANSWER_SEC)

    def close(self) -> None:
        self.stopped = True
        if self._stream is not None:
            self._stream.cancel()
        self._channel.close()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()
