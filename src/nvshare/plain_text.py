"""Text of others on a terminal: names of pods and processes, files, answers.

Programs and users choose these freely. They are shown as they are, except that characters which would act on
the terminal are written as escapes, and nothing in them is markup.
"""

from __future__ import annotations

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text


def plain(text: str) -> str:
    """On one line."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else _escape(letter) for letter in text)


def plain_lines(text: str) -> str:
    """For messages of ours, which may have several lines."""
    return "\n".join(map(plain, text.split("\n")))


def _escape(letter: str) -> str:
    return letter.encode("unicode_escape").decode()


class PlainTable(Table):
    """Whose cells are plain text."""

    def add_row(self, *cells: RenderableType | None, style: object = None, end_section: bool = False) -> None:
        del style, end_section
        super().add_row(*(Text(plain(cell)) if isinstance(cell, str) else cell for cell in cells))
