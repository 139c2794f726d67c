"""What came out of a run: plain values, the same for the table, the JSON and the plot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final

from nvshare.sim.measure import WindowError
from nvshare.sim.scenario import Scenario
from nvshare.sim.world import BUCKETS, Tenancy, World

CLOSEUP_NS: Final = 2_000_000_000
STEPS: Final = 200
Progress = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class TenantResult:
    name: str
    gpu: int
    asked_percent: int  # at the end of the run
    first_asked_percent: int
    quota_changes: tuple[tuple[float, int], ...]  # at which second, to how many percent
    policy: str
    due_percent: float | None  # what the mix leaves of what it asked, on average; None: no fixed share is due
    got_percent: float  # of the time it was there
    error_points: float | None  # over the time something was due
    worst_10s_points: float | None  # None also where memory does not fit, or no such window was in the run
    worst_60s_points: float | None
    longest_gap_ms: float
    wait_p50_ms: float
    wait_p99_ms: float
    wait_max_ms: float
    turns: int
    buckets: tuple[float, ...]  # share of the GPU over the run, for the plot
    closeup: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class GpuResult:
    index: int
    busy_percent: float
    idle_percent: float
    swap_percent: float
    handovers: int
    turn_ms: float
    slices: int
    overlaps: int


@dataclass(frozen=True, slots=True)
class RunResult:
    scenario: str
    description: str
    seed: int
    seconds: float
    handover_ms: float
    closeup_ns: tuple[int, int]
    core_events: int
    tenants: tuple[TenantResult, ...]
    gpus: tuple[GpuResult, ...]

    def to_json(self) -> dict[str, Any]:
        """For scripts; without what only the plot needs."""
        value = asdict(self)
        del value["closeup_ns"]
        for tenant in value["tenants"]:
            del tenant["buckets"], tenant["closeup"]
        return value


def run(scenario: Scenario, seed: int, progress: Progress | None = None) -> RunResult:
    world = World(scenario, seed)
    closeup_from_ns = min(scenario.duration_ns // 10, 5_000_000_000)
    closeup_ns = (closeup_from_ns, min(scenario.duration_ns, closeup_from_ns + CLOSEUP_NS))
    for tenancy in world.tenancies.values():
        tenancy.meter.closeup_ns = closeup_ns
    for step in range(1, STEPS + 1):
        world.run_until(scenario.duration_ns * step // STEPS)
        if progress is not None:
            progress(step / STEPS)
    world.finish()
    return RunResult(
        scenario=scenario.name,
        description=scenario.description,
        seed=seed,
        seconds=scenario.duration_ns / 1e9,
        handover_ms=scenario.handover_ns / 1e6,
        closeup_ns=closeup_ns,
        core_events=world.core_events,
        tenants=tuple(_tenant(world, tenancy) for tenancy in world.tenancies.values()),
        gpus=tuple(_gpu(world, index) for index in range(scenario.gpus)),
    )


def _tenant(world: World, tenancy: Tenancy) -> TenantResult:
    meter, waits = tenancy.meter, tenancy.waits
    got = 100 * meter.served_ns / max(1, tenancy.present_ns)
    due, error = meter.due_percent, meter.error_points
    window_10s, window_60s = meter.errors
    core = world.core.gpus[f"GPU-{tenancy.device.index}"].tenants.get(tenancy.spec.name)
    return TenantResult(
        name=tenancy.spec.name,
        gpu=tenancy.device.index,
        asked_percent=tenancy.percent,
        first_asked_percent=tenancy.spec.core_percent,
        quota_changes=tuple((at_ns / 1e9, percent) for at_ns, percent in tenancy.quota_changes),
        policy="share" if tenancy.spec.share else "cap",
        due_percent=None if due is None else round(due, 4),
        got_percent=round(got, 4),
        error_points=None if error is None else round(error, 4),
        worst_10s_points=_worst(window_10s, tenancy),
        worst_60s_points=_worst(window_60s, tenancy),
        longest_gap_ms=round(meter.longest_gap_ns / 1e6, 3),
        wait_p50_ms=round(waits.percentile_ns(50) / 1e6, 3),
        wait_p99_ms=round(waits.percentile_ns(99) / 1e6, 3),
        wait_max_ms=round(waits.longest_ns / 1e6, 3),
        turns=core.habits.turns if core is not None else 0,
        buckets=tuple(meter.buckets.get(index, 0) / meter.bucket_ns for index in range(BUCKETS)),
        closeup=tuple(meter.stretches),
    )


def _worst(window: WindowError, tenancy: Tenancy) -> float | None:
    return round(window.worst_points, 4) if tenancy.windowed and window.measured else None


def _gpu(world: World, index: int) -> GpuResult:
    device, core = world.devices[index], world.core.gpus[f"GPU-{index}"]
    whole = max(1, world.now_ns) / 100
    return GpuResult(
        index=index,
        busy_percent=round(device.served_ns / whole, 3),
        idle_percent=round(device.idle_ns / whole, 3),
        swap_percent=round(device.swap_ns / whole, 3),
        handovers=core.figures.handovers.count,
        turn_ms=core.pace.turn_ns / 1e6,
        slices=core.figures.slices.count,
        overlaps=core.figures.overlaps.count,
    )
