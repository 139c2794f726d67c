"""What the cluster exporter costs: loading a cluster, watch events, scrapes, memory.

Objects are made here, 8 kB each as in real clusters, and go the way that the API server's answers go: bytes
to objects to sums. Each size runs in a process of its own, so that memory is its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.scrape import judge
from nvshare.exporters.cluster import EXPORTERS
from nvshare.exporters.cluster.allocations import Allocations
from nvshare.exporters.cluster.service import listings_of
from nvshare.exporters.cluster.view import View
from nvshare.exporters.executor import Executor
from nvshare.hami.allocation import PodDevice, format_allocation
from nvshare.hami.node_devices import NodeDevice, format_json
from nvshare.metrics.cluster.daemon import EXECUTOR_FAMILIES
from nvshare.metrics.hami_names import CURRENT, SEED, NameChoice
from nvshare.pods.kubernetes.objects import WatchEvent
from nvshare.pods.kubernetes.reflection import Changed, Listed, SourceFigures
from nvshare.pods.kubernetes.whole_objects import ClusterNode, ClusterPod

GPUS: Final = 8
OBJECT_BYTES: Final = 8000
PAGE: Final = 500
LOAD_MOST_SEC: Final = {1000: 0.6, 5000: 3.0}
EVENTS_LEAST: Final = 30_000
RSS_MOST_MIB: Final = 350.0
SCRAPES: Final = 3
EVENTS: Final = 30_000


def uuid_of(node: int, gpu: int) -> str:
    return f"GPU-{node:08x}-0000-4000-8000-{gpu:012x}"


def node_bytes(number: int) -> bytes:
    devices = [
        NodeDevice(uuid_of(number, gpu), 10, 81920, 100, "NVIDIA A100-SXM4-80GB", 0, True, gpu)
        for gpu in range(GPUS)
    ]
    annotations = {"hami.io/node-nvidia-register": format_json(devices)}
    return _padded({"metadata": {"name": f"node-{number}", "annotations": annotations}, "status": {}})


def pod_bytes(number: int, nodes: int, chance: random.Random) -> bytes:
    node = number % nodes
    devices = [PodDevice(uuid_of(node, chance.randrange(GPUS)), "NVIDIA", 4096, 10)]
    annotations = {
        "hami.io/vgpu-node": f"node-{node}",
        "hami.io/vgpu-devices-allocated": format_allocation([devices]),
    }
    meta = {"name": f"pod-{number}", "namespace": f"team-{number % 50}", "annotations": annotations}
    spec = {"nodeName": f"node-{node}", "containers": [{"name": "main"}]}
    return _padded({"metadata": meta, "spec": spec, "status": {"phase": "Running"}})


def _padded(made: dict[str, Any]) -> bytes:
    made["metadata"]["resourceVersion"] = "1"
    missing = OBJECT_BYTES - len(json.dumps(made))
    made["metadata"]["managedFields"] = [{"f:x": "y" * 64} for _ in range(max(0, missing) // 76)]
    return json.dumps(made, separators=(",", ":")).encode()


def take(listing: Any, news: Any) -> None:
    for _ in listing.take(news):
        pass


def load(listing: Any, kind: type[Any], raw: list[bytes]) -> None:
    decoder = msgspec.json.Decoder(kind)
    for start in range(0, len(raw), PAGE):
        objects = [decoder.decode(one) for one in raw[start : start + PAGE]]
        take(listing, Listed(objects, start == 0, start + PAGE >= len(raw)))


async def scrape(executor: Executor[View]) -> tuple[float, int]:
    began, size = time.process_time(), 0
    async for part in executor.stream(False, frozenset()):
        size += len(part)
    return time.process_time() - began, size


def rss_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / (1 << 20)


def measure(nodes: int, pods: int) -> dict[str, float]:
    chance = random.Random(1)
    allocations = Allocations(lambda *_: None)
    listings = listings_of(allocations)
    load_sec = 0.0
    for name, kind, count in (("nodes", ClusterNode, nodes), ("pods", ClusterPod, pods)):
        for start in range(0, count, PAGE):  # made page by page, so that they take no memory
            numbers = range(start, min(start + PAGE, count))
            raw = [node_bytes(n) if kind is ClusterNode else pod_bytes(n, nodes, chance) for n in numbers]
            began = time.process_time()
            decoder = msgspec.json.Decoder(kind)
            objects = [decoder.decode(one) for one in raw]
            take(listings[name], Listed(objects, start == 0, start + PAGE >= count))
            load_sec += time.process_time() - began
    events_per_sec = _events(listings["pods"], nodes, chance)
    source = SourceFigures(True, "", 0, 0, 0, 0, 0)

    def view() -> View:
        found = allocations.snapshot()
        sources = dict.fromkeys(("nodes", "pods", "resourcequotas"), source)
        return View(
            0, NameChoice((SEED, CURRENT)), found, [*found.nodes.values()], [*found.pods.values()], sources, 0
        )

    executor = Executor(EXPORTERS, view, True, _failed, EXECUTOR_FAMILIES)
    took = [asyncio.run(scrape(executor)) for _ in range(SCRAPES)]
    take(
        listings["pods"],
        Changed("MODIFIED", msgspec.json.decode(pod_bytes(0, nodes, chance), type=ClusterPod)),
    )
    after_event_sec, size = asyncio.run(scrape(executor))
    return {
        "load_sec": load_sec,
        "events_per_sec": events_per_sec,
        "scrape_sec": min(sec for sec, _ in took),
        "after_event_sec": after_event_sec,
        "scrape_mib": size / (1 << 20),
        "rss_mib": rss_mib(),
    }


def _events(listing: Any, nodes: int, chance: random.Random) -> float:
    decoder = msgspec.json.Decoder(WatchEvent[ClusterPod])
    raw = [
        b'{"type":"MODIFIED","object":' + pod_bytes(chance.randrange(1000), nodes, chance) + b"}"
        for _ in range(1000)
    ]
    began = time.process_time()
    for number in range(EVENTS):
        event = decoder.decode(raw[number % len(raw)])
        take(listing, Changed(event.type, event.object))
    return EVENTS / (time.process_time() - began)


def _failed(exporter: str, error: Exception) -> None:
    raise AssertionError(exporter) from error


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--one", type=int, nargs=2, metavar=("NODES", "PODS"), help="measure this size, as JSON"
    )
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(*arguments.one)))
        return 0
    missed: list[str] = []
    for nodes, pods in ((1000, 10_000), (5000, 50_000)):
        command = [sys.executable, "-m", "benchmarks.cluster", "--one", str(nodes), str(pods)]
        found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        print(
            f"{nodes} nodes x {GPUS} GPUs, {pods} pods: "
            + ", ".join(f"{k} {v:.3g}" for k, v in found.items())
        )
        missed += judge(f"load s of {nodes} nodes", found["load_sec"], LOAD_MOST_SEC[nodes])
        missed += judge("us for an event", 1e6 / found["events_per_sec"], 1e6 / EVENTS_LEAST)
        missed += judge("RSS MiB", found["rss_mib"], RSS_MOST_MIB)
    print("all goals met" if not missed else "missed: " + "; ".join(missed))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
