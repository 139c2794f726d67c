"""The daemon is killed and restarted again and again: does any pod ever have more memory than its limit?

Pods of two processes that allocate, free and launch all the time. Processes end and others begin, and the
daemon dies at any moment: at random, right after a registration, while a lease is recalled from a process
that is stopped, just after it has started. The referee is the simulated driver's own count.

    python -m tests.interposer.restarts [--kills 200] [--clean 50] [--seed 1]
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from nvshare.sim.gpu import SimulatedNode
from tests.interposer.harness import Node
from tests.interposer.test_memory_limit import drivers_bytes

MIB: Final = 1 << 20
CARDS: Final = "t4:2"
FIGURES: Final = re.compile(
    r"granted (\d+) refused (\d+) launches (\d+) allocation (\d+) (\d+) launch (\d+) (\d+)\n"
)


@dataclass
class Pod:
    name: str
    limit_bytes: int
    percent: int | None
    by_environment: bool = False
    stops: bool = False  # its processes are stopped now and then, which holds up all on their card
    processes: list[subprocess.Popen[str]] = field(default_factory=list)
    pids: set[int] = field(default_factory=set)  # all there ever were
    most_bytes: int = 0  # by the driver's count


PODS: Final = (
    ("told", 512 * MIB, 40, False, False),
    ("stated", 256 * MIB, 50, True, False),
    ("stopped", 384 * MIB, None, False, True),
)


@dataclass
class Report:
    kills: int = 0
    clean: int = 0
    moments: Counter[str] = field(default_factory=Counter)
    granted: int = 0
    refused: int = 0
    launches: int = 0
    looks: int = 0
    away: list[tuple[float, float]] = field(default_factory=list)  # from when to when there was no daemon
    standstills: list[tuple[str, float, float]] = field(default_factory=list)  # of what, from when to when
    most_bytes: dict[str, tuple[int, int]] = field(default_factory=dict)  # by pod, beside its limit

    @property
    def over_bytes(self) -> int:
        return sum(max(0, most - limit) for most, limit in self.most_bytes.values())

    def lines(self) -> Iterator[str]:
        moments = ", ".join(f"{count} {name}" for name, count in sorted(self.moments.items()))
        yield f"restarts: {self.kills} by kill -9, {self.clean} clean ({moments})"
        starts = sorted(1000 * (until - since) for since, until in self.away)
        yield f"time without a daemon: median {starts[len(starts) // 2]:.0f} ms, longest {starts[-1]:.0f} ms"
        yield f"allocations: {self.granted} made, {self.refused} refused; launches: {self.launches}"
        for what in ("allocations", "launches"):
            yield self._longest(what)
        for pod, (most, limit) in self.most_bytes.items():
            yield f"pod {pod}: at most {most:>11,} of {limit:,} bytes by the driver's count"
        yield f"over-admitted: {self.over_bytes} bytes, in {self.looks} looks"

    def _longest(self, what: str) -> str:
        """On the card where nobody is stopped."""
        spans = [(since, until) for kind, since, until in self.standstills if kind == what]
        since, until = max(spans, key=lambda span: span[1] - span[0])
        restarts = sum(begins < until and ends > since for begins, ends in self.away)
        beyond_ms = max(1000 * (until - since - self._away_sec(since, until)) for since, until in spans)
        took = f"longest standstill of {what}: {1000 * (until - since):.0f} ms, over {restarts} restarts"
        return f"{took}; beyond the time without a daemon at most {beyond_ms:.0f} ms"

    def _away_sec(self, since: float, until: float) -> float:
        return sum(max(0.0, min(until, ends) - max(since, begins)) for begins, ends in self.away)


class Run:
    def __init__(self, directory: Path, seed: int) -> None:
        self.node = Node(directory, CARDS)
        self.chance = random.Random(seed)
        self.report = Report()
        self.pods = [Pod(*row) for row in PODS]
        self._ended = threading.Event()
        self._watcher = threading.Thread(target=self._watch)
        self._seeds = iter(range(seed * 1000, 1 << 31))

    # ---- the referee -------------------------------------------------------------------------

    def _watch(self) -> None:
        cards = SimulatedNode(self.node.directory / "sim", CARDS)
        while not self._ended.is_set():
            rows = [row for card in cards.status().cards for row in card.processes]
            for pod in self.pods:
                had_bytes = sum(drivers_bytes(row) for row in rows if row.pid in pod.pids)
                pod.most_bytes = max(pod.most_bytes, had_bytes)
            self.report.looks += 1
        cards.close()

    # ---- processes ---------------------------------------------------------------------------

    def begin(self, pod: Pod) -> subprocess.Popen[str]:
        extra = {"NVSHARE_GPU_MEMORY_LIMIT": str(pod.limit_bytes)} if pod.by_environment else {}
        extra["CUDA_VISIBLE_DEVICES"] = str(int(pod.stops))
        command = (self.node.program("churn"), str(next(self._seeds)), str(pod.limit_bytes))
        child = self.node.start(*command, pod=pod.name, **extra)
        pod.pids.add(child.pid)
        pod.processes.append(child)
        return child

    def end(self, pod: Pod, child: subprocess.Popen[str], kill: bool = False) -> None:
        pod.processes.remove(child)
        self.node.children.remove(child)
        if kill:
            child.kill()
            child.communicate()
            return
        out, error = child.communicate(timeout=120)
        found = FIGURES.fullmatch(out)
        assert found is not None, f"{pod.name}: {child.returncode}: {out}{error}"
        granted, refused, launches, *spans = map(int, found.groups())
        report = self.report
        report.granted += granted
        report.refused += refused
        report.launches += launches
        if not pod.stops:
            for what, (took_ns, ended_ns) in (("allocations", spans[:2]), ("launches", spans[2:])):
                report.standstills.append((what, (ended_ns - took_ns) / 1e9, ended_ns / 1e9))

    def exchange(self) -> None:
        """A process ends, by itself or not, and another begins."""
        pod = self.chance.choice(self.pods)
        self.end(pod, self.chance.choice(pod.processes), kill=self.chance.random() < 0.3)
        self.begin(pod)

    def registered(self, child: subprocess.Popen[str]) -> None:
        words = f"pid={child.pid} "
        self.node.daemon.wait_log(lambda lines: any(words in f"{line} " for line in lines[-400:]))

    # ---- the daemon --------------------------------------------------------------------------

    def restart(self, clean: bool) -> None:
        since = time.monotonic()
        if clean:
            self.node.daemon.stop()
            self.report.clean += 1
        else:
            self.node.daemon.kill()
            self.report.kills += 1
        self.node.daemon.start()
        self.report.away.append((since, time.monotonic()))

    def at_random(self, clean: bool) -> None:
        time.sleep(self.chance.uniform(0, 0.8))  # how long a daemon lives
        self.restart(clean)

    def after_a_registration(self, clean: bool) -> None:
        pod = self.chance.choice(self.pods)
        child = self.begin(pod)
        self.registered(child)
        time.sleep(self.chance.choice((0, 0, 0.002, 0.01)))  # a few allocations later
        self.restart(clean)
        self.end(pod, self.chance.choice(pod.processes), kill=self.chance.random() < 0.3)

    def during_a_recall(self, clean: bool) -> None:
        """One process is alone and leased the limit; it is stopped, and a second one comes."""
        pod = next(pod for pod in self.pods if pod.stops)
        self.end(pod, pod.processes[0])
        [alone] = pod.processes
        time.sleep(self.chance.uniform(0.05, 0.4))  # it is leased the limit, and takes of it
        os.kill(alone.pid, signal.SIGSTOP)
        self.registered(self.begin(pod))
        self.restart(clean)
        self.registered_again(pod.processes[-1])
        if self.chance.random() < 0.2:
            time.sleep(5)  # beyond all grace
        os.kill(alone.pid, signal.SIGCONT)

    def registered_again(self, child: subprocess.Popen[str]) -> None:
        self.node.wait_for(lambda: any(row["pid"] == child.pid for row in self.node.clients()))

    def once_it_has_started(self, clean: bool) -> None:
        self.restart(clean)

    def go(self, kills: int, clean: int) -> Report:
        node, report = self.node, self.report
        node.daemon.start()
        for pod in self.pods:
            memory_bytes = None if pod.by_environment else pod.limit_bytes
            node.set_quota(pod.name, memory_bytes=memory_bytes, core_percent=pod.percent)
            for _ in range(2):
                self.registered(self.begin(pod))
        self._watcher.start()
        try:
            how = [False] * kills + [True] * clean
            self.chance.shuffle(how)
            moments: list[Callable[[bool], None]] = [
                *(self.at_random, self.after_a_registration),
                *(self.during_a_recall, self.once_it_has_started),
            ]
            for number, is_clean in enumerate(how):
                act = moments[number % len(moments)]
                act(is_clean)
                report.moments[act.__name__.replace("_", " ")] += 1
                if self.chance.random() < 0.3:
                    self.exchange()
            time.sleep(1)  # the last restart is over for everybody
            for pod in self.pods:
                for child in list(pod.processes):
                    self.end(pod, child)
        finally:
            self._ended.set()
            self._watcher.join()
            report.most_bytes = {pod.name: (pod.most_bytes, pod.limit_bytes) for pod in self.pods}
        return report


@contextmanager
def running(seed: int) -> Iterator[Run]:
    with tempfile.TemporaryDirectory(prefix="nvshare-restarts-") as name:
        found = Run(Path(name), seed)
        try:
            yield found
        finally:
            found.node.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--clean", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with running(arguments.seed) as found:
        report = found.go(arguments.kills, arguments.clean)
    print("\n".join(report.lines()))
    return int(report.over_bytes > 0)


if __name__ == "__main__":
    sys.exit(main())
