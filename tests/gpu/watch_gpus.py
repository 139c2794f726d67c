"""Runs a sampler and prints what it has, one line of JSON for each line of input.

A line may name what goes wrong from then on: ``see`` (no descriptor is left to look up a process),
``deliver`` (the handing over of a reading raises), ``thread`` (no thread can be started); an empty line ends
it.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import threading
import time
from dataclasses import asdict

from nvshare.gpu.reading import GpuReading, Seen
from nvshare.gpu.sampler import NVML, Sampler
from nvshare.pods.peer import process_of

INTERVAL_NS = 100_000_000
PAUSE_SEC = 0.05


WRONG = ""


def see(pid: int) -> Seen | None:
    if WRONG == "see":
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    process = process_of(pid)
    return None if process is None else Seen(process.start_ticks, "")


def deliver(_reading: GpuReading) -> None:
    if WRONG == "deliver":
        raise RuntimeError("nobody takes it")


class Thread(threading.Thread):
    def start(self) -> None:
        if WRONG == "thread" and self.name.startswith("gpu-"):
            raise RuntimeError("can't start new thread")
        super().start()


def main() -> None:
    global WRONG
    told: list[str] = []
    told_of_others: list[str] = []

    def tell(source: str, up: bool, _why: str) -> None:
        word = "up" if up else "down"
        if source == NVML:
            told.append(word)
        else:
            told_of_others.append(f"{source} {word}")

    WRONG = sys.argv[1] if len(sys.argv) > 1 else ""
    threading.Thread = Thread  # type: ignore[misc]
    sampler = Sampler(INTERVAL_NS, deliver, see, tell)
    sampler.start()
    for line in sys.stdin:
        WRONG = line.strip()
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
            "told_of_others": told_of_others,
            "readings": readings,
            "sources": sources,
            "threads": threading.active_count(),
        }
        print(json.dumps(state), flush=True)


if __name__ == "__main__":
    main()
