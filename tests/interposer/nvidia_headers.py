"""NVIDIA's own list of the driver's functions: which versions each has had, and how many parameters."""

from __future__ import annotations

import re
from importlib.metadata import files
from typing import Final, NamedTuple

_TYPEDEF: Final = re.compile(r"\(CUDAAPI \*PFN_(cu\w+?)_v(\d+)(?:_(ptsz|ptds))?\)\(([^;]*)\);")


class Listed(NamedTuple):
    name: str
    since: int
    variant: str  # "": with the legacy default stream
    parameters: int


def _header(name: str) -> str:
    for file in files("nvidia-cuda-runtime-cu12") or ():
        if file.name == name:
            return file.read_text(encoding="utf-8")
    raise AssertionError(f"nvidia-cuda-runtime-cu12 has no {name}")


def count_parameters(text: str) -> int:
    text = text.strip()
    return 0 if text in ("", "void") else text.count(",") + 1


def listed_functions() -> list[Listed]:
    rows = {
        Listed(name, int(since), variant, count_parameters(parameters))
        for name, since, variant, parameters in _TYPEDEF.findall(_header("cudaTypedefs.h"))
    }
    assert len(rows) > 500, "the header has another form than this test knows"
    return sorted(rows)
