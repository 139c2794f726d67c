"""GPUs that are being drained: their processes stay, and no new process may come.

1. A process is new if it is not registered on that GPU in that pod, even if others of its pod are. So a
   process that is there may have a second client.
2. Processes that are there run on, and may resume on a new connection or after a restart of the daemon.
3. A drain lasts until it is ended, over restarts of the daemon, but not over a boot.
"""

from __future__ import annotations

from typing import Final

GPU_DRAINING: Final = "gpu_draining"
"""Why a new process is refused. Our library then waits at its gate and asks again."""


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
