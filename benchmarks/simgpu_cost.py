"""What calls of the simulated driver cost their caller: CPU nanoseconds, median of 40 bursts of 500."""

from __future__ import annotations

import os
import subprocess
import tempfile

from nvshare.sim.gpu import library_directory


def main() -> None:
    """Print a line a function."""
    library = library_directory()
    with tempfile.TemporaryDirectory() as directory:
        environment = {
            **os.environ,
            "LD_LIBRARY_PATH": str(library),
            "NVSHARE_SIM": "t4:1",
            "NVSHARE_SIM_DIR": directory,
        }
        out = subprocess.run(
            [str(library / "cost")], env=environment, check=True, capture_output=True, text=True
        ).stdout
    for line in out.splitlines():
        name, nanoseconds = line.split()
        print(f"{name:24} {int(nanoseconds):6} ns")


if __name__ == "__main__":
    main()
