"""The model's arithmetic to the nanosecond: native/simgpu/tests/timeline.c, plain and sanitized."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nvshare.sim.gpu import library_directory


@pytest.mark.parametrize("build", ["simgpu", "simgpu-address"])
def test_arithmetic(sim: Any, tmp_path: Path, build: str) -> None:
    program = library_directory().parent / build / "timeline"
    assert sim.run(str(program), str(tmp_path / "own")) == "PASS\n"
