"""Who asked for how much of a GPU and got it: the table of ``nvshare up`` and of the demo.

What a tenant got is what the daemon's own account shows: time it occupied the GPU, as a part of the time
between two looks. A look is one answer of the daemon; the older ones, a bounded number, give the window.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from rich.table import Table

from nvshare.core.units import format_bytes

WINDOW_LOOKS: Final = 6
_STATES: Final = {
    "memory": "waits for memory",
    "turn": "waits for a turn",
    "quota": "had its share",
    "resume": "waits: the daemon restarted",
}


class TenantRow(NamedTuple):
    """One line of the table."""

    pod: str
    gpu_index: int
    asked_percent: int
    share: bool
    got_percent: float | None  # None: seen for the first time
    used_bytes: int
    limit_bytes: int
    state: str

    def cells(self) -> tuple[str, ...]:
        asked = f"{self.asked_percent} %" if self.asked_percent < 100 else "no quota"
        got = "-" if self.got_percent is None else f"{self.got_percent:.1f} %"
        limit = f" of {format_bytes(self.limit_bytes)}" if self.limit_bytes else ""
        return (
            self.pod,
            str(self.gpu_index),
            f"{asked} or more" if self.share else asked,
            got,
            f"{format_bytes(self.used_bytes)}{limit}",
            self.state,
        )


class Look(NamedTuple):
    """The daemon's books at one moment."""

    now_ns: int
    tenants: dict[tuple[str, str], dict[str, Any]]  # by GPU and pod
    gpu_index: dict[str, int]

    @classmethod
    def of(cls, answer: dict[str, Any]) -> Look:
        """From what ``/v1/gpus`` answers."""
        gpus = answer["gpus"]
        tenants = {(gpu["gpu"], tenant["pod"]): tenant for gpu in gpus for tenant in gpu["tenants"]}
        return cls(answer["now_ns"], tenants, {gpu["gpu"]: gpu["index"] for gpu in gpus})


def _occupied_ns(tenant: dict[str, Any] | None, then: dict[str, Any] | None) -> int | None:
    """Between two looks; None if it was not there at the first, or the daemon began a new account since."""
    if tenant is None or then is None or tenant["occupied_ns"] < then["occupied_ns"]:
        return None
    return int(tenant["occupied_ns"] - then["occupied_ns"])


class Summary:
    """The last looks."""

    def __init__(self, looks: int = WINDOW_LOOKS) -> None:
        self._looks: deque[Look] = deque(maxlen=looks)

    def add(self, answer: dict[str, Any]) -> None:
        look = Look.of(answer)
        if self._looks and look.now_ns <= self._looks[-1].now_ns:
            self._looks.clear()
        self._looks.append(look)

    def rows(self) -> list[TenantRow]:
        if not self._looks:
            return []
        last = self._looks[-1]
        rows = [self._row(key, tenant, last) for key, tenant in last.tenants.items()]
        return sorted(rows, key=lambda row: (row.gpu_index, row.pod))

    def _row(self, key: tuple[str, str], tenant: dict[str, Any], last: Look) -> TenantRow:
        first = next(
            (look for look in self._looks if _occupied_ns(tenant, look.tenants.get(key)) is not None), last
        )
        occupied_ns = _occupied_ns(tenant, first.tenants.get(key)) or 0
        span_ns = last.now_ns - first.now_ns
        recent = self._looks[-2] if len(self._looks) > 1 else last
        worked = bool(_occupied_ns(tenant, recent.tenants.get(key)))
        return TenantRow(
            pod=tenant["pod"],
            gpu_index=last.gpu_index[key[0]],
            asked_percent=tenant["core_percent"],
            share=tenant["share"],
            got_percent=occupied_ns * 100 / span_ns if span_ns > 0 else None,
            used_bytes=tenant["used_bytes"],
            limit_bytes=tenant["memory_limit_bytes"],
            state="running" if worked else _state(tenant["explanation"]),
        )


def _state(explanation: dict[str, Any]) -> str:
    """A word for people; between two turns of some milliseconds a tenant that works counts as running."""
    return _STATES.get(explanation["reason"], str(explanation["state"]))


COLUMNS: Final = ("pod", "gpu", "asked", "got", "memory", "state")


def as_table(rows: Iterable[TenantRow], title: str) -> Table:
    table = Table(*COLUMNS, title=title, title_justify="left")
    for row in rows:
        table.add_row(*row.cells())
    return table


def as_lines(rows: Iterable[TenantRow]) -> list[str]:
    """For those who read no tables: a line a tenant."""
    return [
        f"gpu {row.gpu_index}  {row.pod}: "
        + ", ".join(f"{name} {cell}" for name, cell in zip(COLUMNS[2:], row.cells()[2:], strict=True))
        for row in rows
    ]


def on_terminal() -> bool:
    return sys.stdout.isatty()
