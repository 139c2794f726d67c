"""Nodes and daemons whose directory is on a full disk: one line that says so, and the documented code."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from nvshare.sim.gpu import SimulatedNode
from tests.local.harness import WORKLOADS, Place

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
GPU = "GPU-11111111-2222-3333-4444-555555555555"
SMALL_KIB = 8192


@pytest.fixture
def small_disk(bare: Place) -> Iterator[Place]:
    """The private directory's parent is a disk of a few megabytes."""
    disk = bare.directory / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SMALL_KIB}k", "none", str(disk)], check=True)
    bare.private_dir = disk / "p"
    bare.control.path = bare.private_dir / "control.sock"
    bare.environment["NVSHARE_PRIVATE_DIR"] = str(bare.private_dir)
    try:
        yield bare
    finally:
        bare.nvshare("down")
        bare.close()
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def fill(disk: Path, but_kib: int = 0) -> None:
    """Leave so much of it."""
    with (disk / "filler").open("wb") as file, contextlib.suppress(OSError):
        for _ in range(left_kib(disk) - but_kib):
            file.write(bytes(1024))
            file.flush()


def test_the_daemon_says_it_in_one_line(small_disk: Place) -> None:
    fill(small_disk.private_dir.parent)
    result = small_disk.nvshare("scheduler", "--gpus", f"{GPU}=16Gi")
    assert result.returncode == 2
    assert "No space left on device" in result.stderr
    assert "Traceback" not in result.stderr


def left_kib(disk: Path) -> int:
    return os.statvfs(disk).f_bavail * os.statvfs(disk).f_bsize // 1024


def cards_kib(disk: Path) -> int:
    """What the state of simulated cards takes there."""
    before_kib = left_kib(disk)
    SimulatedNode(disk / "trial", "t4:1").close()
    taken_kib = before_kib - left_kib(disk)
    shutil.rmtree(disk / "trial")
    return taken_kib


@pytest.mark.parametrize("beside_kib", [-1000, -4, 0, 4, 8, 12, 64])
def test_a_node_is_up_or_says_why_not(small_disk: Place, beside_kib: int) -> None:
    """With so much for its other files: the daemon's log, its checkpoint, who is up."""
    disk = small_disk.private_dir.parent
    fill(disk, cards_kib(disk) + beside_kib)
    result = small_disk.nvshare("up", "--sim", "t4:1", "--detach")
    assert result.returncode in (0, 2), (result.returncode, result.stderr)
    assert "Traceback" not in result.stderr
    if result.returncode == 2:
        assert "No space left on device" in result.stderr
        assert result.stderr.count("\n") == 1


def test_a_program_on_a_node_whose_disk_is_full_gets_a_message(small_disk: Place) -> None:
    assert small_disk.nvshare("up", "--sim", "t4:1", "--detach").returncode == 0
    program = ("run", "--", *WORKLOADS, "w2", "--scale", "0.01")
    fill(small_disk.private_dir.parent)
    result = small_disk.nvshare(*program)
    assert result.returncode == 1, (result.returncode, result.stderr)
    assert "simulated libcuda: no room for this process" in result.stderr
    assert "No space left on device" in result.stderr
    (small_disk.private_dir.parent / "filler").unlink()
    assert small_disk.nvshare(*program).returncode == 0
