"""How much of a GPU each tenant asked for and got: the table of ``nvshare up`` and of the demo.

A tenant's share is its GPU time in the daemon's account, relative to the time between two answers: its billed
time, or, without a quota, the time it held the GPU, since such a hold is billed only when it ends. A bounded
number of older answers gives the window.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from rich.console import Console

from nvshare.core.units import format_bytes
from nvshare.plain_text import plain
from nvshare.tables import Column, FittedTable

WINDOW_LOOKS: Final = 6
TOTALS_MAX: Final = 100
_STATES: Final = {
    "memory": "waits for memory",
    "turn": "waits for a turn",
    "quota": "had its share",
    "resume": "waits: the daemon restarted",
}


class TenantRow(NamedTuple):
    """One line of the table."""

    pod: str
    gpu: str
    gpu_index: int
    asked_percent: int
    due_percent: float | None  # the rest that the other tenants leave of that; None without a quota
    share: bool
    got_percent: float | None  # None: not known, because it is new, or scheduling is off
    used_bytes: int
    limit_bytes: int
    state: str

    def cells(self) -> tuple[str, ...]:
        asked = f"{self.asked_percent} %" if self.asked_percent < 100 else "no quota"
        limit = f" of {format_bytes(self.limit_bytes)}" if self.limit_bytes else ""
        return (
            self.pod,
            str(self.gpu_index),
            f"{asked} or more" if self.share else asked,
            _percent(self.due_percent),
            _percent(self.got_percent),
            f"{format_bytes(self.used_bytes)}{limit}",
            self.state,
        )


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} %"


def _is_here(tenant: dict[str, Any]) -> bool:
    """With processes. The daemon keeps the account of a pod that has left for a while, without its limits."""
    return bool(tenant["clients"]) or tenant["explanation"]["reason"] == "resume"


def gpu_name(gpu: dict[str, Any]) -> str:
    """Name and kind of a GPU, from the daemon's answer."""
    return f"{gpu['name'] or 'GPU'} (simulated)" if gpu["simulated"] else gpu["name"] or "-"


class Look(NamedTuple):
    """The daemon's account at one moment."""

    now_ns: int
    tenants: dict[tuple[str, str], dict[str, Any]]  # by GPU and pod
    gpu_index: dict[str, int]

    @classmethod
    def of(cls, answer: dict[str, Any]) -> Look:
        """From what ``/v1/gpus`` answers."""
        gpus = answer["gpus"]
        tenants = {
            (gpu["gpu"], tenant["pod"]): tenant
            for gpu in gpus
            for tenant in gpu["tenants"]
            if _is_here(tenant)
        }
        return cls(answer["now_ns"], tenants, {gpu["gpu"]: gpu["index"] for gpu in gpus})

    def used_since(self, before: Look, key: tuple[str, str]) -> int | None:
        """Nanoseconds of the GPU; None if it was not there, or has a new account since."""
        now, then = self.tenants.get(key), before.tenants.get(key)
        if now is None or then is None or now["gpu_time_ns"] < then["gpu_time_ns"]:
            return None
        return int(now["gpu_time_ns"] - then["gpu_time_ns"])


class Summary:
    """The latest answers."""

    def __init__(self, looks: int = WINDOW_LOOKS) -> None:
        self._looks: deque[Look] = deque(maxlen=looks)

    def add(self, look: Look) -> None:
        self._looks.append(look)

    def rows(self) -> list[TenantRow]:
        if not self._looks:
            return []
        last = self._looks[-1]
        return sorted((self._row(key, tenant) for key, tenant in last.tenants.items()), key=_order)

    def _row(self, key: tuple[str, str], tenant: dict[str, Any]) -> TenantRow:
        last = self._looks[-1]
        recent = self._looks[-2] if len(self._looks) > 1 else last
        first = next((look for look in self._looks if last.used_since(look, key) is not None), last)
        span_ns = last.now_ns - first.now_ns
        known = span_ns > 0 and tenant["explanation"]["state"] != "ungated"
        return TenantRow(
            pod=tenant["pod"],
            gpu=key[0],
            gpu_index=last.gpu_index[key[0]],
            asked_percent=tenant["core_percent"],
            due_percent=tenant["effective_percent"] if tenant["core_percent"] < 100 else None,
            share=tenant["share"],
            got_percent=(last.used_since(first, key) or 0) * 100 / span_ns if known else None,
            used_bytes=tenant["used_bytes"],
            limit_bytes=tenant["memory_limit_bytes"],
            state="running" if last.used_since(recent, key) else _state(tenant["explanation"]),
        )


class _Total(NamedTuple):
    """A tenant's part of the time since it first asked for the GPU."""

    row: TenantRow
    asked: bool = False
    used_ns: int = 0
    present_ns: int = 0


class Totals:
    """Each tenant's total over many answers, for the latest hundred tenants."""

    def __init__(self) -> None:
        self._last: Look | None = None
        self._totals: dict[tuple[str, str], _Total] = {}

    def add(self, look: Look, rows: Iterable[TenantRow]) -> None:
        before, self._last = self._last, look
        for row in rows:
            key = (row.gpu, row.pod)
            total = self._totals.pop(key, _Total(row))
            used_ns = look.used_since(before, key) if before is not None else None
            counts = total.asked and row.state != "ungated"
            if counts and before is not None and used_ns is not None:
                total = total._replace(
                    used_ns=total.used_ns + used_ns,
                    present_ns=total.present_ns + look.now_ns - before.now_ns,
                )
            self._totals[key] = total._replace(row=row, asked=total.asked or row.state != "idle")
        while len(self._totals) > TOTALS_MAX:
            del self._totals[next(iter(self._totals))]

    def rows(self) -> list[TenantRow]:
        here = self._last.tenants if self._last is not None else {}
        found = [
            total.row._replace(
                got_percent=total.used_ns * 100 / total.present_ns if total.present_ns else None,
                state=total.row.state if key in here else "left",
            )
            for key, total in self._totals.items()
        ]
        return sorted(found, key=_order)


def _order(row: TenantRow) -> tuple[int, str]:
    return row.gpu_index, row.pod


def _state(explanation: dict[str, Any]) -> str:
    """One word for people; a working tenant between two turns of some milliseconds counts as running."""
    return _STATES.get(explanation["reason"], str(explanation["state"]))


COLUMNS: Final = (
    Column("pod"),
    Column("gpu", 4, right=True),
    Column("asked", 2, right=True),
    Column("due", 1, right=True),
    Column("got", right=True),
    Column("memory", 5),
    Column("state", 3),
)


def as_table(rows: Iterable[TenantRow], title: str) -> FittedTable:
    return FittedTable(COLUMNS, (row.cells() for row in rows), title)


def as_lines(rows: Iterable[TenantRow]) -> list[str]:
    """One line per tenant, where there is no table."""
    return [
        f"gpu {row.gpu_index}  {plain(row.pod)}: "
        + ", ".join(
            f"{column.heading} {cell}" for column, cell in zip(COLUMNS[2:], row.cells()[2:], strict=True)
        )
        for row in rows
    ]


def on_terminal() -> bool:
    """Whether it can show a table that changes."""
    return sys.stdout.isatty() and not Console().is_dumb_terminal
