"""The fast path of unlimited tenants while no tenant with a quota is active.

Rules:
1. On an uncontended GPU there is nothing to decide: a tenant without a quota that asks runs at once.
2. The result is exactly that of the long path (``turns``, ``memory_admission``, a decision). When in doubt, a
   GPU is contended.
"""

from __future__ import annotations

from nvshare.core.client import Client
from nvshare.core.effects import Effect
from nvshare.core.gpu import Gpu
from nvshare.core.policy import billing, gates, lag, turns
from nvshare.core.tenant_state import IDLE, TOGETHER


def is_uncontended(gpu: Gpu, now_ns: int) -> bool:
    """No tenant with a quota holds or waits, and nothing is in progress but the group."""
    queue, occupants, sent_hints = gpu.queue, gpu.occupants, gpu.sent_hints
    return not (
        occupants.holder is not None
        or queue.ready
        or queue.free
        or gpu.resident_set.outside
        or occupants.beside
        or sent_hints.waits
        or sent_hints.beside
        or gpu.pending(now_ns)
    )


def join(gpu: Gpu, client: Client, now_ns: int, out: list[Effect]) -> bool:
    """An idle unlimited tenant asks on an uncontended GPU: it joins the group, and no deadline changes.

    The result is that of ``request``, a place in the queue, ``start_turn`` and ``join_group``.
    """
    tenant = client.tenant
    if tenant.state != IDLE or not tenant.footprint.in_set or not is_uncontended(gpu, now_ns):
        return False
    if tenant.habits.spans_gpus or tenant.habits.late_turns or (client.may_be_fresh and gpu.must_pace()):
        return False
    turns.wake(gpu, tenant, now_ns)
    if not gpu.occupants.group:
        lag.wake_rest(gpu)
        gpu.occupants.begin_group(turns.rest_owed(gpu, None), now_ns)
        gpu.figures.handovers.add_one()
        billing.begin_group(gpu, now_ns)
    gpu.move(tenant, TOGETHER, now_ns)
    tenant.habits.note_turn()
    tenant.figures.lock_wait.note_zero()
    gates.open_gate(gpu, client, now_ns, out)
    return True
