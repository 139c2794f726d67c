"""Runs a sampler and prints what it has, one line of JSON for each line of input."""

from __future__ import annotations

import json
import sys
import threading
import time
from dataclasses import asdict

from nvshare.gpu.reading import Seen
from nvshare.gpu.sampler import Sampler
from nvshare.pods.identity import process_of

INTERVAL_NS = 100_000_000
PAUSE_SEC = 0.05


def see(pid: int) -> Seen | None:
    process = process_of(pid)
    return None if process is None else Seen(process.start_ticks, "")


def main() -> None:
    told: list[str] = []
    sampler = Sampler(INTERVAL_NS, lambda _: None, see, lambda up, _: told.append("up" if up else "down"))
    sampler.start()
    for _ in sys.stdin:
        time.sleep(PAUSE_SEC)  # asked without a pause, the asking would be all this machine does
        now_ns = time.monotonic_ns()
        readings = []
        for reading in sampler.readings(now_ns):
            row = asdict(reading)
            row["processes"] = (
                None if reading.processes is None else [process._asdict() for process in reading.processes]
            )
            readings.append(row)
        sources = {name: asdict(source) for name, source in sampler.sources(now_ns).items()}
        state = {
            "up": sampler.up(),
            "told": told,
            "readings": readings,
            "sources": sources,
            "threads": threading.active_count(),
        }
        print(json.dumps(state), flush=True)


if __name__ == "__main__":
    main()
