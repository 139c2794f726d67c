"""``python -m nvshare.workloads w1|w2|w3|w4|w5``."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from typing import Final

from nvshare.workloads.gpu import GpuError, OutOfMemoryError, open_gpu
from nvshare.workloads.run import LOOP_BYTES, WORKLOADS, Options

_UNITS: Final[dict[str, int]] = {
    "": 1,
    **{f"{letter}i": 1 << shift for letter, shift in (("K", 10), ("M", 20), ("G", 30), ("T", 40))},
    **{letter: 1000**power for power, letter in enumerate("KMGT", start=1)},
}


def parse_size(text: str) -> int:
    """Bytes of 4Gi, 4GiB, 4G, 512M or plain bytes."""
    match = re.fullmatch(r"(\d+)([KMGT]i?)?B?", text)
    if match is None or int(match[1]) == 0:
        raise argparse.ArgumentTypeError(
            f"'{text}' is not a size: a number above 0 with Ki, Mi, Gi, Ti, K, M, G, T or nothing"
        )
    number, unit = match.group(1, 2)
    return int(number) * _UNITS[unit or ""]


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number above 0")
    return value


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number above 0")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m nvshare.workloads", description=__doc__)
    parser.add_argument("workload", choices=sorted(WORKLOADS), help="which")
    parser.add_argument("--scale", type=_positive, default=1.0, help="run this part of the iterations (0.01)")
    parser.add_argument("--iterations", type=_count, help="instead of the workload's own number")
    parser.add_argument("--size", type=_count, help="side of the matrices instead of the workload's own")
    parser.add_argument("--oversize", action="store_true", help="w4: one addition that exceeds the card")
    parser.add_argument(
        "--alloc", type=parse_size, default=LOOP_BYTES, help="w4: size of the allocation (512Mi)"
    )
    parser.add_argument("--duration", type=_positive, default=300.0, help="w5: seconds (300)")
    parser.add_argument("--interval", type=_positive, default=10.0, help="w5: seconds between lines (10)")
    parser.add_argument("--probe-alloc", type=parse_size, help="w5: try an extra allocation of this size")
    parser.add_argument("--every", type=_positive, default=10.0, help="w5: seconds between such tries (10)")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one workload; 0, or 1 when the GPU refused."""
    given = _parser().parse_args(arguments)
    options = Options(
        scale=given.scale,
        iterations=given.iterations,
        size=given.size,
        duration_seconds=given.duration,
        interval_seconds=given.interval,
        probe_bytes=given.probe_alloc,
        probe_every_seconds=given.every,
        oversize=given.oversize,
        alloc_bytes=given.alloc,
    )
    try:
        gpu = open_gpu()
        print(f"{given.workload} on {gpu.name}", flush=True)
        WORKLOADS[given.workload](gpu, options)
    except OutOfMemoryError as error:
        print(f"out of memory: {error}", file=sys.stderr)
        return 1
    except GpuError as error:
        print(f"GPU error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
