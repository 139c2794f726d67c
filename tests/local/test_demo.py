"""`nvshare demo`: the story it tells is true, and it leaves nothing behind."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nvshare.client.control import ControlClient
from nvshare.local.demo import cast
from nvshare.local.state import read_state
from nvshare.sim.gpu import SimulatedNode
from tests.local.harness import NVSHARE, Place, gone, read_line, wait_until
from tests.node.harness import PATIENCE_SEC
from tests.noise import despite_noise
from tests.test_repository import ROOT

PODS = ["demo/free", "demo/pair-a", "demo/pair-b", "demo/sixty", "demo/thirty", "demo/visitor"]
STEADY = ("demo/thirty", "demo/sixty", "demo/free")
ROW = re.compile(r"gpu (\d)  (\S+): asked (.+?), due .+?, got ([\d.]+) %, memory (.+?), state (.+)")


class Show:
    """A demo that runs, and a look behind the stage."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.head = []
        while not (line := read_line(process)).startswith("  export "):
            self.head.append(line)
        names = dict(word.split("=") for word in line.split()[1:])
        self.stage = Path(names["NVSHARE_PRIVATE_DIR"]).parent
        self.private_dir = Path(names["NVSHARE_PRIVATE_DIR"])
        self.control = ControlClient(self.private_dir)

    def clients(self) -> dict[str, int]:
        return {row["pod"]: row["pid"] for row in self.control.ask("GET", "/v1/clients")["clients"]}

    def rest(self) -> str:
        """What it still says, until its end."""
        assert self.process.stdout is not None
        text = self.process.stdout.read()
        assert self.process.wait(PATIENCE_SEC) == 0
        return text

    def everybody(self) -> list[int]:
        """Every process of it that can be known from outside."""
        state = read_state(self.private_dir)
        assert state is not None
        return [state.pid, self.control.ask("GET", "/v1/status")["pid"], *self.clients().values()]


@contextmanager
def show(bare: Place, seconds: int) -> Iterator[Show]:
    process = bare.start(*NVSHARE, "demo", "--for", str(seconds))
    yield Show(process)
    assert process.poll() is not None


def test_ctrl_c_leaves_nothing_behind(bare: Place) -> None:
    with show(bare, 600) as demo:
        assert any("SIMULATED GPUs (t4:2)" in line for line in demo.head)
        wait_until(lambda: sorted(demo.clients()) == PODS, "all are on stage")
        everybody = demo.everybody()
        assert len(everybody) == 2 + len(PODS)
        demo.process.send_signal(signal.SIGINT)
        out = demo.rest()
    assert "What each asked for and got" in out
    assert all(gone(pid) for pid in everybody)
    assert not demo.stage.exists()


def test_killed_it_takes_everybody_along(bare: Place) -> None:
    with show(bare, 600) as demo:
        wait_until(lambda: sorted(demo.clients()) == PODS, "all are on stage")
        everybody = demo.everybody()
        demo.process.kill()
        demo.process.wait()
    wait_until(lambda: all(gone(pid) for pid in everybody), "nobody is left")
    shutil.rmtree(demo.stage)


def shown_and_counted(bare: Place, seconds: int) -> tuple[dict[str, re.Match[str]], dict[str, float]]:
    """The closing table, and busy time in the driver's books in percent of nearly the same time."""
    with show(bare, seconds) as demo:
        wait_until(lambda: sorted(demo.clients()) == PODS, "all are on stage")
        state = read_state(demo.private_dir)
        assert state is not None
        assert state.simulated is not None
        node = SimulatedNode(Path(state.simulated.directory), state.simulated.cards)
        pids = {pod: pid for pod, pid in demo.clients().items() if pod in STEADY}
        before, start_ns = _busy_ns(node), time.monotonic_ns()
        while not read_line(demo.process).startswith("What each"):
            now = _busy_ns(node)
            if now.keys() >= set(pids.values()):  # the last lines are read when the show is over
                after, end_ns = now, time.monotonic_ns()
        node.close()
        rows = {match[2]: match for match in ROW.finditer(demo.rest())}
    assert not demo.stage.exists()
    return rows, {pod: (after[pid] - before[pid]) * 100 / (end_ns - start_ns) for pod, pid in pids.items()}


def part_of_thirty(thirty: float, sixty: float) -> float:
    return thirty * 90 / (thirty + sixty)


def test_what_it_shows_is_what_the_driver_counted(bare: Place) -> None:
    """On a machine that may be slow the two are compared by their proportion."""

    def check() -> None:
        rows, counted = shown_and_counted(bare, 15)
        assert sorted(rows) == PODS
        assert (rows["demo/thirty"][3], rows["demo/free"][3]) == ("30 %", "no quota")
        assert rows["demo/pair-a"][5] == "12 GiB"
        shown = part_of_thirty(float(rows["demo/thirty"][4]), float(rows["demo/sixty"][4]))
        assert shown == pytest.approx(part_of_thirty(counted["demo/thirty"], counted["demo/sixty"]), abs=3)
        assert shown == pytest.approx(30, abs=3)

    despite_noise(check)


@pytest.mark.verify
def test_what_it_shows_is_what_the_driver_counted_to_the_point(bare: Place) -> None:
    rows, counted = shown_and_counted(bare, 60)
    for pod, percent in counted.items():
        assert float(rows[pod][4]) == pytest.approx(percent, abs=2), pod


def _busy_ns(node: SimulatedNode) -> dict[int, int]:
    return {row.pid: row.busy_ns for card in node.status().cards for row in card.processes}


def test_a_single_gpu_has_all_of_them() -> None:
    tenants = cast([24 << 30])
    assert {tenant.gpu for tenant in tenants} == {0}
    assert [tenant.memory_bytes for tenant in tenants if "pair" in tenant.name] == [18 << 30] * 2


def test_a_time_that_cannot_be_meant(bare: Place) -> None:
    result = bare.nvshare("demo", "--for", "soon")
    assert result.returncode == 2
    assert "--for 'soon' is not understood; accepted: seconds, 1 to 86400" in result.stderr


@pytest.mark.verify
def test_make_demo_in_a_clean_clone(tmp_path: Path) -> None:
    """As a newcomer: clone, one command, a closing table, and a tree that git sees as untouched."""
    clone = tmp_path / "clone"
    git = ["git", "-c", "safe.directory=*"]
    subprocess.run([*git, "clone", "--quiet", "--no-hardlinks", str(ROOT), str(clone)], check=True)
    assert shutil.which("make") is not None
    result = subprocess.run(
        ["make", "demo", "FOR=60"], cwd=clone, capture_output=True, text=True, timeout=20 * PATIENCE_SEC
    )
    assert result.returncode == 0, result.stderr
    assert sorted(match[2] for match in ROW.finditer(result.stdout.split("What each")[1])) == PODS
    status = subprocess.run(
        [*git, "-C", str(clone), "status", "--short"], capture_output=True, text=True, check=True
    )
    assert status.stdout == ""
