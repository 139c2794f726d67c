"""W2 as a pod of a simulated node: the Python client stands where the library in the program will be.

Arguments: pod, socket directory, GPU, size of the matrices. Prints ``ready`` when it is registered and has
its memory, then runs W2 until its input ends, then prints ``done``.
"""

from __future__ import annotations

import sys
import threading

from nvshare.client import Client
from nvshare.workloads.gpu import Adder
from nvshare.workloads.run import Options, w2
from nvshare.workloads.with_driver import DriverGpu

MATRICES = 4
FLOAT_BYTES = 4
ADDITIONS_PER_ENTRY = 10
"""Queued before one wait, as programs do; so the card does not idle while this process waits for a core."""


class Gated:
    """Additions that ask the daemon before each batch."""

    def __init__(self, adder: Adder, client: Client, ended: threading.Event) -> None:
        self._adder = adder
        self._client = client
        self._ended = ended

    def add(self) -> None:
        if self._ended.is_set():
            raise EndOfWork
        with self._client.gpu():
            for _ in range(ADDITIONS_PER_ENTRY):
                self._adder.add()
            self._adder.synchronize()

    def __getattr__(self, name: str) -> object:
        return getattr(self._adder, name)


class EndOfWork(Exception):  # noqa: N818 - how it is meant to end
    """The test has seen enough."""


class GatedGpu:
    def __init__(self, gpu: DriverGpu, client: Client, ended: threading.Event) -> None:
        self._gpu = gpu
        self._client = client
        self._ended = ended

    def adder(self, n: int) -> Gated:
        if not self._client.reserve(MATRICES * n * n * FLOAT_BYTES):
            raise MemoryError("the pod may not have so much")
        adder = Gated(self._gpu.adder(n), self._client, self._ended)
        print("ready", flush=True)
        sys.stdin.readline()
        threading.Thread(target=self._until_told, daemon=True).start()
        return adder

    def _until_told(self) -> None:
        sys.stdin.read()
        self._ended.set()


def main() -> None:
    pod, sock_dir, gpu, size = sys.argv[1:]
    with Client(gpu, sock_dir=sock_dir, pod=pod) as client:
        assert client.wait_ready(60)
        try:
            w2(GatedGpu(DriverGpu(), client, threading.Event()), Options(size=int(size), iterations=10**9))  # type: ignore[arg-type]
        except EndOfWork:
            print("done", flush=True)


if __name__ == "__main__":
    main()
