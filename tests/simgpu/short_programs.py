"""Thousands of short programs whose threads stand at the card when they exit: does any of them hang?

A few run at once, and the next few when all of them have ended: who goes on using the card would wake the one
that hangs.

    python -m tests.simgpu.short_programs [--programs 20000] [--at-once 3]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple

from nvshare.sim.gpu import SimulatedNode, library_directory

HANGS_SEC: Final = 30.0
"""It lives for milliseconds; so long takes none that only waits for a slow machine."""


class Figures(NamedTuple):
    programs: int
    hangs: int
    failed: int
    seconds: float


def run(directory: Path, programs: int, at_once: int) -> Figures:
    environment = {
        **os.environ,
        "NVSHARE_SIM": "t4:1",
        "NVSHARE_SIM_DIR": str(directory),
        "LD_LIBRARY_PATH": str(library_directory()),
    }
    node = SimulatedNode(directory, "t4:1")  # outlives them all, as a daemon would
    program = str(library_directory() / "brief")
    started = hangs = failed = 0
    began = time.monotonic()
    while started < programs:
        together = [subprocess.Popen([program], env=environment) for _ in range(at_once)]
        started += len(together)
        for child in together:
            try:
                failed += child.wait(HANGS_SEC) != 0
            except subprocess.TimeoutExpired:
                hangs += 1
                child.kill()
                child.wait()
    node.close()
    return Figures(started, hangs, failed, time.monotonic() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=20_000)
    parser.add_argument("--at-once", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nvshare-short-") as name:
        figures = run(Path(name), arguments.programs, arguments.at_once)
    ends = f"{figures.hangs} hung, {figures.failed} failed"
    print(f"{figures.programs} programs in {figures.seconds:.0f} s: {ends}")
    raise SystemExit(bool(figures.hangs or figures.failed))


if __name__ == "__main__":
    main()
