"""GPUs that are being drained: whoever is there stays, and nobody new may come.

1. A process is new if it is not registered on that GPU in that pod, whatever else its pod has there. So
   one that is there may have a second client.
2. Who is there goes on, and may resume on a new connection or after a restart of the daemon.
3. It lasts until it is taken back, over restarts of the daemon, until the machine is booted again.
"""

from __future__ import annotations

from typing import Final

GPU_DRAINING: Final = "gpu_draining"
"""Why a newcomer is refused. Our library then waits at its gate and asks again."""


class Drains:
    def __init__(self) -> None:
        self._gpus: dict[str, None] = {}  # by key, in the order in which they were drained

    def __contains__(self, gpu: str) -> bool:
        return gpu in self._gpus

    def all(self) -> tuple[str, ...]:
        return tuple(self._gpus)

    def begin(self, gpu: str) -> None:
        self._gpus[gpu] = None

    def end(self, gpu: str) -> None:
        self._gpus.pop(gpu, None)
