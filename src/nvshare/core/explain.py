"""Why a tenant waits, in words for its owner."""

from __future__ import annotations

from typing import Final

from nvshare.core.gpu import Gpu
from nvshare.core.snapshot import Explanation
from nvshare.core.tenant import Tenant

REASONS: Final = {
    "none": "nothing is asked for",
    "running": "it has the GPU",
    "draining": "its turn is over; work in flight is finishing",
    "late": "it did not drain in time; others run beside it",
    "quota": "it has had its share of the GPU for now",
    "turn": "another tenant has its turn",
    "memory": "its memory does not fit beside that of the tenants that run",
    "resume": "the daemon restarted; clients it knows of have a moment to come back",
}


def throttled(gpu: Gpu, tenant: Tenant) -> bool:
    """Wants the GPU, and its own quota is what holds it back."""
    return (
        tenant.wants_turn
        and tenant.limited
        and not tenant.share
        and tenant.holding == 0
        and tenant not in gpu.outside
        and tenant.account.virtual_ns > gpu.clock.virtual_ns
    )


def explain(gpu: Gpu, tenant: Tenant, now_ns: int) -> Explanation:
    if tenant in gpu.late:
        return Explanation("late", "late", tenant.dropped_ns, "its present kernel ends")
    if tenant in gpu.draining:
        return Explanation("draining", "draining", tenant.dropped_ns, "its present kernel ends")
    if tenant.holding:
        since_ns = min(client.granted_ns for client in tenant.clients.values() if client.holds)
        return Explanation("running", "running", since_ns, "nothing: it runs")
    if not tenant.wants_turn:
        return Explanation("idle", "none", tenant.idle_since_ns, "a kernel launch")
    reason, remedy = _waiting(gpu, tenant, now_ns)
    return Explanation("waiting", reason, tenant.waiting_since_ns, remedy)


def _waiting(gpu: Gpu, tenant: Tenant, now_ns: int) -> tuple[str, str]:
    if tenant in gpu.outside:
        slice_left_ns = max(0, gpu.set_since_ns + gpu.slice_ns() - now_ns)
        slice_end = f"the end of their slice in {slice_left_ns // 1_000_000} ms"
        if tenant.tally.outside_since_ns < 0:
            return "turn", slice_end  # it would fit, but one runs at a time
        free_bytes = max(0, gpu.safe_limit_bytes - gpu.set_bytes)
        return "memory", f"{tenant.used_bytes - free_bytes} bytes less in use by others, or {slice_end}"
    if throttled(gpu, tenant):
        wait_ns = gpu.clock.real_until(tenant.account.virtual_ns)
        return "quota", f"{wait_ns // 1_000_000} ms, or a higher quota than {tenant.percent} %"
    if gpu.resuming:
        return "resume", f"{len(gpu.resuming)} clients coming back, or {_left_ms(gpu, now_ns)} ms"
    holder = gpu.holder.pod if gpu.holder is not None else ", ".join(member.pod for member in gpu.group)
    return "turn", f"the end of the turn of {holder or 'whoever is draining'}"


def _left_ms(gpu: Gpu, now_ns: int) -> int:
    return max(0, gpu.resume_deadline_ns - now_ns) // 1_000_000
