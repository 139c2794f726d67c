"""A run for people's eyes."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from rich.console import Console

from nvshare.sim.result import RunResult, TenantResult
from nvshare.tables import Column, FittedTable

CHANGES_SHOWN: Final = 3


def show(result: RunResult, console: Console) -> None:
    console.print(
        f"[bold]{result.scenario}[/bold]: {result.description}\n"
        f"{_duration(result.seconds)} simulated, seed {result.seed}, "
        f"hand-over {result.handover_ms:g} ms"
    )
    console.print()
    console.print(_tenants(result))
    console.print()
    console.print(_gpus(result))


_TENANT_COLUMNS: Final = (
    Column("tenant"),
    Column("gpu", 8, right=True),
    Column("asked", 2, right=True),
    Column("due", 3, right=True),
    Column("got", right=True),
    Column("error", 1, right=True),
    Column("worst 10 s", 5, right=True),
    Column("worst 60 s", 6, right=True),
    Column("longest gap", 4, right=True),
    Column("wait p50 / p99", 7, right=True),
)
_GPU_COLUMNS: Final = (
    Column("gpu"),
    Column("busy", right=True),
    Column("idle", 1, right=True),
    Column("swapping", 2, right=True),
    Column("turn", 3, right=True),
    Column("hand-overs", 4, right=True),
    Column("slices", 5, right=True),
    Column("overlaps", 6, right=True),
)


def _tenants(result: RunResult) -> FittedTable:
    title = "shares of the GPU, in percent and percentage points"
    return FittedTable(_TENANT_COLUMNS, (_tenant_row(tenant) for tenant in result.tenants), title)


def asked(tenant: TenantResult, unit: str = "") -> str:
    """Its quota, with every change of it."""
    quotas = [tenant.first_asked_percent, *(percent for _, percent in tenant.quota_changes)]
    shown = [_quota(percent, tenant.policy, unit) for percent in quotas]
    if len(shown) > CHANGES_SHOWN + 1:
        shown = [*shown[:CHANGES_SHOWN], f"({len(shown) - CHANGES_SHOWN - 1} more)", shown[-1]]
    return " → ".join(shown)


def _quota(percent: int, policy: str, unit: str) -> str:
    if percent == 100:
        return "unlimited"
    return f"{percent}{unit} or more" if policy == "share" else f"{percent}{unit}"


def _tenant_row(tenant: TenantResult) -> tuple[str, ...]:
    return (
        tenant.name,
        str(tenant.gpu),
        asked(tenant),
        _points(tenant.due_percent),
        f"{tenant.got_percent:.2f}",
        "-" if tenant.error_points is None else f"{tenant.error_points:+.2f}",
        _points(tenant.worst_10s_points),
        _points(tenant.worst_60s_points),
        _milliseconds(tenant.longest_gap_ms),
        f"{_milliseconds(tenant.wait_p50_ms)} / {_milliseconds(tenant.wait_p99_ms)}",
    )


def _gpus(result: RunResult) -> FittedTable:
    rows = [
        (
            str(gpu.index),
            f"{gpu.busy_percent:.1f} %",
            f"{gpu.idle_percent:.1f} %",
            f"{gpu.swap_percent:.1f} %",
            f"{gpu.turn_ms:g} ms",
            f"{gpu.handovers:,}",
            f"{gpu.slices:,}",
            f"{gpu.overlaps:,}",
        )
        for gpu in result.gpus
    ]
    return FittedTable(_GPU_COLUMNS, rows, "GPUs")


def _points(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _milliseconds(value: float) -> str:
    return f"{value / 1000:.1f} s" if value >= 10_000 else f"{value:.0f} ms"


def _duration(seconds: float) -> str:
    """In the largest unit and the one below it: "33 minutes 20 seconds"."""
    units = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))
    for (size, word), (smaller, smaller_word) in pairwise(units):
        if seconds >= size:
            count, rest = divmod(round(seconds / smaller), size // smaller)
            return _counted(count, word) + (f" {_counted(rest, smaller_word)}" if rest else "")
    return _counted(seconds, "second")


def _counted(count: float, word: str) -> str:
    return f"{count:g} {word}{'' if count == 1 else 's'}"
