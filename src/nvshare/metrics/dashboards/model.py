"""What a dashboard is made of, without Grafana's words for it: tables that people design and tests read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

Kind = Literal["timeseries", "stat", "table", "state-timeline"]
Colour = Literal["green", "yellow", "orange", "red", "blue", "purple", "text"]


class Query(NamedTuple):
    expr: str
    legend: str = ""
    quiet: bool = False  # rightly finds nothing as long as nothing is wrong


class Mapped(NamedTuple):
    """What is shown in place of a number."""

    value: int
    text: str
    colour: Colour


class Label(NamedTuple):
    """One of the labels that tell a table's rows apart."""

    name: str
    title: str
    link: str = ""


class Column(NamedTuple):
    """One figure of a table's rows; a row is what has the same labels in all queries."""

    title: str
    expr: str
    unit: str = "short"
    quiet: bool = False
    gauge: bool = False  # drawn as a bar from 0 to 1
    mapped: tuple[Mapped, ...] = ()


class Axis(NamedTuple):
    """Series with a unit of their own, drawn against the right axis."""

    series: str
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    title: str
    help: str
    kind: Kind = "timeseries"
    queries: tuple[Query, ...] = ()
    unit: str = "short"
    width: int = 12  # of 24
    height: int = 8
    axis_to: float | None = None  # the axis reaches at least so far, so that little looks like little
    stacked: bool = False
    dashed: str = ""  # a regular expression: these series are limits, and are not stacked
    right: Axis | None = None
    decimals: int | None = None
    mapped: tuple[Mapped, ...] = ()
    steps: tuple[tuple[float, Colour], ...] = ()  # from which value on a number has which colour
    empty: str = ""  # what a panel without a value says
    names_only: bool = False  # of a stat: what is to be read are the series' names
    labels: tuple[Label, ...] = ()
    columns: tuple[Column, ...] = ()

    def asked(self) -> Iterator[Query]:
        yield from self.queries
        for column in self.columns:
            yield Query(column.expr, "", column.quiet)


class Variable(NamedTuple):
    """What the reader picks at the top; each may use those before it."""

    name: str
    label: str
    query: str
    several: bool = False  # any number at once, at first all
    regex: str = ""


class Section(NamedTuple):
    title: str
    panels: tuple[Panel, ...]


class Dashboard(NamedTuple):
    name: str
    title: str
    question: str
    variables: tuple[Variable, ...]
    sections: tuple[Section, ...]

    def panels(self) -> list[Panel]:
        return [panel for section in self.sections for panel in section.panels]
