"""Tenants that behave, beside those that do not."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from nvshare.client import Client
from tests.node.harness import PATIENCE_SEC, DaemonProcess, gpu_key


@contextmanager
def always_busy(daemon: DaemonProcess, pod: str) -> Iterator[None]:
    """A thread that has work for the GPU whenever it may."""
    ended = threading.Event()
    namespace, name = pod.split("/")

    def work(client: Client) -> None:
        while not ended.is_set():
            with client.gpu():
                time.sleep(0.002)  # the kernel

    with Client(gpu_key(), sock_dir=str(daemon.sock_dir), pod=name, namespace=namespace) as client:
        assert client.wait_ready(PATIENCE_SEC)
        thread = threading.Thread(target=work, args=(client,))
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
