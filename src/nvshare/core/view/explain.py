"""Why a tenant waits, in words for its owner."""

from __future__ import annotations

from typing import Final

from nvshare.core.gpu import Gpu
from nvshare.core.standing import DRAINING, OUTSIDE, UNDRAINED
from nvshare.core.tenant import Tenant
from nvshare.core.view.snapshot import Explanation

REASONS: Final = {
    "none": "nothing is asked for",
    "running": "it has the GPU",
    "draining": "its turn is over; work in flight is finishing",
    "late": "it did not drain in time; others run beside it",
    "unresponsive": "it has not drained for NVSHARE_DROP_TIMEOUT_SEC; others run beside it",
    "quota": "it has had its share of the GPU for now",
    "turn": "another tenant has its turn",
    "memory": "its memory does not fit beside that of the tenants that run",
    "off": "scheduling is off: it runs ungated",
    "resume": "the daemon restarted; clients it knows of have a moment to come back",
}


def throttled(gpu: Gpu, tenant: Tenant) -> bool:
    """Wants the GPU, and its own quota is what holds it back."""
    return (
        tenant.wanting > 0
        and tenant.limited
        and not tenant.share
        and tenant.holding == 0
        and tenant.standing != OUTSIDE
        and tenant.account.virtual_ns > gpu.pace.clock.virtual_ns
    )


def explain(gpu: Gpu, tenant: Tenant, now_ns: int, off_since_ns: int) -> Explanation:
    if off_since_ns >= 0:  # nobody asks any more, so what it does is not known
        return Explanation("ungated", "off", off_since_ns, f"nothing: {REASONS['off']}")
    hold = tenant.hold
    if tenant.habits.unresponsive:
        remedy = f"its present kernel ends, or nvshare ctl kill {tenant.pod}"
        return Explanation("late", "unresponsive", hold.late_ns, remedy)
    if tenant.standing == UNDRAINED:
        return Explanation("late", "late", hold.late_ns, "its present kernel ends")
    if tenant.standing == DRAINING:
        return Explanation("draining", "draining", hold.dropped_ns, "its present kernel ends")
    if tenant.holding:
        since_ns = min(client.granted_ns for client in tenant.clients.values() if client.holds)
        return Explanation("running", "running", since_ns, "nothing: it runs")
    if not tenant.wanting:
        return Explanation("idle", "none", tenant.idling.since_ns, "a kernel launch")
    reason, remedy = _waiting(gpu, tenant, now_ns)
    return Explanation("waiting", reason, tenant.seat.since_ns, remedy)


def _waiting(gpu: Gpu, tenant: Tenant, now_ns: int) -> tuple[str, str]:
    residence = gpu.residence
    if tenant.standing == OUTSIDE:
        slice_left_ns = max(0, residence.since_ns + gpu.slice_ns() - now_ns)
        slice_end = f"the end of their slice in {slice_left_ns // 1_000_000} ms"
        if tenant.figures.outside_since_ns < 0:
            return "turn", slice_end  # it would fit, but one runs at a time
        free_bytes = max(0, gpu.safe_limit_bytes - residence.set_bytes)
        lacks_bytes = tenant.lodging.used_bytes - free_bytes
        return "memory", f"{lacks_bytes} bytes less in use by others, or {slice_end}"
    if throttled(gpu, tenant):
        wait_ns = gpu.pace.clock.real_until(tenant.account.virtual_ns)
        return "quota", f"{wait_ns // 1_000_000} ms, or a higher quota than {tenant.percent} %"
    if gpu.returning.waits:
        left_ms = max(0, gpu.returning.deadline_ns - now_ns) // 1_000_000
        return "resume", f"{gpu.returning.waited_for()} clients coming back, or {left_ms} ms"
    floor = gpu.floor
    holders = [floor.holder.pod] if floor.holder is not None else [member.pod for member in floor.group]
    return "turn", f"the end of the turn of {', '.join(holders) or 'whoever is draining'}"
