"""A program that always has work for a simulated GPU and asks the daemon before each piece.

Arguments: pod, socket directory, GPU, size of the matrices. Works until its input ends; what it used is
in the driver's own books.
"""

from __future__ import annotations

import importlib
import sys
import threading

from nvshare.client import Client

ADDITIONS = 10
"""Queued before one wait, as programs do; so the card does not idle while this process waits for a core."""


def main() -> None:
    pod, sock_dir, gpu, size = sys.argv[1:]
    adder = importlib.import_module("nvshare.workloads.with_driver").DriverGpu().adder(int(size))
    ended = threading.Event()

    def until_told() -> None:
        sys.stdin.read()
        ended.set()

    with Client(gpu, sock_dir=sock_dir, pod=pod) as client:
        assert client.wait_ready(60)
        print("ready", flush=True)
        sys.stdin.readline()
        threading.Thread(target=until_told, daemon=True).start()
        while not ended.is_set():
            with client.gpu():
                for _ in range(ADDITIONS):
                    adder.add()
                adder.synchronize()


if __name__ == "__main__":
    main()
