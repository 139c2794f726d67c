"""How soon an annotation counts: from the API server's answer to the patch until every client of the pod has
been told, with 500 clients on the node, and until the pod has the share of the GPU that it now may have.

The API server is its double, on this machine; pods are real cgroups, clients speak the protocol.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from benchmarks.floods import quantile
from benchmarks.scrape import judge
from nvshare.build import core_kind
from nvshare.pods.cgroup_mounts import PROCS
from nvshare.wire.messages import MessageType
from tests.node.harness import gpu_key
from tests.node.kubernetes import Cluster, PodRaw, cluster, double_process, wait_until

T = MessageType
TOLD_P99_MOST_MS: Final = 250.0
EFFECT_MOST_MS: Final = 1000.0
PODS: Final = 50
CLIENTS_PER_POD: Final = 10
LARGE_POD_CLIENTS: Final = 250
WINDOW_SEC: Final = 0.3
WITHIN: Final = 0.1
BETWEEN_PATCHES_SEC: Final = 0.02
_WORK: Final = """
import sys, time
with open(sys.argv[1], "w") as file:
    file.write("0")
from nvshare.client import Client
with Client(sys.argv[3], sock_dir=sys.argv[2]) as client:
    client.wait_ready(60)
    while True:
        with client.gpu():
            time.sleep(0.004)
"""


def told(patches: int) -> list[str]:
    with tempfile.TemporaryDirectory(prefix="nvshare-bench-") as directory, _cluster(directory) as kube:
        pods: dict[str, list[PodRaw]] = {}
        for number in range(PODS):
            process = kube.pod(f"p{number}", gpu_core_limit="50")
            pods[f"p{number}"] = [process.client(gpu=gpu_key(number % 8)) for _ in range(CLIENTS_PER_POD)]
        chance, waited_ms = random.Random(1), []
        percents = dict.fromkeys(pods, 50)
        for _ in range(patches):
            name = chance.choice(list(pods))
            percents[name] = percent = percents[name] % 99 + 1  # nobody is told what is in force already
            kube.api.annotate(f"default/{name}", gpu_core_limit=str(percent))
            waited_ms.append(wait_told(pods[name], percent))
            time.sleep(BETWEEN_PATCHES_SEC)
    clients = f"all {CLIENTS_PER_POD} clients of a pod, of {PODS * CLIENTS_PER_POD} on the node"
    print(f"told to {clients}, {patches} patches:")
    print(f"  p50 {quantile(waited_ms, 0.5):.1f} ms, longest {max(waited_ms):.1f} ms")
    return judge("told p99 ms", quantile(waited_ms, 0.99), TOLD_P99_MOST_MS)


def told_at_last(rounds: int) -> list[str]:
    """The second of two changes right after each other, which has to wait for the first one's pause."""
    with tempfile.TemporaryDirectory(prefix="nvshare-bench-") as directory, _cluster(directory) as kube:
        process = kube.pod("large", gpu_core_limit="50")
        clients = [process.client(gpu=gpu_key(number % 8)) for number in range(LARGE_POD_CLIENTS)]
        waited_ms = []
        for number in range(rounds):
            first, percent = 1 + number % 40, 50 + number % 40
            kube.api.annotate("default/large", gpu_core_limit=str(first))
            kube.api.annotate("default/large", gpu_core_limit=str(percent))
            waited_ms.append(wait_told(clients, percent))
            time.sleep(LARGE_POD_CLIENTS * 0.002)  # no pause is left
    print(f"the second of two changes, told to all {LARGE_POD_CLIENTS} clients of a pod, {rounds} times:")
    print(f"  p50 {quantile(waited_ms, 0.5):.1f} ms, longest {max(waited_ms):.1f} ms")
    return judge("second change told p99 ms", quantile(waited_ms, 0.99), TOLD_P99_MOST_MS)


def wait_told(clients: list[PodRaw], percent: int) -> float:
    """Milliseconds until all of them have been told."""
    answered = time.monotonic()
    for client in clients:
        while client.expect(T.UPDATE_CORE_LIMIT).core_limit_percent != percent:
            pass
    return (time.monotonic() - answered) * 1000


def effect(rounds: int) -> list[str]:
    took_ms = []
    with (
        tempfile.TemporaryDirectory(prefix="nvshare-bench-") as directory,
        _cluster(directory) as kube,
        working(kube, a="30", b="70"),
    ):
        for percent in (80, 30) * rounds:
            time.sleep(3.0)  # debts are settled
            kube.api.annotate("default/b", gpu_core_limit=str(100 - percent))
            kube.api.annotate("default/a", gpu_core_limit=str(percent))
            took_ms.append(until_share(kube, "default/a", percent / 100, time.monotonic()) * 1000)
    window = f"a window of {WINDOW_SEC * 1000:.0f} ms"
    print(f"until {window} has the new share of the GPU, within 10 points, {len(took_ms)} changes:")
    print(f"  p50 {quantile(took_ms, 0.5):.0f} ms, longest {max(took_ms):.0f} ms")
    return judge("effect p99 ms", quantile(took_ms, 0.99), EFFECT_MOST_MS)


@contextmanager
def working(kube: Cluster, **quotas: str) -> Iterator[None]:
    """A program in each of these pods that wants the GPU all the time."""
    programs = []
    try:
        for name, core in quotas.items():
            process = kube.pod(name, gpu_core_limit=core)
            arguments = [str(process.directory / PROCS), str(kube.daemon.sock_dir), gpu_key()]
            programs.append(subprocess.Popen([sys.executable, "-c", _WORK, *arguments]))
        wait_until(lambda: len(gpu_times(kube)) == len(quotas), "all are registered")
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


def gpu_times(kube: Cluster) -> dict[str, int]:
    clients = kube.daemon.control.ask("GET", "/v1/clients")["clients"]
    return {row["pod"]: row["gpu_time_ns"] for row in clients}


def until_share(kube: Cluster, name: str, wanted: float, since: float) -> float:
    """To the end of the first window that has it."""
    seen: deque[tuple[float, int, int]] = deque()
    while (now := time.monotonic()) < since + 30:
        times = gpu_times(kube)
        seen.append((now, times[name], sum(times.values())))
        while seen[0][0] < now - WINDOW_SEC:
            begun, own, everybodys = seen.popleft()
            whole = seen[-1][2] - everybodys
            if begun >= since and whole and abs((seen[-1][1] - own) / whole - wanted) < WITHIN:
                return now - since
        time.sleep(0.01)
    raise AssertionError(f"never {wanted}")


def _cluster(directory: str) -> AbstractContextManager[Cluster]:
    gpus = ",".join(f"{gpu_key(number)}=16Gi" for number in range(8))
    environment = {"NVSHARE_CHECK": "0"}
    return cluster(
        Path(directory), make_api=double_process, environment=environment, arguments=["--gpus", gpus]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--patches", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    if not (10 <= arguments.patches <= 100_000 and 1 <= arguments.rounds <= 1000):
        print("accepted: 10 to 100000 patches, 1 to 1000 rounds", file=sys.stderr)
        return 2
    if os.geteuid() != 0:
        print("needs root: only root can make cgroups of pods", file=sys.stderr)
        return 2
    print(f"the daemon's core is {core_kind()}")
    missed = told(arguments.patches) + told_at_last(4 * arguments.rounds) + effect(arguments.rounds)
    print("all goals met" if not missed else "missed: " + "; ".join(missed))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
