"""The README's list of what is missing is the driver's."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import pytest

from nvshare.sim.gpu import library_directory

NATIVE = Path(__file__).parents[2] / "native" / "simgpu"
HEADING = "## Functions that answer CUDA_ERROR_NOT_SUPPORTED"
NOT_SUPPORTED = 801


def listed() -> list[str]:
    return re.findall(r"`(cu\w+)`", (NATIVE / "README.md").read_text().split(HEADING)[1])


def test_the_list_is_the_drivers() -> None:
    assert listed() == re.findall(r"UNSUPPORTED\((\w+)\)", (NATIVE / "unsupported.def").read_text())


@pytest.mark.parametrize("name", listed()[::10])
def test_they_answer_so(name: str) -> None:
    library = ctypes.CDLL(str(library_directory() / "libcuda.so.1"))
    assert getattr(library, name)() == NOT_SUPPORTED
