"""What watching a node's pods costs the daemon: 1000 changes a second, a list of 250 pods of 8 kB, memory.

Beside it the same daemon without Kubernetes. The API server is its double, in a process of its own.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from benchmarks.lock_cycles.servers import cpu_ns
from benchmarks.scrape import judge
from nvshare.build import core_kind
from nvshare.sim.kube_api import pod
from tests.node.harness import DaemonProcess, running
from tests.node.kubernetes import NODE, Cluster, cluster, double_process, wait_until

PODS: Final = 250
POD_BYTES: Final = 8000
EVENTS_PER_SEC: Final = 1000
CPU_MOST_PERCENT: Final = 10.0
CALLBACK_MOST_MS: Final = 1.0
RSS_MOST_MB: Final = 15.0
LISTS: Final = 9


def rss_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no VmRSS")


def busy_percent(pid: int, length_sec: float) -> float:
    before_ns, begun = cpu_ns(pid), time.monotonic()
    time.sleep(length_sec)
    return (cpu_ns(pid) - before_ns) / (time.monotonic() - begun) / 1e7


def metric(daemon: DaemonProcess, name: str) -> dict[str, Any]:
    found: dict[str, Any] = daemon.counters()[name]
    return found


def listing(directory: Path) -> tuple[list[float], float]:
    """The longest callback of each list, shortest first; and the memory then."""
    longest_ms = []
    with cluster(directory, make_api=double_process, environment={"NVSHARE_CHECK": "0"}) as kube:
        _fill(kube)
        for _ in range(LISTS):
            kube.daemon.stop()
            for left in kube.daemon.private_dir.iterdir():  # as on a new machine
                left.unlink()
            kube.daemon.start()
            wait_until(lambda: _knows_all(kube), "all pods are known")
            longest_ms.append(metric(kube.daemon, "kubernetes_steps")["longest_ns"] / 1e6)
        return sorted(longest_ms), rss_mb(kube.daemon.pid)


def _fill(kube: Cluster) -> None:
    for number in range(PODS):
        annotations = {"nvshare.com/gpu-core-limit": str(1 + number % 99)}
        kube.api.create("pods", pod(f"p{number}", node=NODE, annotations=annotations, size_bytes=POD_BYTES))
    wait_until(lambda: _knows_all(kube), "all pods are known")


def _knows_all(kube: Cluster) -> bool:
    return len(kube.daemon.control.ask("GET", "/v1/quotas")["quotas"]) >= PODS


def load(directory: Path, length_sec: float) -> tuple[float, float, float]:
    """Processor time at rest and under load, in percent of a core; the memory after it."""
    with cluster(directory, make_api=double_process, environment={"NVSHARE_CHECK": "0"}) as kube:
        _fill(kube)
        time.sleep(2.0)
        idle = busy_percent(kube.daemon.pid, length_sec / 2)
        before_ns, begun = cpu_ns(kube.daemon.pid), time.monotonic()
        count = int(EVENTS_PER_SEC * length_sec)
        kube.api.churn("pods", count, per_second=EVENTS_PER_SEC)
        took_sec = time.monotonic() - begun
        busy = (cpu_ns(kube.daemon.pid) - before_ns) / took_sec / 1e7
        print(f"  {count / took_sec:.0f} changes a second")
        return idle, busy, rss_mb(kube.daemon.pid)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--length-sec", type=float, default=10.0)
    arguments = parser.parse_args()
    if not 1 <= arguments.length_sec <= 50:
        print("accepted: 1 to 50 seconds", file=sys.stderr)
        return 2
    if os.geteuid() != 0:
        print("needs root: only root can make cgroups of pods", file=sys.stderr)
        return 2
    print(f"the daemon's core is {core_kind()}; {PODS} pods of {POD_BYTES} bytes")
    with tempfile.TemporaryDirectory(prefix="nvshare-bench-") as name:
        directory = Path(name)
        with running(directory / "off", arguments=["--kubernetes", "off"]) as daemon:
            daemon.status()
            without_mb = rss_mb(daemon.pid)
        longest_ms, listed_mb = listing(directory / "list")
        idle, busy, loaded_mb = load(directory / "load", arguments.length_sec)
    print(
        f"  at rest {idle:.2f} % of a core, under load {busy:.2f} %; {without_mb:.1f} MB without Kubernetes"
    )
    missed = judge("changes, percent of a core", busy - idle, CPU_MOST_PERCENT)
    print(f"  longest callback of each list in ms: {', '.join(f'{one:.2f}' for one in longest_ms)}")
    median_ms = longest_ms[LISTS // 2]
    missed += judge(f"longest callback of a list in ms, median of {LISTS}", median_ms, CALLBACK_MOST_MS)
    missed += judge("more memory in MB", max(listed_mb, loaded_mb) - without_mb, RSS_MOST_MB)
    print("all goals met" if not missed else "missed: " + "; ".join(missed))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
