"""The GPUs of each pod. All GPUs of a node share this book."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nvshare.core.gpu import Gpu


class PodGpus:
    __slots__ = ("_gpus", "_working")

    def __init__(self) -> None:
        self._gpus: dict[str, dict[Gpu, None]] = {}  # by pod: GPUs on which it is a tenant
        self._working: dict[str, int] = {}  # by pod: on how many of them it has processes

    def come(self, pod: str, gpu: Gpu) -> None:
        self._gpus.setdefault(pod, {})[gpu] = None

    def go(self, pod: str, gpu: Gpu) -> None:
        here = self._gpus[pod]
        del here[gpu]
        if not here:
            del self._gpus[pod]

    def gpus_of(self, pod: str) -> list[Gpu]:
        return list(self._gpus.get(pod, ()))

    def first_process(self, pod: str) -> None:
        """The pod now has a process on one more GPU."""
        self._working[pod] = self._working.get(pod, 0) + 1

    def last_process(self, pod: str) -> None:
        """The pod has no process any more on one of its GPUs."""
        left = self._working[pod] - 1
        if left:
            self._working[pod] = left
        else:
            del self._working[pod]

    def spans_gpus(self, pod: str) -> bool:
        return self._working.get(pod, 0) > 1
