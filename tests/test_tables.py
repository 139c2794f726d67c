"""Tables on terminals of any width: no cell is broken, what matters least is left out first."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console, RenderableType
from rich.text import Text

from nvshare.local.screen import Stack
from nvshare.local.summary import TenantRow, as_table
from nvshare.tables import Column, FittedTable

WIDTHS = (20, 40, 80, 160)


def drawn(what: RenderableType, width: int, height: int = 24) -> list[str]:
    console = Console(file=StringIO(), width=width, height=height)
    console.print(what)
    assert isinstance(console.file, StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def row(pod: str, asked: int, due: float | None, got: float, state: str) -> TenantRow:
    return TenantRow(pod, "GPU-x", 0, asked, due, False, got, 3 << 30, 0, state)


ROWS = [
    row("demo/thirty", 30, 28.5, 28.4, "running"),
    row("demo/a-name-that-is-longer-than-most", 100, None, 60.1, "waits for memory"),
]


@pytest.mark.parametrize("width", WIDTHS)
def test_no_line_is_longer_than_the_terminal(width: int) -> None:
    lines = drawn(as_table(ROWS, "2 tenants"), width)
    assert all(len(line) <= width for line in lines), lines
    assert [line for line in lines if "28.4 %" in line], "what it got is always shown"


def test_a_tenant_has_one_line_and_a_due_column() -> None:
    title, head, first, second = drawn(as_table(ROWS, "2 tenants"), 120)
    assert title == "2 tenants"
    assert head.split() == ["pod", "gpu", "asked", "due", "got", "memory", "state"]
    assert first.split() == ["demo/thirty", "0", "30", "%", "28.5", "%", "28.4", "%", "3", "GiB", "running"]
    assert second.split()[:4] == ["demo/a-name-that-is-longer-than-most", "0", "no", "quota"]


def test_what_matters_least_goes_first_and_that_is_said() -> None:
    table = FittedTable(
        (Column("name"), Column("much", 1), Column("little", 2)), [("a" * 10, "b" * 10, "c" * 10)]
    )
    assert table.width() == 34
    assert len(drawn(table, 34)) == 2
    head, _, note = drawn(table, 33)
    assert head.split() == ["name", "much"]
    assert note == "not shown: little"
    head, cells, *_ = drawn(table, 9)
    assert head == "name"
    assert cells == "aaaa…aaaa"


def test_a_long_name_is_cut_in_the_middle_before_a_column_goes() -> None:
    name = "research/notebook-of-somebody-7f9c"
    table = FittedTable((Column("pod"), Column("got", 1)), [(name, "28.4 %")])
    assert drawn(table, 42)[1] == f"{name}  28.4 %"
    assert drawn(table, 32)[1] == "research/not…mebody-7f9c  28.4 %"
    assert drawn(table, 31)[0] == "pod"


def test_what_programs_are_called_is_shown_as_it_is() -> None:
    assert drawn(FittedTable((Column("command"),), [("[red]x[/red]",)]), 40)[1] == "[red]x[/red]"


@pytest.mark.parametrize(
    ("height", "shown"),
    [(9, "head table foot"), (8, "head table foot"), (7, "table foot"), (4, "table"), (2, "table")],
)
def test_a_low_screen_keeps_the_table_first(height: int, shown: str) -> None:
    """A part of two, one of three and one of three lines."""
    parts = [Text("head\n."), Text("table\n.\n."), Text("foot\n.\n.")]
    lines = drawn(Stack(parts, (1, 2, 0)), 40, height)
    assert [line for line in lines if line.isalpha()] == shown.split()
    assert len(lines) <= height
