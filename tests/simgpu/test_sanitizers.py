"""The driver under AddressSanitizer (with undefined behaviour), ThreadSanitizer and valgrind."""

from __future__ import annotations

from typing import Any

import pytest

from nvshare.sim.gpu import library_directory

RUNS = [("plain",), ("hammer", "150"), ("threads",)]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run[0])
@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_sanitizer(sim: Any, sanitizer: str, run: tuple[str, ...]) -> None:
    build = library_directory().parent / f"simgpu-{sanitizer}"
    out = sim.run(str(build / run[0]), *run[1:], LD_LIBRARY_PATH=str(build), TSAN_OPTIONS="exitcode=66")
    assert out.endswith("PASS\n")


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run[0])
def test_valgrind(sim: Any, run: tuple[str, ...]) -> None:
    checks = ("--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite")
    out = sim.run("valgrind", "-q", *checks, "--show-leak-kinds=definite", sim.program(run[0]), *run[1:])
    assert out.endswith("PASS\n")
