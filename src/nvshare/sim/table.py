"""A run for people's eyes."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from nvshare.sim.result import RunResult, TenantResult


def show(result: RunResult, console: Console) -> None:
    console.print(
        f"[bold]{result.scenario}[/bold]: {result.description}\n"
        f"{_duration(result.seconds)} simulated, seed {result.seed}, "
        f"hand-over {result.handover_ms:g} ms"
    )
    console.print(_tenants(result))
    console.print(_gpus(result))


def _tenants(result: RunResult) -> Table:
    table = Table(title="shares of the GPU, in percent and percentage points", title_justify="left")
    table.add_column("tenant")
    table.add_column("gpu", justify="right")
    for heading in ("asked", "due", "got", "error", "worst 10 s", "worst 60 s"):
        table.add_column(heading, justify="right")
    table.add_column("longest gap", justify="right")
    table.add_column("wait p50 / p99", justify="right")
    for tenant in result.tenants:
        table.add_row(*_tenant_row(tenant))
    return table


def _tenant_row(tenant: TenantResult) -> tuple[str, ...]:
    asked = "unlimited" if tenant.asked_percent == 100 else f"{tenant.asked_percent}"
    if tenant.policy == "share" and tenant.asked_percent < 100:
        asked = f"{asked} or more"
    return (
        tenant.name,
        str(tenant.gpu),
        asked,
        _points(tenant.due_percent),
        f"{tenant.got_percent:.2f}",
        "-" if tenant.error_points is None else f"{tenant.error_points:+.2f}",
        _points(tenant.worst_10s_points),
        _points(tenant.worst_60s_points),
        _milliseconds(tenant.longest_gap_ms),
        f"{_milliseconds(tenant.wait_p50_ms)} / {_milliseconds(tenant.wait_p99_ms)}",
    )


def _gpus(result: RunResult) -> Table:
    table = Table(title="GPUs", title_justify="left")
    table.add_column("gpu", justify="right")
    for heading in ("busy", "idle", "swapping", "turn", "hand-overs", "slices", "overlaps"):
        table.add_column(heading, justify="right")
    for gpu in result.gpus:
        table.add_row(
            str(gpu.index),
            f"{gpu.busy_percent:.1f} %",
            f"{gpu.idle_percent:.1f} %",
            f"{gpu.swap_percent:.1f} %",
            f"{gpu.turn_ms:g} ms",
            f"{gpu.handovers:,}",
            f"{gpu.slices:,}",
            f"{gpu.overlaps:,}",
        )
    return table


def _points(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _milliseconds(value: float) -> str:
    return f"{value / 1000:.1f} s" if value >= 10_000 else f"{value:.0f} ms"


def _duration(seconds: float) -> str:
    for size, word in ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second")):
        if seconds >= size:
            count = seconds / size
            return f"{count:g} {word}{'' if count == 1 else 's'}"
    return f"{seconds:g} seconds"
