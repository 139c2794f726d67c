"""Finds the library that programs are started with, and the simulated driver."""

from __future__ import annotations

from pathlib import Path
from typing import Final

INTERPOSER: Final = "libnvshare.so"
_SEPARATORS: Final = frozenset(" \t\n:")
_PACKAGE: Final = Path(__file__).resolve().parents[1]


class InterposerMissingError(Exception):
    """The library was not built, or cannot be used where it is."""


def interposer_library() -> Path:
    """Installed with the package, or built in the repository."""
    places = (_PACKAGE / "lib" / INTERPOSER, _PACKAGE.parents[1] / "build" / "interposer" / INTERPOSER)
    for place in places:
        if place.exists():
            if set(str(place)) & _SEPARATORS:
                raise InterposerMissingError(
                    f"{str(place)!r} cannot be preloaded: the loader takes blanks and colons for separators;"
                    " install the package under another path"
                )
            return place
    raise InterposerMissingError(
        f"no {INTERPOSER} in {' or '.join(str(place.parent) for place in places)}:"
        " install the package with a C compiler at hand, or run `make interposer` in the repository"
    )


SIMULATED_DRIVER_FILES: Final = ("libcuda.so.1", "libnvidia-ml.so.1")


def simulated_driver_places() -> list[Path]:
    """Where the simulated driver may be: the package, and the repository's build."""
    return [_PACKAGE / "lib" / "simgpu", _PACKAGE.parents[1] / "build" / "simgpu"]
