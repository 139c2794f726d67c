"""Explains to its owner why a tenant waits."""

from __future__ import annotations

from typing import Final

from nvshare.core.gpu import Gpu
from nvshare.core.policy import memory_slices
from nvshare.core.settings import NS_PER_SEC
from nvshare.core.tenant import Tenant
from nvshare.core.tenant_state import DRAINING, OUTSIDE, UNDRAINED
from nvshare.core.units import counted, format_bytes, format_ns
from nvshare.core.view.snapshot import Explanation

REASONS: Final = {
    "none": "it does not ask for the GPU",
    "running": "it has the GPU",
    "draining": "its turn is over; work in flight is finishing",
    "late": "it did not drain in time; others run beside it",
    "unresponsive": "it has not drained for NVSHARE_DROP_TIMEOUT_SEC; others run beside it",
    "quota": "it has used its share of the GPU for now",
    "turn": "it is another tenant's turn",
    "memory": "its memory does not fit beside that of the running tenants",
    "off": "scheduling is off: it runs ungated",
    "resume": "the daemon restarted; known clients have a moment to come back",
}


def throttled(gpu: Gpu, tenant: Tenant) -> bool:
    """It wants the GPU, and is held back by its own quota."""
    return (
        tenant.gate.wanting > 0
        and tenant.limited
        and not tenant.share
        and tenant.gate.holding == 0
        and tenant.state != OUTSIDE
        and tenant.account.virtual_ns > gpu.pace.clock.virtual_ns
    )


def explain(gpu: Gpu, tenant: Tenant, now_ns: int, off_since_ns: int) -> Explanation:
    if off_since_ns >= 0:  # clients do not ask, so what they do is not known
        return Explanation("ungated", "off", off_since_ns, f"nothing: {REASONS['off']}")
    hold = tenant.hold
    if tenant.habits.unresponsive:
        remedy = f"the end of its present kernel, or nvshare ctl kill {tenant.pod}"
        return Explanation("late", "unresponsive", hold.late_ns, remedy)
    if tenant.state == UNDRAINED:
        return Explanation("late", "late", hold.late_ns, "the end of its present kernel")
    if tenant.state == DRAINING:
        return Explanation("draining", "draining", hold.dropped_ns, "the end of its present kernel")
    if tenant.gate.holding:
        since_ns = min(client.granted_ns for client in tenant.clients.values() if client.holds)
        return Explanation("running", "running", since_ns, "nothing: it is running")
    if not tenant.gate.wanting:
        return Explanation("idle", "none", tenant.idling.since_ns, "a kernel launch")
    reason, remedy = _waiting(gpu, tenant, now_ns)
    return Explanation("waiting", reason, tenant.seat.since_ns, remedy)


def _waiting(gpu: Gpu, tenant: Tenant, now_ns: int) -> tuple[str, str]:
    resident_set = gpu.resident_set
    if tenant.state == OUTSIDE:
        expected_ns = memory_slices.expected_in_ns(gpu, tenant, now_ns)
        its_slice = f"its slice in about {format_ns(_to_the_second(max(expected_ns, 1)))}"
        if tenant.figures.outside_since_ns < 0:
            return "turn", its_slice  # it would fit, but only one runs at a time
        free_bytes = max(0, gpu.safe_limit_bytes - resident_set.set_bytes)
        lacks_bytes = tenant.footprint.used_bytes - free_bytes
        return "memory", f"{format_bytes(lacks_bytes)} freed by others, or {its_slice}"
    if throttled(gpu, tenant):
        wait_ns = gpu.pace.clock.real_until(tenant.account.virtual_ns)
        wait = format_ns(wait_ns // 1_000_000 * 1_000_000)
        return "quota", f"waiting for {wait}, or a quota above {tenant.percent} %"
    if gpu.resuming.waits:
        left_ns = max(0, gpu.resuming.deadline_ns - now_ns)
        others = counted(gpu.resuming.waited_for(), "process", "processes")
        return "resume", f"the return of {others}, or {format_ns(_to_the_second(left_ns))}"
    occupants = gpu.occupants
    holders = (
        [occupants.holder.pod] if occupants.holder is not None else [member.pod for member in occupants.group]
    )
    return "turn", f"the end of the turn of {', '.join(holders) or 'whoever is draining'}"


def _to_the_second(duration_ns: int) -> int:
    return -(-duration_ns // NS_PER_SEC) * NS_PER_SEC
