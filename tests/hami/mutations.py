"""Mutated regions: what is read of each must be what a plain second reader finds in the same bytes.

In memory: bits flipped, numbers replaced by their extremes, regions cut, grown and spliced together. As
files: the same, and files that shrink, grow or are swapped while they are read.
"""

from __future__ import annotations

import argparse
import os
import random
import struct
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, Final

from nvshare.hami.layouts import LAYOUTS
from nvshare.hami.region import Read, Refused, read_region
from nvshare.pods.region_files import RegionFile
from tests.hami.samples import NAMES, as_plain, compared, plainly_read, region_bytes

_NUMBERS: Final = (
    0,
    1,
    2,
    15,
    16,
    17,
    1023,
    1024,
    1025,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 63,
    (1 << 64) - 1,
)
_SIZES: Final = sorted({one.region_bytes + more for one in LAYOUTS for more in (-1, 0, 1, 2)})
_INTERESTING_BYTES: Final = 24_000
"""The head and the first slots; the tail counts from the end."""


def _place(chance: random.Random, size: int) -> int:
    """Mostly where something is."""
    if chance.random() < 0.7:
        return chance.randrange(min(size, _INTERESTING_BYTES))
    return size - 1 - chance.randrange(min(size, 96)) if chance.random() < 0.8 else chance.randrange(size)


def mutate(chance: random.Random, raw: bytearray) -> tuple[str, bytearray]:
    """What was done, and the region with it; ``raw`` itself may be changed."""
    kind = chance.choice(("flip", "flip", "number", "number", "number", "cut", "grow", "splice", "noise"))
    if kind == "flip":
        for _ in range(chance.choice((1, 1, 2, 8, 64))):
            raw[_place(chance, len(raw))] ^= 1 << chance.randrange(8)
    elif kind == "number":
        for _ in range(chance.choice((1, 1, 3))):
            at = min(_place(chance, len(raw)) & ~3, len(raw) - 8)
            struct.pack_into("<Q", raw, at, chance.choice(_NUMBERS))
    elif kind == "cut":
        raw = raw[: chance.choice((*_SIZES, chance.randrange(len(raw) + 1)))]
    elif kind == "grow":
        raw = raw + bytes(max(0, chance.choice((*_SIZES, len(raw) + 1, len(raw) + 2)) - len(raw)))
    elif kind == "splice":
        other = region_bytes(chance.choice(NAMES))
        at = _place(chance, min(len(raw), len(other)))
        length = chance.choice((8, 96, 1960, 4096))
        raw[at : at + length] = other[at : at + length]
    else:
        at = _place(chance, len(raw))
        part = chance.randbytes(min(chance.choice((4, 96, 2000)), len(raw) - at))
        raw[at : at + len(part)] = part
    return kind, raw


def in_memory(count: int, seed: int) -> Counter[str]:
    """How many there were of each kind; AssertionError with the first difference."""
    found: Counter[str] = Counter()
    chance = random.Random(seed)
    for number in range(count):
        name = chance.choice(NAMES)
        kind, raw = mutate(chance, bytearray(region_bytes(name)))
        difference = compared(raw)
        assert not difference, f"seed {seed}, mutation {number} ({kind} of {name}): {difference}"
        found[kind] += 1
        found["accepted" if plainly_read(raw) is not None else "refused"] += 1
    return found


class _Changing:
    """A file that something happens to between two readings."""

    def __init__(self, chance: random.Random, path: Path, file: RegionFile) -> None:
        self._chance = chance
        self._path = path
        self._file = file
        self._left = chance.randrange(4)  # readings before it happens

    def read(self, offset: int, size: int) -> bytes:
        if self._left == 0:
            self._happen()
        self._left -= 1
        return self._file.read(offset, size)

    def _happen(self) -> None:
        event = self._chance.choice(("shrink", "grow", "swap", "remove", "nothing"))
        if event == "shrink":
            os.truncate(self._path, self._chance.randrange(self._path.stat().st_size + 1))
        elif event == "grow":
            os.truncate(self._path, self._path.stat().st_size + 4096)
        elif event == "swap":
            other = self._path.with_suffix(".new")
            other.write_bytes(region_bytes(self._chance.choice(NAMES)))
            other.replace(self._path)
        elif event == "remove":
            self._path.unlink()


def _read(read: Read, file_bytes: int) -> tuple[dict[str, Any] | None, str]:
    """What was read, or why nothing was."""
    try:
        return as_plain(read_region(read, file_bytes)), ""
    except Refused as refused:
        return None, refused.reason


def as_files(count: int, seed: int, directory: Path) -> Counter[str]:
    """A file that held still while it was read is read as in memory; any other is refused or read whole."""
    found: Counter[str] = Counter()
    chance = random.Random(seed)
    for number in range(count):
        path = directory / f"{number}.cache"
        _, raw = mutate(chance, bytearray(region_bytes(chance.choice(NAMES))))
        path.write_bytes(raw)
        before = plainly_read(raw)
        with RegionFile(path) as file:
            changing = _Changing(chance, path, file)
            plain, reason = _read(changing.read, file.size_bytes)
        well = plain == before if plain is not None else before is None or reason == "truncated"
        assert well, f"seed {seed}, file {number}: {reason or plain} instead of {before}"
        found[reason or "read"] += 1
        path.unlink(missing_ok=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--files", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    print(f"{arguments.count} mutations in memory: {dict(in_memory(arguments.count, arguments.seed))}")
    with tempfile.TemporaryDirectory() as directory:
        found = as_files(arguments.files, arguments.seed, Path(directory))
    print(f"{arguments.files} mutations as files: {dict(found)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
