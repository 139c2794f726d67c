"""What the node monitor costs: regions, processes, a scrape of a node with 100 containers, memory.

Times are of the processor, because others may have the machine in between.
"""

from __future__ import annotations

import argparse
import os
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks.floods import quantile
from benchmarks.scrape import judge
from nvshare.hami.region import read_region
from nvshare.pods.process_places import ProcessPlaces
from nvshare.pods.region_files import RegionFile
from tests.exporters.monitor.harness import V12, MonitoredNode, monitored_node
from tests.exporters.monitor.test_monitor import new_uid
from tests.hami.samples import region_bytes

REGIONS_MOST_MS: Final = 2.0
PIDS_MOST_MS: Final = 8.0
SCRAPE_MOST_MS: Final = 15.0
RSS_MOST_MIB: Final = 60.0
CONTAINERS: Final = 100
PROCESSES: Final = 8
PIDS: Final = 500
_SLOTS: Final = 1856
_SLOT: Final = 1960
_TAIL: Final = 2_008_896


def full_region(pids: list[int]) -> bytes:
    """The sample of two GPUs with these processes."""
    raw = bytearray(region_bytes(V12))
    slot = raw[_SLOTS : _SLOTS + _SLOT]
    for number, pid in enumerate(pids):
        at = _SLOTS + number * _SLOT
        raw[at : at + _SLOT] = slot
        struct.pack_into("<ii", raw, at, pid, pid)
    struct.pack_into("<i", raw, _TAIL, len(pids))
    return bytes(raw)


def median_ms(work: Callable[[], object], times: int) -> float:
    took = []
    for _ in range(times):
        began = time.process_time()
        work()
        took.append((time.process_time() - began) * 1000)
    return quantile(took, 0.5)


def regions(directory: Path, times: int) -> list[str]:
    raw = full_region(list(range(1, PROCESSES + 1)))
    files = []
    for number in range(CONTAINERS):
        path = directory / f"{number}.cache"
        path.write_bytes(raw)
        files.append(RegionFile(path))

    def read() -> None:
        for file in files:
            read_region(file.read, file.size_bytes).sums()

    took_ms = median_ms(read, times)
    print(f"{CONTAINERS} regions of {PROCESSES} processes read and summed: {took_ms:.2f} ms")
    for file in files:
        file.close()
    return judge("regions ms", took_ms, REGIONS_MOST_MS)


def pids(times: int) -> list[str]:
    sleepers = [subprocess.Popen(["sleep", "1000"]) for _ in range(PIDS)]
    try:
        places = ProcessPlaces()
        began = time.process_time()
        for one in sleepers:
            places.at(one.pid)
        first_ms = (time.process_time() - began) * 1000
        places.end_round()
        took_ms = median_ms(lambda: [places.at(one.pid) for one in sleepers], times)
    finally:
        for one in sleepers:
            one.kill()
            one.wait()
    print(f"{PIDS} processes attributed: {took_ms:.2f} ms, {first_ms:.1f} ms the first time")
    return judge("attribution ms", took_ms, PIDS_MOST_MS)


def cpu_sec(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def scrape(node: MonitoredNode, times: int) -> list[str]:
    allocated = "GPU-00000000-1111-2222-3333-44444444aaaa,NVIDIA,4096,30:;"
    annotations = {"hami.io/vgpu-devices-allocated": allocated, "hami.io/vgpu-node": "n1"}
    for number in range(CONTAINERS):
        uid = new_uid()
        node.pod(f"p{number}", uid, "main", annotations=annotations)
        node.region(uid, "main", region_bytes(V12))
    monitor = node.monitor(NVSHARE_MONITOR_NVML_INTERVAL_MS="5000")
    monitor.wait_scrape(lambda s: len(s.of("vGPU_device_memory_limit_in_bytes")) == 2 * CONTAINERS)
    pid = monitor.process.pid
    for _ in range(5):
        monitor.text()
    before = cpu_sec(pid)
    for _ in range(times):
        monitor.text()
    cpu_ms = (cpu_sec(pid) - before) * 1000 / times
    rss_mib = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / (1 << 20)
    print(f"a scrape of {CONTAINERS} containers: {cpu_ms:.1f} ms; {rss_mib:.1f} MiB")
    return judge("scrape ms", cpu_ms, SCRAPE_MOST_MS) + judge("RSS MiB", rss_mib, RSS_MOST_MIB)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=50, choices=range(1, 1001), metavar="1..1000")
    times = parser.parse_args().times
    with tempfile.TemporaryDirectory(prefix="nvshare-bench-") as name:
        missed = regions(Path(name), times) + pids(times)
    with tempfile.TemporaryDirectory(prefix="nvshare-bench-") as name, monitored_node(Path(name)) as node:
        missed += scrape(node, times)
    print("all goals met" if not missed else "missed: " + "; ".join(missed))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
