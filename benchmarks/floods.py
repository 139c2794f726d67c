"""What a flood of one user's or one pod's messages does to everybody else.

Each flood is as large as the daemon's bounds let one owner make it, and comes from processes of another user.
Beside it, and beside no flood in the same run: how long another tenant waits for the lock, on a GPU of its
own and on the one that the flooders use, how long a scrape takes, and how long a newcomer waits for its
answer. A program that is not answered within five seconds runs without limits, so that is the hard bound.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.lock_cycles.__main__ import ask
from benchmarks.lock_cycles.servers import Server, daemon
from benchmarks.scrape import judge
from nvshare.build import core_kind
from nvshare.wire.messages import MessageType
from tests.exporters.node import free_port
from tests.hostile.flooders import FLOODS, Flood, flooded
from tests.node.harness import Raw, gpu_key, in_child

T = MessageType
WAIT_P50_MOST_MS: Final = 3.0
WAIT_P99_MOST_MS: Final = 50.0
SCRAPE_MOST_MS: Final = 1000.0
NEWCOMER_MOST_MS: Final = 5000.0
BETWEEN_CYCLES_SEC: Final = 0.002
BETWEEN_NEWCOMERS_SEC: Final = 0.2
UNFLOODED_SEC: Final = 3.0
FLOODED_GPU: Final = 0
FREE_GPU: Final = 1


class Figures(NamedTuple):
    wait_p50_ms: float
    wait_p99_ms: float
    beside_p50_ms: float
    beside_p99_ms: float
    scrape_ms: float
    newcomer_ms: float


def quantile(samples: list[float], part: float) -> float:
    return sorted(samples)[min(len(samples) - 1, int(part * len(samples)))]


def cycle_ms(victim: Raw) -> float:
    start = time.monotonic()
    victim.lock()
    waited_ms = (time.monotonic() - start) * 1000
    victim.send(T.LOCK_RELEASED)
    time.sleep(BETWEEN_CYCLES_SEC)
    return waited_ms


def scrape_ms(port: int) -> float:
    start = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/metrics")
    connection.getresponse().read()
    connection.close()
    return (time.monotonic() - start) * 1000


def newcomer_ms(path: Path) -> float:
    start = time.monotonic()
    with Raw(path) as newcomer:
        newcomer.register("newcomer", gpu_key(FREE_GPU))
    return (time.monotonic() - start) * 1000


@contextlib.contextmanager
def visitors(path: Path, port: int, length_sec: float) -> Iterator[list[dict[str, float]]]:
    """Scrapes and registers from a process of its own; the longest of each are in the list in the end."""
    reading, writing = os.pipe()
    found: list[dict[str, float]] = []

    def visit() -> None:
        ends = time.monotonic() + length_sec
        longest = {"scrape_ms": 0.0, "newcomer_ms": 0.0}
        while time.monotonic() < ends:
            longest["newcomer_ms"] = max(longest["newcomer_ms"], newcomer_ms(path))
            longest["scrape_ms"] = max(longest["scrape_ms"], scrape_ms(port))
            time.sleep(BETWEEN_NEWCOMERS_SEC)
        os.write(writing, json.dumps(longest).encode())

    child = in_child(visit)
    os.close(writing)
    try:
        yield found
        found.append(json.loads(os.read(reading, 4096)))
    finally:
        os.waitpid(child, 0)
        os.close(reading)


def measure(server: Server, port: int, length_sec: float) -> Figures:
    alone, beside = [], []
    with Raw(server.socket) as victim, Raw(server.socket) as neighbour:
        victim.register("victim", gpu_key(FREE_GPU))
        neighbour.register("neighbour", gpu_key(FLOODED_GPU))
        with visitors(server.socket, port, length_sec) as visited:
            ends = time.monotonic() + length_sec
            while time.monotonic() < ends:
                alone.append(cycle_ms(victim))
                beside.append(cycle_ms(neighbour))
    waits = [quantile(waits, part) for waits in (alone, beside) for part in (0.5, 0.99)]
    return Figures(*waits, **visited[0])


def show(name: str, row: Figures) -> None:
    print(f"{name:<26}" + "".join(f"{value:>9.2f}" for value in row), flush=True)


def judged(name: str, row: Figures) -> list[str]:
    goals = (
        ("lock wait p50", row.wait_p50_ms, WAIT_P50_MOST_MS),
        ("lock wait p99", row.wait_p99_ms, WAIT_P99_MOST_MS),
        ("lock wait p50, same GPU", row.beside_p50_ms, WAIT_P50_MOST_MS),
        ("lock wait p99, same GPU", row.beside_p99_ms, WAIT_P99_MOST_MS),
        ("longest scrape", row.scrape_ms, SCRAPE_MOST_MS),
        ("longest wait of a newcomer", row.newcomer_ms, NEWCOMER_MOST_MS),
    )
    return [miss for what, value, goal in goals for miss in judge(f"{name}: {what}, ms", value, goal)]


def compare(flood: Flood, port: int, length_sec: float) -> list[str]:
    """With and without it; what misses its goal."""
    settings = {"NVSHARE_METRICS_ENABLE": "1", "NVSHARE_METRICS_ADDR": f"127.0.0.1:{port}"}
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o711)  # the flooders must reach the socket
        with daemon(Path(name), **settings) as server:
            show("no flood", measure(server, port, min(length_sec, UNFLOODED_SEC)))
            before = messages(server)
            with flooded(server.socket, flood, FLOODED_GPU):
                row = measure(server, port, length_sec)
                rate = (messages(server) - before) / length_sec
            show(flood.name, row)
    print(f"  {rate:.0f} messages/s were read")
    return judged(flood.name, row)


def messages(server: Server) -> int:
    counters: Any = ask(server, "GET", "/v1/status")["counters"]
    return sum(counters["messages_received"].values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--length-sec", type=float, default=10.0)
    arguments = parser.parse_args()
    if not 0.5 <= arguments.length_sec <= 3600:
        print("accepted: 0.5 to 3600 seconds", file=sys.stderr)
        return 2
    if os.geteuid() != 0:
        print("needs root: the floods come from processes of another user", file=sys.stderr)
        return 2
    print(f"the daemon's core is {core_kind()}; milliseconds, {arguments.length_sec:g} s each")
    heads = ("p50", "p99", "same p50", "same p99", "scrape", "newcomer")
    print(f"{'':<26}" + "".join(f"{word:>9}" for word in heads))
    port = free_port()
    missed = [miss for flood in FLOODS for miss in compare(flood, port, arguments.length_sec)]
    print("all goals met" if not missed else "missed: " + "; ".join(missed))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
