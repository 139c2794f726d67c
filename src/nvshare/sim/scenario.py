"""What a simulation is made of: plain values."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from nvshare.core.settings import Settings

MS_NS: Final = 1_000_000
SECOND_NS: Final = 1_000_000_000
GIB: Final = 1 << 30

KERNEL_CLASSES: Final = {
    "0.1": (MS_NS // 10, MS_NS // 10),
    "1": (MS_NS, MS_NS),
    "5": (5 * MS_NS, 5 * MS_NS),
    "20": (20 * MS_NS, 20 * MS_NS),
    "25-50": (25 * MS_NS, 50 * MS_NS),
    "mixed": (MS_NS // 10, 20 * MS_NS),
}


@dataclass(frozen=True, slots=True)
class Program:
    """What a tenant's processes do.

    ``backlogged`` launches without end; ``paced`` launches ``batch_ns`` of work, waits for it, then
    takes ``host_ns`` or waits for the next ``period_ns``; ``collective`` does so on all its GPUs at
    once, with kernels that spin for each other.
    """

    kind: str = "backlogged"
    kernel_ns: tuple[int, int] = (5 * MS_NS, 5 * MS_NS)
    batch_ns: int = 0
    host_ns: int = 0
    period_ns: int = 0
    in_flight_ns: int = 20 * MS_NS
    busy_ns: int = 0  # idle phases: busy for so long, idle for so long
    idle_ns: int = 0


@dataclass(frozen=True, slots=True)
class TenantSpec:
    name: str
    core_percent: int = 100
    share: bool = False
    gpus: tuple[int, ...] = (0,)
    memory_bytes: int = GIB
    processes: int = 1
    protocol: int = 3
    arrive_ns: int = 0
    leave_ns: int = 0  # 0: stays
    every_ns: int = 0  # comes again this long after it came, until the end
    program: Program = field(default_factory=Program)


@dataclass(frozen=True, slots=True)
class FaultSpec:
    """Something goes wrong, or is changed, at a moment."""

    kind: str  # death, stop, ignore_drop, daemon_restart, quota
    at_ns: int
    tenant: str = ""
    for_ns: int = 0
    core_percent: int = 0
    every_ns: int = 0  # again and again


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    description: str
    tenants: tuple[TenantSpec, ...]
    gpus: int = 1
    gpu_memory_bytes: int = 16 * GIB
    duration_ns: int = 120 * SECOND_NS
    handover_ns: int = 400_000
    faults: tuple[FaultSpec, ...] = ()
    settings: Settings = field(default_factory=Settings)

    def with_kernels(self, kernel_ns: tuple[int, int]) -> Scenario:
        tenants = tuple(
            replace(tenant, program=replace(tenant.program, kernel_ns=kernel_ns)) for tenant in self.tenants
        )
        return replace(self, tenants=tenants)

    def with_batches(self, batch_ns: int) -> Scenario:
        tenants = tuple(
            replace(tenant, program=replace(tenant.program, batch_ns=batch_ns)) for tenant in self.tenants
        )
        return replace(self, tenants=tenants)


def mix(name: str, duration_ns: int = 120 * SECOND_NS) -> Scenario:
    """``30+60``, ``25+75+u``: backlogged tenants of these quotas on one GPU; u is an unlimited one."""
    tenants = []
    for number, part in enumerate(name.split("+")):
        percent = 100 if part == "u" else int(part)
        if not 1 <= percent <= 100:
            raise ValueError(f"quota {part!r} is not within 1..100")
        label = "unlimited" if percent == 100 else f"q{percent}"
        tenants.append(TenantSpec(name=f"{label}-{number}", core_percent=percent))
    return Scenario(
        name, "backlogged tenants of these quotas on one GPU", tuple(tenants), duration_ns=duration_ns
    )
