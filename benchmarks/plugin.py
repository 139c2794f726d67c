"""The device plugin against its goals: ``python -m benchmarks.plugin``. It uses a double of the kubelet.

How long it takes to be registered from its start, its memory, how long a change of health takes to the
kubelet, and what a preferred allocation of 4 of 160 devices costs.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

from nvshare.plugin.devices import Devices, Gpu, Policy
from nvshare.pods.kubelet import device_plugin_pb2 as messages
from nvshare.pods.kubelet.interface import RESOURCE
from tests.exporters.node import free_port
from tests.plugin.harness import SLOTS, Node

TIMES: Final = 5
MEBI: Final = 1 << 20


def timed(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def memory_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    [resident] = [line.split()[1] for line in lines if line.startswith("VmRSS:")]
    return int(resident) * 1024


def starts_and_memory(metrics: str) -> tuple[list[float], int]:
    """Seconds to the first list of all devices; resident memory afterwards."""
    seconds, memory = [], 0
    for _ in range(TIMES):
        with (
            tempfile.TemporaryDirectory(prefix="nvp") as name,
            closing(
                Node(Path(name), metrics_enable=metrics, metrics_addr=f"127.0.0.1:{free_port()}")
            ) as node,
        ):
            node.kubelet.start()
            began = time.perf_counter()
            node.plugin.start()
            node.wait_healthy(2 * SLOTS)
            seconds.append(time.perf_counter() - began)
            if not memory:
                time.sleep(3)  # a few looks at all sources
                memory = memory_bytes(node.plugin.process.pid)
    return seconds, memory


def health_seconds() -> list[float]:
    """From a fault of a card, and from its end, until the kubelet has heard of it."""
    found = []
    with tempfile.TemporaryDirectory(prefix="nvp") as name, closing(Node(Path(name))) as node:
        node.kubelet.start()
        node.plugin.start()
        node.wait_healthy(2 * SLOTS)
        for number in range(2 * TIMES):
            node.cards.fault("back" if number % 2 else "lost", node.uuids()[0])
            expected = 2 * SLOTS if number % 2 else SLOTS
            found.append(timed(lambda count=expected: node.wait_healthy(count)))  # type: ignore[misc]
    return found


def choice_seconds() -> list[float]:
    """Of 4 devices on 16 GPUs of 10, a third of which are held: the decision alone."""
    devices = Devices(10)
    devices.looked([Gpu(f"GPU-{n:08}-0000-0000-0000-000000000000", n, "T4", 16 << 30) for n in range(16)])
    ids = [device.id for device in devices.devices()]
    held, available = set(ids[::3]), [one for number, one in enumerate(ids) if number % 3]
    return [timed(lambda: devices.preferred(available, [], 4, held, Policy.SPREAD)) for _ in range(1000)]


def asked_seconds() -> list[float]:
    """The same over gRPC, with the cards of a node."""
    with tempfile.TemporaryDirectory(prefix="nvp") as name, closing(Node(Path(name), cards="t4:16")) as node:
        node.kubelet.start()
        node.plugin.start()
        node.wait_healthy(16 * SLOTS)
        endpoint = node.kubelet.devices.resources[RESOURCE].endpoint
        assert endpoint is not None
        request = messages.PreferredAllocationRequest()
        available = sorted(node.kubelet.healthy())
        request.container_requests.add(available_deviceIDs=available, allocation_size=4)
        return [timed(lambda: endpoint.ask("GetPreferredAllocation", request)) for _ in range(200)]


def shown(what: str, goal: str, values: list[float], factor: float, unit: str) -> None:
    scaled = sorted(value * factor for value in values)
    p99 = scaled[int(0.99 * (len(scaled) - 1))]
    median = statistics.median(scaled)
    print(f"{what:<58} goal {goal:<8} median {median:8.2f} {unit}   p99 {p99:8.2f} {unit}")


def main() -> None:
    for metrics, words in (("0", "without metrics"), ("1", "with metrics")):
        seconds, memory = starts_and_memory(metrics)
        shown(f"start to registered with all devices, {words}", "1 s", seconds, 1, "s")
        shown(f"resident memory, {words}", "45 MiB", [float(memory)], 1 / MEBI, "MiB")
    shown("health of a card to ListAndWatch", "1 s", health_seconds(), 1, "s")
    shown("preferred allocation of 4 of 16 x 10, the decision", "5 ms", choice_seconds(), 1000, "ms")
    shown("preferred allocation of 4 of 16 x 10, over gRPC", "5 ms", asked_seconds(), 1000, "ms")


if __name__ == "__main__":
    main()
