"""Shares of real processes that speak protocol 2 and queue as such clients do, on a simulated card: a table.

    python -m tests.interposer.old_shares --seconds 30

What each had is the card's own count (``nvshare sim status``). A star marks a process with our library.
The daemon looks at NVML every second, as that of an installation does.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.interposer.harness import Node, line_of, sampling_node
from tests.tables import Table, numbers

SETTLED_SEC: Final = 5.0
WINDOW_SEC: Final = 10.0
SAMPLE_SEC: Final = 0.5
BOUND_POINTS: Final = 2.0
CASES: Final = (
    ("30+60", 1000, 0),
    ("30+60", 20_000, 0),
    ("30+60", 100_000, 0),
    ("25+75", 20_000, 0),
    ("10+90", 20_000, 0),
    ("10+90", 100_000, 0),
    ("5+90", 100_000, 0),
    ("50+50", 5000, 0),
    ("20+30+40", 20_000, 0),
    ("30+60*", 20_000, 0),
    ("30*+60", 5000, 0),
    ("30+60", 100, 0),
    ("30+60", 200, 0),
    ("30+60", 500, 300),
)


@dataclass(frozen=True)
class Shares:
    first: tuple[float, ...]  # of the first 5 s, in percent
    after: tuple[float, ...]
    worst: tuple[float, ...]  # over any 10 s after them, in points


def start(node: Node, quotas: str, kernel_us: int, host_us: int) -> list[int]:
    """The processes of a mix; all of them run when it returns."""
    children = []
    for number, part in enumerate(quotas.split("+")):
        pod = f"p{number}"
        node.set_quota(pod, core_percent=int(part.rstrip("*")))
        if part.endswith("*"):
            command = [node.program("windowed"), "-", pod, "", str(kernel_us)]
            children.append(node.start(*command, pod=pod))
            continue
        socket = str(node.daemon.sock_dir / "scheduler.sock")
        command = [node.program("windowed"), socket, pod, node.card().uuid, str(kernel_us)]
        command += [str(host_us)] if host_us else []
        children.append(node.start(*command, LD_PRELOAD=""))
    for child in children:
        assert line_of(child) == "running"
    return [child.pid for child in children]


def sample(node: Node, pids: list[int], seconds: float) -> list[tuple[float, list[float]]]:
    """When, and what each had by then, in seconds."""
    samples: list[tuple[float, list[float]]] = []
    began_sec = time.monotonic()
    while time.monotonic() - began_sec < seconds:
        card = node.card()
        busy = {row.pid: row.busy_ns / 1e9 for row in card.processes}
        samples.append((card.now_ns / 1e9, [busy.get(pid, 0.0) for pid in pids]))
        time.sleep(SAMPLE_SEC)
    return samples


def judge(samples: list[tuple[float, list[float]]], due: list[float]) -> Shares:
    begin_sec = samples[0][0]
    settled = next(at for at, (when, _) in enumerate(samples) if when - begin_sec >= SETTLED_SEC)
    off: list[list[float]] = []
    for at in range(settled, len(samples)):
        end = next((n for n in range(at, len(samples)) if samples[n][0] - samples[at][0] >= WINDOW_SEC), None)
        if end is not None:
            got = shares(samples[at], samples[end])
            off.append([abs(had - quota) for had, quota in zip(got, due, strict=True)])
    worst = tuple(max(each) for each in zip(*off, strict=True))
    assert worst, "too short to measure anything"
    return Shares(shares(samples[0], samples[settled]), shares(samples[settled], samples[-1]), worst)


def shares(before: tuple[float, list[float]], after: tuple[float, list[float]]) -> tuple[float, ...]:
    passed = after[0] - before[0]
    return tuple(100 * (new - old) / passed for old, new in zip(before[1], after[1], strict=True))


def measure(quotas: str, kernel_us: int, host_us: int, seconds: float) -> Shares:
    due = [float(part.rstrip("*")) for part in quotas.split("+")]
    with tempfile.TemporaryDirectory(prefix="nvshare-test-") as name:
        node = sampling_node(Path(name), "t4:1")
        try:
            return judge(sample(node, start(node, quotas, kernel_us, host_us), seconds), due)
        finally:
            node.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=30.0, help="of each mix (default: %(default)s)")
    options = parser.parse_args()
    table = Table(f"{'quotas':12}{'kernels':20}{'first 5 s':>20}{'after':>20}{'worst 10 s':>18}")
    for quotas, kernel_us, host_us in CASES:
        found = measure(quotas, kernel_us, host_us, options.seconds)
        good = host_us > 0 or max(found.worst) <= BOUND_POINTS  # who computes in between is due less
        name = f"{kernel_us / 1000:g} ms" + (f", 4 and {host_us} us" if host_us else "")
        first, after, worst = map(numbers, (found.first, found.after, found.worst))
        table.row(f"{quotas:12}{name:20}{first:>20}{after:>20}{worst:>18}", good)
    return table.end(f"bound {BOUND_POINTS:g} points; * has our library")


if __name__ == "__main__":
    sys.exit(main())
