"""Effort by the lines of Python it executes: the same on every machine, however busy that is."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

LINE_NS: Final = 50
"""What a line takes, about: as a clock it passes as quickly as time does."""


class Lines:
    """A clock that stands still unless Python executes lines, of this thread, while they are counted."""

    def __init__(self) -> None:
        self.count = 0

    def clock_ns(self) -> int:
        return self.count * LINE_NS

    @contextmanager
    def counted(self) -> Iterator[None]:
        former = sys.gettrace()
        sys.settrace(self._trace)
        try:
            yield
        finally:
            sys.settrace(former)

    def _trace(self, _frame: FrameType, event: str, _argument: object) -> Any:
        if event == "line":
            self.count += 1
        return self._trace
