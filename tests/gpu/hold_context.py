"""Has a context on the first GPU until its input ends."""

from __future__ import annotations

import sys

from nvshare.workloads.with_driver import DriverGpu


def main() -> None:
    DriverGpu()
    print("holding", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
