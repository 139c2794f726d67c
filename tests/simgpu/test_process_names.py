"""Programs name themselves: ``nvshare sim status`` shows whatever they chose."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from click.testing import CliRunner

from nvshare.cli import main
from tests.simgpu.conftest import PROGRAMS

HOLD = """
import ctypes, runpy, sys
ctypes.CDLL(None).prctl(15, bytes.fromhex(sys.argv[1]))
runpy.run_path(sys.argv[2])
"""


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"[/b]", "[/b]"),
        (b"[red]x[/red]", "[red]x[/red]"),
        (b"\x1b]0;owned\x07", r"\x1b]0;owned\x07"),
        (b"\xc2\x9b2J\xff", r"\x9b2J" + "\N{REPLACEMENT CHARACTER}"),
    ],
)
def test_names_are_text(sim: Any, name: bytes, shown: str) -> None:
    hold = ("-c", HOLD, name.hex(), str(PROGRAMS / "hold.py"))
    child = sim.start(sys.executable, *hold, PYTHONPATH=str(PROGRAMS))
    assert child.stdout.readline() == "holding\n"
    result = CliRunner(env={"COLUMNS": "200"}).invoke(main, ["sim", "--dir", str(sim.directory), "status"])
    assert result.exit_code == 0, result.exception
    assert shown in result.output
    assert all(letter.isprintable() or letter == "\n" for letter in result.output)
    result = CliRunner(env={"COLUMNS": "200"}).invoke(
        main, ["sim", "--dir", str(sim.directory), "status", "--json"]
    )
    assert result.output.isascii()
    assert json.loads(result.output)["cards"][0]["processes"][0]["name"] == name.decode(errors="replace")
