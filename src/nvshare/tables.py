"""Tables that fit the terminal they are shown on, however wide it is when they are drawn.

A cell is plain text and never broken over lines. Where there is no room for all columns, long names in the
first one are cut short, then the columns that matter least are left out, and a line says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from nvshare.plain_text import plain

_GAP: Final = 2
_FIRST_MIN: Final = 24
"""To how many characters the first column is cut before another column goes."""
KEPT: Final = 0
"""The rank of a column that is always shown."""


class Column(NamedTuple):
    heading: str
    rank: int = KEPT  # the highest is left out first
    right: bool = False


class FittedTable:
    """One to print or to show live: it fits whatever it is drawn on."""

    def __init__(self, columns: Sequence[Column], rows: Iterable[Sequence[str]], title: str = "") -> None:
        self._columns = list(columns)
        self._rows = [[plain(cell) for cell in row] for row in rows]
        self._title = title

    def width(self, places: Iterable[int] | None = None) -> int:
        """Of the whole table, or of the columns at these places."""
        chosen = list(range(len(self._columns)) if places is None else places)
        return sum(self._column_width(place) for place in chosen) + _GAP * (len(chosen) - 1)

    def _column_width(self, place: int) -> int:
        cells = [self._columns[place].heading, *(row[place] for row in self._rows)]
        return max(cell_len(cell) for cell in cells)

    def _places_within(self, width: int) -> list[int]:
        places = list(range(len(self._columns)))
        spare = max(0, self._column_width(0) - _FIRST_MIN)
        while self.width(places) - spare > width:
            least = max(places, key=lambda place: (self._columns[place].rank, place))
            if self._columns[least].rank == KEPT:
                break
            places.remove(least)
        return places

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        places = self._places_within(options.max_width)
        widths = [self._column_width(place) for place in places]
        widths[0] -= max(0, self.width(places) - options.max_width)
        widths[0] = max(widths[0], 1)
        if self._title:
            yield Text(self._title, style="bold")
        yield self._line(self._cells([column.heading for column in self._columns], places, widths), "bold")
        for row in self._rows:
            yield self._line(self._cells(row, places, widths))
        left_out = [column.heading for place, column in enumerate(self._columns) if place not in places]
        if left_out:
            yield Text(f"not shown: {', '.join(left_out)}", style="dim")

    def _cells(self, row: Sequence[str], places: list[int], widths: list[int]) -> str:
        cells = [
            _fitted(row[place], width, self._columns[place].right)
            for place, width in zip(places, widths, strict=True)
        ]
        return (" " * _GAP).join(cells).rstrip()

    @staticmethod
    def _line(text: str, style: str = "") -> Text:
        return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def _cut(text: str, width: int) -> str:
    """In the middle: names that programs give often differ only at their end."""
    tail = text[len(text) - (width - 1) // 2 :] if width > 2 else ""
    return set_cell_size(text, max(0, width - 1 - cell_len(tail))) + "…" + tail


def _fitted(text: str, width: int, right: bool) -> str:
    """Of exactly this width on the screen."""
    if cell_len(text) > width:
        text = _cut(text, width)
    padding = " " * (width - cell_len(text))
    return padding + text if right else text + padding
