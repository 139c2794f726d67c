"""What lies gain: a table of what a liar with a cap of 10 % got of a simulated card, and its neighbour kept.

    python -m tests.hostile.lies --seconds 30

Each row is a daemon of its own that looks at NVML every second, a liar that speaks the protocol itself
(``programs/liar.py``), and an honest neighbour with the library: once with a quota of 60 %, once without.
What each got is the card's own count.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tests.interposer.harness import Node, line_of, sampling_node
from tests.tables import Table

CAP_PERCENT: Final = 10
LIAR_MOST_PERCENT: Final = 15.0
NEIGHBOUR_PERCENT: Final = 60
NEIGHBOUR_POINTS: Final = 2.0
MEMORY_LIMIT_BYTES: Final = 1 << 30
KERNEL_US: Final = "2000"
TESTS: Final = Path(__file__).resolve().parents[1]
PROGRAM: Final = TESTS / "hostile" / "programs" / "liar.py"
PYTHONPATH: Final = os.pathsep.join(
    [str(TESTS.parent), str(TESTS / "simgpu" / "programs"), os.environ.get("PYTHONPATH", "")]
)


class Lie(NamedTuple):
    name: str  # of liar.py's
    processes: int = 1
    settings: tuple[tuple[str, str], ...] = ()
    bounded: bool = True  # what it got is judged
    cards: int = 1

    @property
    def title(self) -> str:
        many = f", {self.processes} processes" if self.processes > 1 else ""
        return self.name + many + (", killed after 2 s" if self.settings else "")


LIES: Final = (
    Lie("honest"),
    Lie("busy 0"),
    Lie("busy 0, hung up"),
    Lie("half of busy"),
    Lie("idle"),
    Lie("late by 0.3 s"),
    Lie("late on two GPUs", cards=2),
    Lie("resume"),
    Lie("reconnect"),
    Lie("wrong grants"),
    Lie("busy 0", 50),
    Lie("claims"),
    Lie("a context for each hold"),
    Lie("a process for each hold", 3),
    Lie("never releasing", bounded=False),
    Lie("never releasing", settings=(("NVSHARE_ON_UNRESPONSIVE", "kill"), ("NVSHARE_DROP_TIMEOUT_SEC", "2"))),
)


class Got(NamedTuple):
    """In percent of the card."""

    liar: float
    neighbour: float


def busy(node: Node, neighbour: int) -> tuple[float, float, float]:
    """The card's time, and what it worked for all others and for the neighbour, in seconds."""
    card = node.card()
    mine = sum(row.busy_ns for row in card.processes if row.pid == neighbour)
    return card.now_ns / 1e9, (card.busy_ns - mine) / 1e9, mine / 1e9


@contextmanager
def stage(
    directory: Path, lie: Lie, quota: int
) -> Iterator[tuple[Node, subprocess.Popen[str], subprocess.Popen[str]]]:
    """A node with a liar and an honest neighbour, both running."""
    node = sampling_node(directory, f"t4:{lie.cards}", **dict(lie.settings))
    try:
        node.set_quota("liar", core_percent=CAP_PERCENT, memory_bytes=MEMORY_LIMIT_BYTES)
        node.set_quota("neighbour", core_percent=quota)
        windowed = [node.program("windowed"), "-", "neighbour", "", KERNEL_US]
        neighbour = node.start(*windowed, pod="neighbour")
        assert line_of(neighbour) == "running"
        socket = str(node.daemon.sock_dir / "scheduler.sock")
        gpus = ",".join(card.uuid for card in node.cards.status().cards)
        words = [lie.name, socket, "liar", gpus, str(lie.processes)]
        liar = node.start(*node.python(str(PROGRAM), *words), LD_PRELOAD="", PYTHONPATH=PYTHONPATH)
        assert line_of(liar) == "running", liar.communicate()[1]
        yield node, liar, neighbour
    finally:
        node.close()


def measure(lie: Lie, quota: int, seconds: float) -> Got:
    with (
        tempfile.TemporaryDirectory(prefix="nvshare-test-") as name,
        stage(Path(name), lie, quota) as (node, liar, neighbour),
    ):
        before = busy(node, neighbour.pid)
        time.sleep(seconds)  # what is measured is how much each gets in that time
        after = busy(node, neighbour.pid)
        assert lie.settings or liar.poll() is None, liar.communicate()[1]
    passed, other, mine = (new - old for old, new in zip(before, after, strict=True))
    return Got(100 * other / passed, 100 * mine / passed)


def is_good(lie: Lie, beside_quota: Got, beside_none: Got) -> bool:
    least = NEIGHBOUR_PERCENT - NEIGHBOUR_POINTS  # and without a quota no less: the liar may have 15
    kept = beside_quota.neighbour >= least and beside_none.neighbour >= least
    return not lie.bounded or (kept and max(beside_quota.liar, beside_none.liar) <= LIAR_MOST_PERCENT)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=30.0, help="of each row (default: %(default)s)")
    parser.add_argument("--lie", action="append", help="only these; can be given again")
    options = parser.parse_args()
    known = [lie.title for lie in LIES]
    if wrong := [name for name in options.lie or () if name not in known]:
        print(f"{wrong[0]!r} is no lie; accepted: {', '.join(known)}", file=sys.stderr)
        return 2
    table = Table(f"{'lie':34}{'liar':>8}{'60 %':>8}{'liar':>8}{'no quota':>10}")
    for lie in LIES:
        if options.lie and lie.title not in options.lie:
            continue
        beside_quota = measure(lie, NEIGHBOUR_PERCENT, options.seconds)
        beside_none = measure(lie, 100, options.seconds)
        figures = f"{beside_quota.liar:8.1f}{beside_quota.neighbour:8.1f}{beside_none.liar:8.1f}"
        figures += f"{beside_none.neighbour:10.1f}"
        table.row(f"{lie.title:34}{figures}", is_good(lie, beside_quota, beside_none))
    return table.end(
        f"bounds: liar {LIAR_MOST_PERCENT:g}, neighbour {NEIGHBOUR_POINTS:g} points below its quota"
    )


if __name__ == "__main__":
    sys.exit(main())
