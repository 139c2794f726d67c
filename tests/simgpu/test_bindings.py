"""Unmodified programs: NVIDIA's cuda-bindings and a plain C program. Events measure the model's time."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

SIDE = 14000


def add_ms(card: Any) -> float:
    """What the model says a 14000 x 14000 float addition takes."""
    return float(card.launch_ns / 1e6 + SIDE * SIDE * 12 / card.bandwidth_bytes_per_s * 1e3)


@pytest.mark.parametrize(
    ("spec", "name", "processors"), [("t4:2", "Tesla T4", 40), ("a800:1", "NVIDIA A800", 108)]
)
def test_cuda_bindings(make_sim: Any, spec: str, name: str, processors: int) -> None:
    sim = make_sim(spec)
    report = sim.script("bindings.py")
    card = sim.card()
    assert report["count"] == int(spec.split(":")[1])
    assert report["name"].startswith(name)
    assert report["multiprocessors"] == processors
    assert report["total_bytes"] == card.total_bytes
    assert report["round_trip"] is True
    assert report["add_ms"] == pytest.approx(add_ms(card), rel=0.02)
    assert report["graph_ms"] == pytest.approx(20 * (0.250 + card.launch_ns / 1e6), rel=0.02)
    assert report["graph_nodes"] == 20
    assert report["too_much"] == "CUDA_ERROR_OUT_OF_MEMORY"
    assert report["unsupported"] == "CUDA_ERROR_NOT_SUPPORTED"
    assert report["used_bytes"] == card.context_bytes + 4096 + 3 * SIDE * SIDE * 4


def test_the_t4_adds_in_about_9_8_ms(sim: Any) -> None:
    assert add_ms(sim.card()) == pytest.approx(9.8, rel=0.01)


def test_plain_c_program(sim: Any) -> None:
    out = sim.run(sim.program("plain"))
    measured = {name: float(value) for name, value in re.findall(r"(\w+)=([\d.]+)", out)}
    assert measured["add_ms"] == pytest.approx(add_ms(sim.card()), rel=0.02)
    assert measured["graph_ms"] == pytest.approx(20 * (0.250 + sim.card().launch_ns / 1e6), rel=0.02)
    assert out.endswith("PASS\n")
    card = sim.card()
    assert card.processes == ()
    assert card.used_bytes == 0


def test_get_proc_address(sim: Any) -> None:
    report = sim.script("lookup.py")
    assert report["wrong"] == []
    assert report["too_old"] == [2, None]
    assert report["unknown"] == [1, None]
    assert report["old_unknown"] == 500
    assert report["streams"] == 3


def test_a_forked_child_cannot_use_the_parents_driver(sim: Any) -> None:
    code = (
        "import os\nfrom cuda_calls import *\nopen_device()\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    print(code_of(cuda.cuMemAlloc(64)), code_of(cuda.cuInit(0)), flush=True)\n"
        "    os._exit(0)\n"
        "os.waitpid(pid, 0)\nprint(code_of(cuda.cuMemAlloc(64)))"
    )
    programs = str(Path(__file__).parent / "programs")
    lines = sim.run(sys.executable, "-c", code, PYTHONPATH=programs).splitlines()
    assert lines == ["CUDA_ERROR_NOT_INITIALIZED CUDA_ERROR_NOT_INITIALIZED", "CUDA_SUCCESS"]
