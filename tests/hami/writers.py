"""Processes write slots of a region as HAMi's library does, with its seqlock, while the region is read.

Each writer's figures are all made from one number, so a value that was put together from two writes is
noticed.
"""

from __future__ import annotations

import argparse
import mmap
import multiprocessing
import sys
import tempfile
from collections import Counter
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Final

from nvshare.hami.region import Slot, read_region
from nvshare.pods.region_files import RegionFile
from tests.hami.samples import region_bytes

SAMPLES: Final = {"v1.2-single-process-2gpu": (1856, 8, 1936), "v1.1-shifted-hami2.8.1": (1888, 16, 8)}
"""Of a sample: its first slot, and where a slot's first memory record and its seqlock are."""
SLOT_BYTES: Final = 1960
WRITERS: Final = 3
_FACTORS: Final = (1, 2, 3, 5, 7)
_PAUSE_STEPS: Final = 500
_STARTED_SEC: Final = 60.0


def _write(path: str, slot: int, used: int, seqlock: int, number: int, started: Event, ended: Event) -> None:
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        words = memoryview(mapped)[slot : slot + SLOT_BYTES].cast("Q")
        records = [(used + 64 * device) // 8 for device in range(2)]
        lock, value = seqlock // 8, number
        while not ended.is_set():
            value += WRITERS
            words[lock] += 1
            for record in records:
                for place, factor in enumerate(_FACTORS):
                    words[record + place] = factor * value
            words[lock] += 1
            started.set()
            for _ in range(_PAUSE_STEPS):
                pass
        words.release()


def torn(slot: Slot) -> bool:
    value = slot.figures[0]
    return slot.figures[:10] != tuple(factor * value for factor in _FACTORS) * 2


def read_while_written(name: str, readings: int, directory: Path) -> Counter[str]:
    """How the readings went: slots read whole, torn and unstable; and how many values were different."""
    first, used, seqlock = SAMPLES[name]
    path = directory / f"{name}.cache"
    raw = bytearray(region_bytes(name))
    tail = first + 1024 * SLOT_BYTES
    for number in range(WRITERS):
        at = first + number * SLOT_BYTES
        raw[at : at + SLOT_BYTES] = region_bytes(name)[first : first + SLOT_BYTES]
        raw[at : at + 4] = (number + 1).to_bytes(4, "little")
    raw[tail : tail + 4] = WRITERS.to_bytes(4, "little")
    path.write_bytes(raw)
    context = multiprocessing.get_context("spawn")
    ended, started = context.Event(), [context.Event() for _ in range(WRITERS)]
    writers = [
        context.Process(
            target=_write,
            args=(str(path), first + n * SLOT_BYTES, used, seqlock, n, started[n], ended),
            daemon=True,
        )
        for n in range(WRITERS)
    ]
    for writer in writers:
        writer.start()
    assert all(one.wait(_STARTED_SEC) for one in started)
    found = Counter({"whole": 0, "torn": 0, "unstable": 0})
    values: set[int] = set()
    try:
        with RegionFile(path) as file:
            for _ in range(readings):
                region = read_region(file.read, file.size_bytes)
                found["unstable"] += region.unstable
                found["torn"] += sum(map(torn, region.slots))
                found["whole"] += len(region.slots)
                values.update(slot.figures[0] for slot in region.slots)
    finally:
        ended.set()
        for writer in writers:
            writer.join(_STARTED_SEC)
    found["different values"] = len(values)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--readings", type=int, default=10_000)
    readings = parser.parse_args().readings
    wrong = 0
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        for name in SAMPLES:
            found = read_while_written(name, readings, Path(directory))
            wrong += found["torn"]
            print(f"{name}: {readings} readings while {WRITERS} processes write: {dict(found)}")
    print("no torn value" if not wrong else "TORN VALUES")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
