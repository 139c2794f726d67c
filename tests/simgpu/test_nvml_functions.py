"""Every function that NVIDIA's own binding can call is there: what is not supported says so."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any, Final

import pynvml

from nvshare.sim.gpu import library_directory

CALLED: Final = re.compile(r'_nvmlGetFunctionPointer\("(\w+)"\)')
NOT_SUPPORTED: Final = 3


def test_no_function_is_missing() -> None:
    assert pynvml.__file__ is not None
    names = set(CALLED.findall(Path(pynvml.__file__).read_text(encoding="utf-8")))
    names |= {"nvmlDeviceGetPciInfo", "nvmlDeviceGetPciInfo_v2", "nvmlInit"}  # of older bindings
    assert len(names) > 350
    library = ctypes.CDLL(str(library_directory() / "libnvidia-ml.so.1"))
    assert sorted(name for name in names if not hasattr(library, name)) == []


def test_what_older_tools_ask_for_is_answered(sim: Any) -> None:
    answer = sim.script("older_nvml.py")
    assert answer["pci"] == 0
    assert answer["behind"] == "x" * 16, "the older layout is shorter"
    assert answer["fan"] == NOT_SUPPORTED
    assert answer["state"] == 8
    assert answer["clocks"][0] == answer["clocks"][1]
