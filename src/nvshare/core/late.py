"""Progress before accuracy: holders that do not drain, and tenants others may spin for.

Rules:
1. A holder that has not drained within the grace period is late. The next runs beside it, and both
   are billed.
2. A late holder's gate opens again for a moment: what its kernel waits for may stand there.
3. Then it runs by duty cycle, as much of the time as its quota is of the GPU, and until it has
   drained in time ten times nobody waits for its drains.
4. A pod on several GPUs may spin on one for what stands at its gate on another. It never waits at a
   gate for longer than half a second, whatever it owes.
"""

from __future__ import annotations

from typing import Final

from nvshare.core import billing, gates
from nvshare.core.account import NEVER, WHOLE
from nvshare.core.effects import DropReason, Effect
from nvshare.core.gpu import MS, TURN_MIN_NS, Gpu
from nvshare.core.tenant import Tenant

TURNS: Final = 10
PERIOD_NS: Final = 500 * MS


def grace_ns(gpu: Gpu, tenant: Tenant) -> int:
    least_ns = gpu.settings.drain_grace_ns
    grace_ns = 4 * tenant.tail_ns
    if grace_ns <= least_ns:
        return least_ns
    return grace_ns if grace_ns < 2 * least_ns else 2 * least_ns


def drained(gpu: Gpu, tenant: Tenant, tail_ns: int) -> None:
    """Learn how long a drain takes; one that hung is no measure of that."""
    gpu.drop_to_release.add(tail_ns)
    tenant.dropped_ns = -1
    if tail_ns <= gpu.settings.drain_grace_ns or tail_ns <= grace_ns(gpu, tenant):
        tenant.tail_ns += (tail_ns - tenant.tail_ns) // 4
        if tenant.late_turns:
            tenant.late_turns -= 1


def leave_undrained(gpu: Gpu, tenant: Tenant, look_ns: int, now_ns: int) -> None:
    """Stop waiting for a tenant's drain; it goes on beside the others."""
    gpu.draining.pop(tenant, None)
    if not gpu.late:
        gpu.overlap_since_ns = now_ns
    gpu.late[tenant] = look_ns
    gpu.overlaps += 1
    if tenant is gpu.holder:
        gpu.holder = None
        if gpu.group:
            gpu.beside = False
            gpu.rest.open(now_ns)
    elif tenant in gpu.group:
        gpu.leave_group(tenant)
        if not gpu.group:
            billing.group_ended(gpu, now_ns)


def no_longer(gpu: Gpu, tenant: Tenant, now_ns: int) -> None:
    """A late tenant has let go after all."""
    if gpu.late.pop(tenant, None) is not None and not gpu.late:
        gpu.overlap_ns += now_ns - gpu.overlap_since_ns
        gpu.overlap_since_ns = -1


def give_up_waiting(gpu: Gpu, now_ns: int, out: list[Effect]) -> None:
    """The grace period is over (rule 1)."""
    for tenant in list(gpu.draining):
        if gpu.switching is not None:
            _note_unresponsive(gpu, tenant)
        leave_undrained(gpu, tenant, now_ns, now_ns)
        _reopen(gpu, tenant, now_ns, out)


def _note_unresponsive(gpu: Gpu, tenant: Tenant) -> None:
    if not tenant.unresponsive:
        tenant.unresponsive = True
        gpu.unresponsive_total += 1


def _reopen(gpu: Gpu, tenant: Tenant, now_ns: int, out: list[Effect]) -> None:
    tenant.late_turns = TURNS
    gates.open_gates(gpu, tenant, now_ns, out)
    gpu.late[tenant] = now_ns + _open_ns(gpu, tenant)


def _open_ns(gpu: Gpu, tenant: Tenant) -> int:
    return max(TURN_MIN_NS, gpu.effective_weight(tenant.account.weight) * PERIOD_NS // WHOLE)


def review(gpu: Gpu, now_ns: int, out: list[Effect]) -> None:
    """Open and close the gates of those that run by duty cycle (rules 3 and 4)."""
    for tenant, look_ns in list(gpu.late.items()):
        if look_ns <= now_ns:
            _next_phase(gpu, tenant, now_ns, out)
    while gpu.urgent:
        tenant = next(iter(gpu.urgent))
        if now_ns - tenant.waiting_since_ns < PERIOD_NS:
            break
        gpu.take_ready(tenant)
        gates.open_gates(gpu, tenant, now_ns, out)
        tenant.dropped_ns = now_ns
        leave_undrained(gpu, tenant, now_ns + _open_ns(gpu, tenant), now_ns)


def _next_phase(gpu: Gpu, tenant: Tenant, now_ns: int, out: list[Effect]) -> None:
    if any(client.holds and not client.dropping for client in tenant.clients.values()):
        first_dropped_ns = tenant.dropped_ns
        gates.close_gates(gpu, tenant, DropReason.TURN, now_ns, out)
        tenant.dropped_ns = first_dropped_ns
        gpu.late[tenant] = now_ns + PERIOD_NS
    elif tenant.wanting:
        _reopen(gpu, tenant, now_ns, out)
    else:
        gpu.late[tenant] = now_ns + PERIOD_NS
    if now_ns - tenant.dropped_ns >= gpu.settings.drop_timeout_ns:
        _note_unresponsive(gpu, tenant)


def next_look_ns(gpu: Gpu) -> int:
    at_ns = min(gpu.late.values(), default=NEVER)
    if gpu.urgent:
        at_ns = min(at_ns, next(iter(gpu.urgent)).waiting_since_ns + PERIOD_NS)
    return at_ns
