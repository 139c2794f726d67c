"""The live table on a terminal whose window changes its size while it runs."""

from __future__ import annotations

import fcntl
import os
import re
import struct
import termios
from collections.abc import Iterator

import pytest

from tests.local.harness import NVSHARE, Place
from tests.local.test_terminal import Shell

OWN_SCREEN, BACK, HOME = "\x1b[?1049h", "\x1b[?1049l", "\x1b[H"
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Window:
    """A terminal of some size in which the node is up."""

    def __init__(self, place: Place, columns: int, rows: int) -> None:
        exported = {"COLUMNS": str(columns), "LINES": str(rows)}  # as some shells do, once
        self.shell = Shell(place.environment | exported, "xterm")
        self.resize(columns, rows)
        self.shell.type(f"exec {' '.join(NVSHARE)} up --sim t4:2\n")
        self.shell.wait_for(OWN_SCREEN)

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.shell.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def frame(self) -> list[str]:
        """The next whole picture, as lines of text."""
        text = ""
        while not text.strip():
            text = CONTROL.sub("", self.shell.wait_for(HOME))
        return [line.rstrip() for line in text.splitlines()]

    def frame_of(self, rows: int) -> list[str]:
        """The first one that fills the window; what was under way when it changed does not."""
        for _ in range(10):
            lines = self.frame()
            if len(lines) == rows:
                return lines
        raise AssertionError(lines)


@pytest.fixture
def window(bare: Place) -> Iterator[Window]:
    found = Window(bare, 80, 24)
    try:
        yield found
    finally:
        os.write(found.shell.terminal, b"\x03")
        found.shell.wait_for(BACK)
        found.shell.wait_for("node ended")
        os.waitpid(found.shell.pid, 0)
        os.close(found.shell.terminal)


def test_each_picture_fits_the_window_as_it_is_then(window: Window) -> None:
    """And is drawn from the top of a screen of its own, so that nothing of the last one is left."""
    for columns, rows in ((80, 24), (40, 23), (160, 40), (40, 5), (80, 25)):
        window.resize(columns, rows)
        lines = window.frame_of(rows)
        assert all(len(line) <= columns for line in lines), (columns, lines)
        assert any(line.startswith("0 tenants on simulated GPUs") for line in lines), (columns, lines)
        if (columns, rows) != (40, 5):
            assert any("nvshare down" in line for line in lines), (columns, lines)
