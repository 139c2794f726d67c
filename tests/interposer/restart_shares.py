"""Two programs with quotas of 40 and 50 %, and the daemon killed again and again: what does each get?

python -m tests.interposer.restart_shares [--kills 50] [--seed 1]
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nvshare.sim.gpu import SimulatedNode
from tests.interposer.harness import Node

QUOTAS: Final = (40, 50)
BOUND_POINTS: Final = 2.0
BOUND_MS: Final = 2000
"""Beyond the longest time without a daemon."""
CARDS: Final = "t4:1"
SETTLED_SEC: Final = 5
"""After that everybody has what it is due."""


@dataclass(frozen=True)
class Report:
    kills: int
    seconds: float
    away_ms: float  # the longest time without a daemon
    away_sec: float  # all of it
    shares: tuple[float, ...]
    gaps_ms: tuple[float, ...]  # the longest without a launch

    def is_good(self) -> bool:
        """While there is no daemon only one that had the GPU has it, so both may get that much less."""
        served = 1 - self.away_sec / self.seconds
        near = all(
            quota * served - BOUND_POINTS <= got <= quota + BOUND_POINTS
            for got, quota in zip(self.shares, QUOTAS, strict=True)
        )
        return near and max(self.gaps_ms) <= self.away_ms + BOUND_MS

    def __str__(self) -> str:
        away = f"{self.away_sec:.1f} s without a daemon, at most {self.away_ms:.0f} ms at a time"
        rows = [f"{self.kills} kills in {self.seconds:.0f} s: {away}"]
        for quota, got, gap_ms in zip(QUOTAS, self.shares, self.gaps_ms, strict=True):
            rows.append(f"quota {quota} %: got {got:.1f} %, longest standstill {gap_ms:.0f} ms")
        return "\n".join(rows)


class Watch:
    """Looks at the card all the time: how long each process got nothing done, by its own count."""

    def __init__(self, node: Node, pids: list[int]) -> None:
        self._pids = pids
        self._cards = SimulatedNode(node.directory / "sim", CARDS)
        self._ended = threading.Event()
        self.longest_ns = dict.fromkeys(pids, 0)
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def _look(self) -> None:
        last: dict[int, tuple[int, int]] = {}
        while not self._ended.wait(0.002):
            busy_ns, now_ns = busy(self._cards, self._pids)
            for pid, done_ns in zip(self._pids, busy_ns, strict=True):
                before = last.setdefault(pid, (done_ns, now_ns))
                self.longest_ns[pid] = max(self.longest_ns[pid], now_ns - before[1])
                if done_ns != before[0]:
                    last[pid] = (done_ns, now_ns)

    def end(self) -> None:
        self._ended.set()
        self._thread.join()
        self._cards.close()


def busy(cards: SimulatedNode, pids: list[int]) -> tuple[list[int], int]:
    """What the card did for each, and when."""
    card = cards.status().cards[0]
    busy_ns = {row.pid: row.busy_ns for row in card.processes}
    return [busy_ns[pid] for pid in pids], card.now_ns


def kill_again_and_again(node: Node, kills: int, chance: random.Random) -> list[float]:
    """How many seconds there was no daemon, each time."""
    away_sec = []
    for _ in range(kills):
        time.sleep(chance.uniform(1, 4))  # how long a daemon lives
        began = time.monotonic()
        node.daemon.kill()
        node.daemon.start()
        away_sec.append(time.monotonic() - began)
    return away_sec


def measure(directory: Path, kills: int, seed: int) -> Report:
    node = Node(directory, CARDS)
    try:
        node.daemon.start()
        for quota in QUOTAS:
            node.set_quota(f"q{quota}", core_percent=quota)
        command = node.python("-m", "nvshare.workloads", "w5", "--duration", "86400")
        pids = [node.start(*command, pod=f"q{quota}").pid for quota in QUOTAS]
        node.wait_for(lambda: all(row is not None and row.launches > 100 for row in map(node.process, pids)))
        time.sleep(SETTLED_SEC)
        before_ns, began_ns = busy(node.cards, pids)
        watch = Watch(node, pids)
        away_sec = kill_again_and_again(node, kills, random.Random(seed))
        time.sleep(SETTLED_SEC)
        after_ns, ended_ns = busy(node.cards, pids)
        watch.end()
        passed_ns = ended_ns - began_ns
        shares = [
            (after - before) * 100 / passed_ns for before, after in zip(before_ns, after_ns, strict=True)
        ]
        gaps_ms = [watch.longest_ns[pid] / 1e6 for pid in pids]
        away_ms = max(away_sec, default=0) * 1000
        return Report(kills, passed_ns / 1e9, away_ms, sum(away_sec), tuple(shares), tuple(gaps_ms))
    finally:
        node.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nvshare-restarts-") as name:
        report = measure(Path(name), arguments.kills, arguments.seed)
    print(report)
    return int(not report.is_good())


if __name__ == "__main__":
    sys.exit(main())
