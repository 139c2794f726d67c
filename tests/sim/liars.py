"""A day among liars: one client in ten lies in everything it says, and nobody else notices.

    python -m tests.sim.liars --hours 24 --gpus 4

On each GPU: tenants with quotas that always have work, half-idle ones with and without a quota, and a liar
with a quota of 10 (``lying``). Promised: over every ten minutes the tenants with quotas that always have work
have theirs within 2 points of the GPU, liars no more than 5 points above theirs, and whoever waits is granted
the GPU within its bound, as

    (tenants + 1) x (60 ms + 2 x drain grace) + 4 x 60 ms / share

`make verify-liars` runs it with the compiled core; a test samples a few minutes of it.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, field
from typing import Final

from nvshare.core.audit import SAMPLED, Checking
from nvshare.sim.scenario import GIB, MS_NS, SECOND_NS, Program, Scenario, TenantSpec
from nvshare.sim.world import Tenancy
from tests.sim.lying import LIAR, LiarsWorld
from tests.tables import Table

WINDOW_NS: Final = 600 * SECOND_NS
POINTS: Final = 2.0
LIAR_POINTS: Final = 5.0
TURN_NS: Final = 60 * MS_NS
HALF_IDLE: Final = Program("paced", batch_ns=20 * MS_NS, host_ns=20 * MS_NS)
BURSTS: Final = Program("paced", batch_ns=50 * MS_NS, period_ns=2 * SECOND_NS)


def tenants_of(gpu: int) -> tuple[TenantSpec, ...]:
    """Ten, of which one lies."""
    specs = (
        TenantSpec("steady-25", 25),
        TenantSpec("steady-15", 15, program=Program(kernel_ns=(MS_NS, 20 * MS_NS))),
        TenantSpec("steady-10", 10),
        TenantSpec("half-idle-10", 10, program=HALF_IDLE),
        TenantSpec("bursts-5", 5, program=BURSTS),
        TenantSpec("pair-10", 10, processes=2),
        TenantSpec("free"),
        TenantSpec("free-half-idle", program=HALF_IDLE),
        TenantSpec("free-bursts", program=BURSTS),
        TenantSpec(LIAR, 10),
    )
    return tuple(
        TenantSpec(
            f"{spec.name}.{gpu}",
            spec.core_percent,
            gpus=(gpu,),
            memory_bytes=GIB,
            processes=spec.processes,
            program=spec.program,
        )
        for spec in specs
    )


def scenario(gpus: int, duration_ns: int) -> Scenario:
    everybody = tuple(spec for gpu in range(gpus) for spec in tenants_of(gpu))
    return Scenario("liars", "one in ten lies", everybody, gpus=gpus, duration_ns=duration_ns)


@dataclass
class Record:
    """What one tenant had, window by window."""

    tenancy: Tenancy
    percent: int
    served_ns: int = 0
    worst_points: float = 0.0
    most_points: float = 0.0  # above its quota
    windows: int = 0
    shares: list[float] = field(default_factory=list)

    def window(self, length_ns: int) -> None:
        had_ns = self.tenancy.meter.served_ns - self.served_ns
        self.served_ns = self.tenancy.meter.served_ns
        points = 100 * had_ns / length_ns - self.percent
        self.worst_points = max(self.worst_points, abs(points))
        self.most_points = max(self.most_points, points)
        self.windows += 1

    @property
    def lies(self) -> bool:
        return self.tenancy.spec.name.startswith(LIAR)

    @property
    def promised(self) -> bool:
        return self.percent < 100 and self.tenancy.backlogged and not self.lies


def bound_ns(record: Record, here: int) -> int:
    share = 0.05 if record.percent == 100 else record.percent / 100
    return round((here + 1) * (TURN_NS + 2 * 500 * MS_NS) + 4 * TURN_NS / share)


def longest_wait_ns(record: Record, now_ns: int) -> int:
    waiting = [now_ns - process.asked_ns for process in record.tenancy.processes if process.asked]
    return max([round(record.tenancy.waits.longest_ns), *waiting])


@dataclass
class Outcome:
    world: LiarsWorld
    records: list[Record]

    def good(self, record: Record) -> bool:
        if record.lies:
            return record.most_points <= LIAR_POINTS
        fair = not record.promised or record.worst_points <= POINTS
        return fair and self.wait_ns(record) <= self.bound_ns(record)

    def bound_ns(self, record: Record) -> int:
        return bound_ns(record, sum(one.tenancy.device is record.tenancy.device for one in self.records))

    def wait_ns(self, record: Record) -> int:
        return longest_wait_ns(record, self.world.now_ns)


def run(
    gpus: int, duration_ns: int, seed: int, checking: Checking = SAMPLED, window_ns: int = WINDOW_NS
) -> Outcome:
    world = LiarsWorld(scenario(gpus, duration_ns), seed, checking)
    records = [Record(tenancy, tenancy.percent) for tenancy in world.tenancies.values()]
    for end_ns in range(window_ns, duration_ns + 1, window_ns):
        world.run_until(end_ns)
        for device in world.devices:
            device.flush(end_ns)
        for record in records:
            record.window(window_ns)
    assert not world.core.health.books_wrong, world.core.health.last_fault
    return Outcome(world, records)


def misdeeds(record: Record, world: LiarsWorld) -> str:
    """Of the tenant, under whatever names it went."""
    books = world.core.gpus[f"GPU-{record.tenancy.device.index}"]
    everybody = {pod: tenant.figures for pod, tenant in books.tenants.items()} | dict(
        books.figures.departed.figures()
    )
    mine = [figures for pod, figures in everybody.items() if pod.startswith(record.tenancy.spec.name)]
    counts = (
        sum(one.disputes for one in mine),
        sum(one.claims_cut for one in mine),
        sum(one.false_holds for one in mine),
        sum(one.late_drains for one in mine),
    )
    return " ".join(f"{count:7}" for count in counts)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--gpus", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    began_s = time.monotonic()
    outcome = run(options.gpus, round(options.hours * 3600) * SECOND_NS, options.seed)
    table = Table(
        f"{'tenant':18}{'quota':>6}{'worst 10 min':>14}{'longest wait':>14}{'bound':>9}"
        "   bills   memory holds  drains"
    )
    for record in outcome.records:
        quota = "-" if record.percent == 100 else str(record.percent)
        points = f"{record.most_points:+.2f}" if record.lies else f"{record.worst_points:.2f}"
        if not record.lies and not record.promised:
            points = "-"
        waits = f"{outcome.wait_ns(record) / SECOND_NS:12.2f} s{outcome.bound_ns(record) / SECOND_NS:7.1f} s"
        text = (
            f"{record.tenancy.spec.name:18}{quota:>6}{points:>14}{waits}  {misdeeds(record, outcome.world)}"
        )
        table.row(text, outcome.good(record))
    speed = options.hours * 3600 / (time.monotonic() - began_s)
    return table.end(f"{outcome.world.core_events} events of the core, {speed:.0f} times real time")


if __name__ == "__main__":
    sys.exit(main())
