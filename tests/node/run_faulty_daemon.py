"""A daemon with a bug: the LOCK_OK with the number FAULTY_GRANT raises instead of being sent."""

from __future__ import annotations

import itertools
import os
import runpy
from collections.abc import Callable, Iterator

from nvshare.core.effects import Grant
from nvshare.node.effect_frames import ENCODERS, FRAMES


def faulty(frame: bytes, numbers: Iterator[int], fault: int) -> Callable[[Grant], bytes]:
    def tell(_grant: Grant) -> bytes:
        if next(numbers) == fault:
            raise ZeroDivisionError("a bug")
        return frame

    return tell


def main() -> None:
    numbers = itertools.count(1)
    for name, frames in FRAMES.items():
        ENCODERS[name][Grant] = faulty(frames.pop(Grant), numbers, int(os.environ["FAULTY_GRANT"]))
    runpy.run_module("tests.node.run_daemon")


main()
