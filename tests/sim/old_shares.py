"""Shares of older clients, which queue kernels by a window of their own: every mix as a table.

    python -m tests.sim.old_shares

Over any 10 s after the first 5 s each has its quota of the card's time, give or take 2 points. Programs that
wait for every few kernels and compute in between are billed for gaps under 2 ms, as with every version: they
are due their quota of the time they hold, and the table shows what that comes to on the card.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import Final

from nvshare.sim.scenario import MS_NS, SECOND_NS, Program, Scenario, TenantSpec, mix
from nvshare.sim.world import World
from tests.tables import Table, numbers

MIXES: Final = ("30+60", "25+75", "10+90", "50+50", "20+30+40")
KERNELS_MS: Final = (1, 5, 20, 100)
MIXED: Final = ("30+60*", "30*+60", "25+75*", "25*+75", "20+30*+40")
"""A star marks a client of version 3."""
SYNCING: Final = (("30+60", 150), ("25+75", 150), ("30+60*", 150), ("30+60", 300))
"""With microseconds of host time after each 2 ms of kernels."""
SEEDS: Final = (1, 2, 3)
SETTLED_NS: Final = 5 * SECOND_NS
BOUND_POINTS: Final = 2.0
A_HAIR: Final = 1e-6
"""Two kernels of 100 ms are 2 points of 10 s to the last digit, and nobody runs fewer at a time."""
BATCH_NS: Final = 2 * MS_NS


@dataclass(frozen=True)
class Row:
    quotas: str
    program: str
    due: tuple[float, ...]
    got: tuple[float, ...]  # after the first 5 s
    worst: tuple[float, ...]  # over any 10 s after that, in points
    first: tuple[float, ...]  # in the first 5 s

    @property
    def good(self) -> bool:
        return max(self.worst) <= BOUND_POINTS + A_HAIR


def scenario(quotas: str, program: Program) -> Scenario:
    plain = mix(quotas.replace("*", ""), duration_ns=60 * SECOND_NS)
    protocols = [3 if part.endswith("*") else 2 for part in quotas.split("+")]

    def spec(tenant: TenantSpec, protocol: int) -> TenantSpec:
        return replace(tenant, protocol=protocol, program=program)

    return replace(plain, tenants=tuple(map(spec, plain.tenants, protocols)))


def measure(quotas: str, program: Program, name: str, seed: int) -> Row:
    wanted = scenario(quotas, program)
    duty = 1.0
    if program.kind == "paced":
        duty = program.batch_ns / (program.batch_ns + program.host_ns)
    world = World(wanted, seed)
    world.run_until(1)  # all are here
    meters = [tenancy.meter for tenancy in world.tenancies.values()]
    due = tuple(tenancy.percent * duty for tenancy in world.tenancies.values())
    for meter, percent in zip(meters, due, strict=True):
        meter.set_due(percent / 100, True, world.now_ns)
    world.run_until(SETTLED_NS)
    first = _served(world)
    for meter in meters:
        for error in meter.errors:
            error.begin_anew()
    world.run_until(wanted.duration_ns)
    world.finish()
    rest_ns = wanted.duration_ns - SETTLED_NS
    got = tuple(100 * (after - before) / rest_ns for before, after in zip(first, _served(world), strict=True))
    worst = tuple(meter.errors[0].worst_points for meter in meters)
    return Row(quotas, name, due, got, worst, tuple(100 * one / SETTLED_NS for one in first))


def _served(world: World) -> list[int]:
    for device in world.devices:
        device.flush(world.now_ns)
    return [tenancy.meter.served_ns for tenancy in world.tenancies.values()]


def backlogged(kernel_ms: int) -> Program:
    return Program(kernel_ns=(kernel_ms * MS_NS, kernel_ms * MS_NS))


def syncing(host_us: int) -> Program:
    return Program(
        kind="paced", kernel_ns=(MS_NS // 2, MS_NS // 2), batch_ns=BATCH_NS, host_ns=1000 * host_us
    )


def cases() -> list[tuple[str, Program, str]]:
    found = [(quotas, backlogged(ms), f"{ms} ms") for quotas in (*MIXES, *MIXED) for ms in KERNELS_MS]
    return found + [(quotas, syncing(us), f"0.5 ms, 4 and {us} us") for quotas, us in SYNCING]


def main() -> int:
    table = Table(f"{'quotas':13}{'kernels':21}{'due':>19}{'first 5 s':>20}{'after':>20}{'worst 10 s':>18}")
    for quotas, program, name in cases():
        rows = [measure(quotas, program, name, seed) for seed in SEEDS]
        row = max(rows, key=lambda one: max(one.worst))
        due, first, got, worst = map(numbers, (row.due, row.first, row.got, row.worst))
        table.row(f"{quotas:13}{name:21}{due:>19}{first:>20}{got:>20}{worst:>18}", row.good)
    return table.end(f"worst of {len(SEEDS)} seeds, bound {BOUND_POINTS:g} points; * is version 3")


if __name__ == "__main__":
    sys.exit(main())
