"""Long work on the event loop in small steps, so that turns are granted in between.

An exporter yields families, whose samples may be any iterable. It collects rows that several families share
with ``rows = yield from gathered(...)`` and frees large lists with ``yield from freed(rows)``. Every row is a
step; the executor decides how many steps run before others have a go.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any, Final, TypeVar

from nvshare.metrics.families import Family

Row = TypeVar("Row")
Steps = Generator[None, None, Row]
Families = Generator[Family | None, None, None]
FREED_AT_ONCE: Final = 64
"""Rows that one step frees: freeing is much cheaper than making them."""


def gathered(rows: Iterable[Row]) -> Steps[list[Row]]:
    """The rows as a list, one step for each."""
    found = []
    for row in rows:
        found.append(row)
        yield None
    return found


def freed(rows: list[Any] | dict[Any, Any]) -> Steps[None]:
    """Empty it: freeing thousands of rows at once would hold up the loop, too."""
    while rows:
        if isinstance(rows, list):
            del rows[-FREED_AT_ONCE:]
        else:
            for _ in range(min(len(rows), FREED_AT_ONCE)):
                rows.popitem()
        yield None
