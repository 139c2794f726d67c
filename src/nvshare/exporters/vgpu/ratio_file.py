"""The number of parts that a GPU is divided into: one number in a file, `gpu_allocation.txt`.

1. It is an integer or a decimal, more than 0, and nothing else is in the file but blanks.
2. At the start anything else is an error. Later the file is read again when it changes; then what is wrong is
   reported once, and the last good number stays.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from nvshare.runtime import logs

ACCEPTED: Final = "a file with one number more than 0, such as 2 or 2.5"
_NUMBER: Final = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?", re.ASCII)
_BYTES_MAX: Final = 4096


class RatioError(Exception):
    """The file does not hold a number that can be used."""


def read_ratio(path: Path) -> float:
    """Raises RatioError."""
    try:
        with open(path, "rb") as file:
            text = file.read(_BYTES_MAX).decode("utf-8", "replace").strip()
    except OSError as error:
        raise RatioError(f"{path}: {error.strerror}; needed: {ACCEPTED}") from error
    if not _NUMBER.fullmatch(text) or float(text) == 0:
        raise RatioError(f"{path}: {text[:40]!r} is not accepted; accepted: {ACCEPTED}")
    return float(text)


class RatioFile:
    def __init__(self, path: Path) -> None:
        """Raises RatioError."""
        self._path = path
        self._stamp = self._stamped()
        self.ratio = read_ratio(path)
        self.failures = 0

    def refresh(self) -> None:
        stamp = self._stamped()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            ratio = read_ratio(self._path)
        except RatioError as error:
            self.failures += 1
            logs.warning("the number of parts stays as it was", parts=self.ratio, why=error)
            return
        if ratio != self.ratio:
            logs.info("number of parts changed", parts=ratio, before=self.ratio)
            self.ratio = ratio

    def _stamped(self) -> tuple[int, int, int] | None:
        try:
            status = os.stat(self._path)
        except OSError:
            return None
        return status.st_ino, status.st_size, status.st_mtime_ns
