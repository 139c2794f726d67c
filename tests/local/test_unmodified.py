"""Programs that know nothing of nvshare, under `nvshare run`: cuda-bindings, and a plain C program."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from nvshare.sim.gpu import library_directory
from tests.local.harness import Place

SIDE = 14000
PROGRAMS = Path(__file__).resolve().parents[1] / "simgpu" / "programs"
LIMITS = ("--gpu", "0", "--gpu-core-limit", "50", "--gpu-memory-limit", "4Gi")


def add_ms(node: Place) -> float:
    """What the model says a 14000 x 14000 float addition takes."""
    card = node.cards()[0]
    return card.launch_ns / 1e6 + SIDE * SIDE * 12 / card.bandwidth_bytes_per_s * 1e3


def test_cuda_bindings(node: Place) -> None:
    result = node.nvshare("run", *LIMITS, "--", sys.executable, str(PROGRAMS / "bindings.py"))
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert (report["count"], report["name"]) == (1, "Tesla T4")
    assert report["total_bytes"] == 4 << 30, "its own view of the card"
    assert report["round_trip"] is True
    assert report["graph_nodes"] == 20
    assert report["too_much"] == "CUDA_ERROR_OUT_OF_MEMORY"
    assert report["used_bytes"] == 4096 + 3 * SIDE * SIDE * 4
    assert report["add_ms"] == pytest.approx(add_ms(node), rel=0.02)


def test_plain_c_program(node: Place) -> None:
    result = node.nvshare("run", *LIMITS, "--", str(library_directory() / "plain"))
    assert result.returncode == 0, result.stderr
    assert result.stdout.endswith("PASS\n")
    measured = {name: float(value) for name, value in re.findall(r"(\w+)=([\d.]+)", result.stdout)}
    assert measured["add_ms"] == pytest.approx(add_ms(node), rel=0.02)
    assert measured["graph_ms"] == pytest.approx(20 * (0.250 + node.cards()[0].launch_ns / 1e6), rel=0.05)
