"""kill -9 at any moment: nobody hangs, no memory is lost, no total is wrong; nodes do not mix."""

from __future__ import annotations

import random
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.simgpu import short_programs

WORKERS = 4


def check_totals(card: Any) -> None:
    """What the card counts is the sum of what its processes have."""
    assert card.used_bytes == sum(row.used_bytes for row in card.processes)
    assert card.resident_bytes == sum(row.resident_bytes for row in card.processes)
    assert card.used_bytes <= card.total_bytes
    assert card.busy_ns + card.switch_ns <= card.now_ns - card.created_ns
    for row in card.processes:
        assert row.completed_launches <= row.launches


def start(sim: Any) -> subprocess.Popen[str]:
    child: subprocess.Popen[str] = sim.start(sim.program("hammer"))
    return child


def kill_at_random(sim: Any, kills: int, seed: int) -> None:
    rng = random.Random(seed)
    running = [start(sim) for _ in range(WORKERS)]
    for number in range(kills):
        at = rng.randrange(WORKERS)
        victim = running[at]
        if rng.random() < 0.7:  # most die at work, some while they begin
            assert victim.stdout is not None
            assert victim.stdout.readline() == "running\n"
        time.sleep(rng.random() * 0.004)
        victim.kill()
        _, errors = victim.communicate(timeout=600)
        sim.children.remove(victim)
        assert victim.returncode == -9, f"kill {number} (seed {seed}): ended by itself: {errors}"
        running[at] = start(sim)
        if number % 10 == 0:
            check_totals(sim.card())
    for child in running:
        sim.end(child)
    card = sim.card()
    assert card.processes == ()
    assert card.used_bytes == 0
    assert "PASS" in sim.run(sim.program("hammer"), "300")


def test_a_hundred_kills(sim: Any) -> None:
    kill_at_random(sim, 100, seed=1)


@pytest.mark.verify
def test_a_thousand_kills(sim: Any) -> None:
    kill_at_random(sim, 1000, seed=2)


def crash(sim: Any, directory: Path, kills: int) -> None:
    """Children that do nothing but transactions die in the middle of one: native/simgpu/tests/crash.c."""
    assert sim.run(sim.program("crash"), str(directory), str(kills)).startswith("PASS after ")


def test_the_state_is_whole_after_each_of_300_kills(sim: Any, tmp_path: Path) -> None:
    crash(sim, tmp_path / "own", 300)


@pytest.mark.verify
def test_the_state_is_whole_after_each_of_3000_kills(sim: Any, tmp_path: Path) -> None:
    crash(sim, tmp_path / "own", 3000)


def test_a_process_that_waits_for_a_card_is_not_forgotten_when_another_waiter_dies(
    sim: Any, tmp_path: Path
) -> None:
    """The one that was woken is killed before it can pass that on: native/simgpu/tests/lost_wake.c."""
    assert sim.run(sim.program("lost_wake"), str(tmp_path / "own")) == "PASS\n"


def test_no_short_program_hangs_when_it_exits(tmp_path: Path) -> None:
    figures = short_programs.run(tmp_path / "own", programs=600, at_once=3)
    assert (figures.hangs, figures.failed) == (0, 0)


def test_survivors_go_on_and_get_the_memory(sim: Any) -> None:
    """A waiting process is not held up by a dead one's queue, nor refused for its memory."""
    first = sim.workload("w2")
    sim.wait_for_launches(1, 900)
    first.kill()
    first.wait()
    begun = sim.card().now_ns
    assert "PASS" in sim.run(sim.program("plain"))
    # The dead queue held 9 s of work.
    assert sim.card().now_ns - begun < 5_000_000_000
    assert sim.card().used_bytes == 0


def test_two_directories_never_mix(make_sim: Any) -> None:
    left, right = make_sim("t4:1", "left"), make_sim("t4:1", "right")
    child = left.workload("w2")
    left.wait_for_launches(1, 10)
    assert right.card().processes == ()
    assert right.card().busy_ns == 0
    assert left.card().uuid != right.card().uuid
    right.node.reset()
    left.end(child)
    again = make_sim("t4:1", "left")
    assert again.card().uuid == left.card().uuid
