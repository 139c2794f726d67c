"""Shares of real processes on a simulated T4: their completions against the native rate in the same run.

`python -m tests.local.shares` measures every mix, route and kernel length and prints a table; names of mixes
or routes, or kernel lengths, as arguments choose some. The driver's own books are the referee. The native
rate is that of the same programs without nvshare: of one process for tenants that take turns, of two for a
pod of two, which share their turn and so pay for the card's own switching in both cases.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from nvshare.sim.gpu import CardStatus, library_directory
from tests.local.harness import Place, node_up, read_line

ROOT: Final = Path(__file__).resolve().parents[2]
SETTLE_SEC: Final = 1.0
NATIVE_SEC: Final = 2.0
WHOLE: Final = 100


class Pod(NamedTuple):
    percent: int  # 100: no quota
    processes: int = 1


MIXES: Final[dict[str, tuple[Pod, ...]]] = {
    "25": (Pod(25),),
    "50": (Pod(50),),
    "75": (Pod(75),),
    "30+60": (Pod(30), Pod(60)),
    "25+75": (Pod(25), Pod(75)),
    "10+20+30+40": (Pod(10), Pod(20), Pod(30), Pod(40)),
    "2x50": (Pod(50, processes=2),),
    "30+free": (Pod(30), Pod(WHOLE)),
}
ROUTES: Final = ("direct", "procaddress", "graph")
KERNEL_US: Final = (100, 1000, 10_000)
SATURATED: Final = ("25+75", "10+20+30+40", "30+free")
"""Mixes that leave nothing idle, so that what is missing to the whole was lost to switching."""


class Result(NamedTuple):
    got_percent: tuple[float, ...]  # a pod each
    switched_percent: float  # of the time, by the driver's count of its context switches

    @property
    def lost_percent(self) -> float:
        return WHOLE - sum(self.got_percent)


def build_saturate(directory: Path) -> str:
    program = directory / "saturate"
    source = ROOT / "tests/local/programs/saturate.c"
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-O2", f"-I{ROOT}/native/simgpu/tests"]
    link = [f"-L{library_directory()}", "-lcuda"]
    subprocess.run(["cc", *flags, str(source), *link, "-o", str(program)], check=True)
    return str(program)


def completed(card: CardStatus, pids: list[int]) -> int:
    return sum(row.completed_launches for row in card.processes if row.pid in pids)


def rates(place: Place, pids: list[list[int]], seconds: float) -> tuple[list[float], float]:
    """Completions a second of each group of processes, and the part of the time the card switched."""
    [before] = place.cards()
    time.sleep(seconds)  # how long they are watched
    [after] = place.cards()
    span_ns = after.now_ns - before.now_ns
    found = [(completed(after, group) - completed(before, group)) * 1e9 / span_ns for group in pids]
    return found, (after.switch_ns - before.switch_ns) / span_ns


@contextmanager
def working(children: list[subprocess.Popen[str]]) -> Iterator[None]:
    """All of them have completed a kernel; they end with the block."""
    try:
        for child in children:
            assert read_line(child) == "ready", child.stderr.read() if child.stderr else ""
        time.sleep(SETTLE_SEC)
        yield
    finally:
        for child in children:
            child.terminate()
        for child in children:
            child.communicate()


def native_rate(place: Place, command: tuple[str, ...], processes: int) -> float:
    simulated = place.state().simulated
    assert simulated is not None
    driver = simulated.environment({})
    children = [place.start(*command, **driver) for _ in range(processes)]
    with working(children):
        [rate], _ = rates(place, [[child.pid for child in children]], NATIVE_SEC)
    return rate


def measure(mix: str, route: str, kernel_us: int, seconds: float, times: int = 1) -> Result:
    """The median of so many windows, one after the other."""
    pods = MIXES[mix]
    with node_up("--sim", "t4:1") as place:
        command = (build_saturate(place.directory), str(kernel_us), route)
        native = {number: native_rate(place, command, number) for number in {pod.processes for pod in pods}}
        children, names = [], []
        for number, pod in enumerate(pods):
            names.append(f"shares/p{number}")
            options = ("--pod", names[-1], "--gpu-core-limit", str(pod.percent))
            children += [place.run(*options, command=command) for _ in range(pod.processes)]
        with working(children):
            pids = [[row["pid"] for row in place.clients() if row["pod"] == name] for name in names]
            assert [len(group) for group in pids] == [pod.processes for pod in pods]
            windows = [rates(place, pids, seconds) for _ in range(times)]
    per_pod = zip(*(found for found, _ in windows), strict=True)
    got = (
        statistics.median(column) / native[pod.processes] * WHOLE
        for column, pod in zip(per_pod, pods, strict=True)
    )
    return Result(tuple(got), statistics.median(switched for _, switched in windows) * 100)


def misses(mix: str, result: Result, points: float = 2, lost_percent: float = 4) -> list[str]:
    """What is wrong with a result, in words; empty if nothing is."""
    found = [
        f"{mix}: {pod.percent} % got {got:.2f} %"
        for pod, got in zip(MIXES[mix], result.got_percent, strict=True)
        if pod.percent < WHOLE and abs(got - pod.percent) > points
    ]
    if mix in SATURATED and result.lost_percent > lost_percent:
        found.append(f"{mix}: {result.lost_percent:.2f} % of the GPU's time lost to switching")
    return found


def main(chosen: list[str]) -> int:
    seconds = next((float(word.removeprefix("--for=")) for word in chosen if word.startswith("--for=")), 20.0)
    times = next((int(word.removeprefix("--times=")) for word in chosen if word.startswith("--times=")), 3)
    words = [word for word in chosen if not word.startswith("--")]
    known = {*MIXES, *ROUTES, *map(str, KERNEL_US)}
    if set(words) - known:
        print(f"accepted: --for=20, --times=3, {', '.join(sorted(known))}", file=sys.stderr)
        return 2
    wrong = []
    print(f"{'mix':<14}{'route':<13}{'kernel us':>9}  {'got %':<32}{'lost %':>8}{'card switching %':>18}")
    for mix in [name for name in MIXES if name in words] or MIXES:
        for route in [name for name in ROUTES if name in words] or ROUTES:
            for kernel_us in [us for us in KERNEL_US if str(us) in words] or KERNEL_US:
                result = measure(mix, route, kernel_us, seconds, times)
                got = "  ".join(f"{share:.2f}" for share in result.got_percent)
                lost = f"{result.lost_percent:.2f}" if mix in SATURATED else "-"
                marks = misses(mix, result)
                print(
                    f"{mix:<14}{route:<13}{kernel_us:>9}  {got:<32}{lost:>8}{result.switched_percent:>18.2f}"
                    f"{'  MISSED' if marks else ''}",
                    flush=True,
                )
                wrong += marks
    print("\n".join(wrong) or "all within 2 points, at most 4 % lost")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
