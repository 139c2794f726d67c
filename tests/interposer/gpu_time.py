"""GPU time as the daemon shows it, beside what the card worked for each process.

``python -m tests.interposer.gpu_time`` runs every mix and prints a table; exit code 1 if any is off.
"""

from __future__ import annotations

import argparse
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from tests.interposer.harness import Node, sampling_node, stopped

CARDS: Final = "t4:1"
LIMITED_PERCENT: Final = 1.0
SUM_PERCENT: Final = 2.0
EACH_PERCENT: Final = 5.0


class Program(NamedTuple):
    """A command, as words after ``python -m nvshare.workloads`` or the name of a test program."""

    words: str
    quota: int = 100

    def command(self, node: Node, seconds: float) -> list[str]:
        name, *arguments = self.words.split()
        if name.startswith("w"):
            length = ["--duration", str(seconds)] if name == "w5" else ["--scale", str(seconds / 10)]
            return [sys.executable, "-m", "nvshare.workloads", name, *arguments, *length]
        return [node.program(name), str(seconds), *arguments]


MIXES: Final[dict[str, tuple[Program, ...]]] = {
    # alone, without a quota
    "W1": (Program("w1 --iterations 600"),),
    "W2": (Program("w2 --iterations 2400"),),
    "W3": (Program("w3 --iterations 90"),),
    "W4": (Program("w4 --iterations 800"),),
    "W5": (Program("w5"),),
    "bursts": (Program("duty 2000 10 100000 stream"),),
    "default stream": (Program("duty 3000 1 12000 context"),),
    "half idle": (Program("duty 1000 1 1000 stream"),),
    "half idle, by event": (Program("duty 1000 4 4000 event"),),
    "two streams": (Program("duty 2000 6 5000 two"),),
    "short kernels": (Program("duty 100 1 150 stream"),),
    "never waits": (Program("duty 5000 4 30000 never"),),
    "now and then": (Program("duty 1000 1 200000 never"),),
    "polls": (Program("duty 5000 1 7000 poll"),),
    "copies": (Program("duty 5000 1 7000 copy"),),
    "fifty streams": (Program("duty 1000 1 60000 many"),),
    "streams that wait": (Program("duty 5000 1 10000 across"),),
    "host function": (Program("duty 1000 1 1000 before-host"),),
    # alone, with one
    "W3 at 40 %": (Program("w3 --iterations 90", 40),),
    "W5 at 30 %": (Program("w5", 30),),
    "half idle at 80 %": (Program("duty 1000 1 1000 stream", 80),),
    "short kernels at 50 %": (Program("duty 100 1 150 stream", 50),),
    "bursts at 50 %": (Program("duty 2000 10 100000 stream", 50),),
    "streams that wait, at 60 %": (Program("duty 5000 1 10000 across", 60),),
    "fifty streams at 60 %": (Program("duty 1000 1 60000 many", 60),),
    # together
    "W3 + W3": (Program("w3 --iterations 90"), Program("w3 --iterations 90")),
    "W2 + W5": (Program("w2 --iterations 1300"), Program("w5")),
    "W3 + W5": (Program("w3 --iterations 70"), Program("w5")),
    "W4 + W5": (Program("w4 --iterations 400"), Program("w5")),
    "half idle x 2": (Program("duty 1000 4 4000 stream"), Program("duty 2000 2 4000 event")),
    "half idle x 3": (
        Program("duty 1000 4 8000 stream"),
        Program("duty 2000 2 6000 event"),
        Program("duty 3000 1 9000 context"),
    ),
    "bursts x 2": (Program("duty 2000 10 100000 stream"), Program("duty 2000 20 150000 context")),
    # quotas, and some without
    "W5 30 + W5 60": (Program("w5", 30), Program("w5", 60)),
    "W3 40 + W5": (Program("w3 --iterations 70", 40), Program("w5")),
    "W5 30 + W3 + W3": (Program("w5", 30), Program("w3 --iterations 70"), Program("w3 --iterations 70")),
    "half idle 50 + W5 30 + W5": (Program("duty 1000 4 4000 stream", 50), Program("w5", 30), Program("w5")),
}
SAMPLE: Final = ("W3", "polls", "streams that wait, at 60 %", "half idle x 2", "W3 40 + W5")


class Row(NamedTuple):
    program: Program
    card_ns: int
    shown_ns: int

    @property
    def error_percent(self) -> float:
        return 100.0 * (self.shown_ns - self.card_ns) / self.card_ns


class Result(NamedTuple):
    mix: str
    rows: list[Row]
    card_ns: int

    @property
    def unlimited(self) -> list[Row]:
        return [row for row in self.rows if row.program.quota == 100]

    def sum_error_percent(self) -> float:
        rows = self.unlimited
        card_ns = sum(row.card_ns for row in rows)
        return 100.0 * (sum(row.shown_ns for row in rows) - card_ns) / card_ns if card_ns else 0.0

    def faults(self) -> list[str]:
        found = []
        for row in self.rows:
            most = LIMITED_PERCENT if row.program.quota < 100 else EACH_PERCENT
            if abs(row.error_percent) > most:
                found.append(f"{row.program.words}: {row.error_percent:+.2f} %, at most {most} %")
        if abs(self.sum_error_percent()) > SUM_PERCENT:
            found.append(f"sum without quota: {self.sum_error_percent():+.2f} %, at most {SUM_PERCENT} %")
        return found


class _Watch:
    """The last that the card and the daemon told of each program."""

    def __init__(self, node: Node, children: dict[str, subprocess.Popen[str]]) -> None:
        self._node = node
        self._children = children
        self.card_ns = dict.fromkeys(children, 0)
        self.shown_ns = dict.fromkeys(children, 0)

    def look(self) -> None:
        on_card = {row.pid: row.busy_ns for row in self._node.card().processes}
        for pod, child in self._children.items():
            self.card_ns[pod] = max(self.card_ns[pod], on_card.get(child.pid, 0))
        for gpu in self._node.daemon.control.ask("GET", "/v1/gpus")["gpus"]:
            for tenant in gpu["tenants"]:
                pod = tenant["pod"].rpartition("/")[2]
                if pod in self.shown_ns:
                    self.shown_ns[pod] = max(self.shown_ns[pod], tenant["gpu_time_ns"])


def _watched(node: Node, program: Program, until_ns: int) -> tuple[int, _Watch]:
    """The pid of a program that has had so much, and what is told of it."""
    child = node.start(*program.command(node, 60.0), pod="p0")
    watch = _Watch(node, {"p0": child})
    while watch.shown_ns["p0"] < until_ns:
        time.sleep(0.02)
        watch.look()
    return child.pid, watch


def stopped_grows_by(directory: Path) -> int:
    """What a program's GPU time grows by in two seconds in which it is stopped."""
    node = sampling_node(directory, CARDS)
    try:
        pid, watch = _watched(node, Program("w5"), 500_000_000)
        with stopped(pid):
            time.sleep(2)  # what it had told before is counted by then
            watch.look()
            before_ns = watch.shown_ns["p0"]
            time.sleep(2)  # the measurement itself
            watch.look()
            return watch.shown_ns["p0"] - before_ns
    finally:
        node.close()


def stopped_for_a_while(directory: Path) -> tuple[int, int]:
    """What the card worked, and what is shown, of a program that never waits and was stopped for 3 s."""
    node = sampling_node(directory, CARDS)
    try:
        pid, watch = _watched(node, Program("duty 5000 2 20000 never"), 300_000_000)
        with stopped(pid):
            time.sleep(3)  # the absence itself
        end = time.monotonic() + 2  # it goes on, and tells
        while time.monotonic() < end:
            time.sleep(0.02)
            watch.look()
        return watch.card_ns["p0"], watch.shown_ns["p0"]
    finally:
        node.close()


def measure(directory: Path, mix: str, seconds: float) -> Result:
    node = sampling_node(directory, CARDS)
    try:
        programs = {f"p{number}": program for number, program in enumerate(MIXES[mix])}
        for pod, program in programs.items():
            if program.quota < 100:
                node.set_quota(pod, core_percent=program.quota)
        children = {
            pod: node.start(*program.command(node, seconds), pod=pod) for pod, program in programs.items()
        }
        watch = _Watch(node, children)
        waiting = set(children)
        while waiting:
            time.sleep(0.02)
            watch.look()
            waiting -= {pod for pod in waiting if _has_ended(children[pod])}
        for _ in range(50):  # the last report, and the last window
            time.sleep(0.03)
            watch.look()
        for child in children.values():
            node.finish(child)
        rows = [Row(program, watch.card_ns[pod], watch.shown_ns[pod]) for pod, program in programs.items()]
        return Result(mix, rows, node.card().busy_ns)
    finally:
        node.close()


def _has_ended(child: subprocess.Popen[str]) -> bool:
    """Its work has: it said so and stays, or it is gone."""
    if child.poll() is not None:
        return True
    assert child.stdout is not None
    if not select.select([child.stdout], [], [], 0)[0]:
        return False
    return child.stdout.readline().strip() == "done"


def print_result(result: Result) -> None:
    for row in result.rows:
        quota = "-" if row.program.quota == 100 else f"{row.program.quota} %"
        figures = f"{row.card_ns / 1e9:8.3f} {row.shown_ns / 1e9:8.3f} {row.error_percent:+7.2f}"
        print(f"{result.mix:27} {row.program.words:26} {quota:>5} {figures}", flush=True)
    if len(result.unlimited) > 1:
        print(f"{'':27} {'sum without quota':26} {'':>5} {'':8} {'':8} {result.sum_error_percent():+7.2f}")


def main(arguments: Iterable[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mix", nargs="*", help="which; all by default")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long a mix runs (20)")
    given = parser.parse_args(list(arguments) if arguments is not None else None)
    print(f"{'mix':27} {'program':26} {'quota':>5} {'card s':>8} {'shown s':>8} {'error %':>7}")
    faults = []
    for mix in given.mix or MIXES:
        with tempfile.TemporaryDirectory(prefix="nvshare-gpu-time-") as directory:
            result = measure(Path(directory), mix, given.seconds)
        print_result(result)
        faults += [f"{mix}: {fault}" for fault in result.faults()]
    print(*(faults or ["nothing is off by more than it may be"]), sep="\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
