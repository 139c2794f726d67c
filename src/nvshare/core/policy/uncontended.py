"""The short way of unlimited tenants while nobody with a quota is about.

Rules:
1. On an uncontended GPU nothing is to be decided: whoever has no quota and asks runs at once.
2. What comes of it is exactly what the long way (``turns``, ``residency``, a decision) would come to. When
   in doubt a GPU is contended.
"""

from __future__ import annotations

from nvshare.core.client import Client
from nvshare.core.effects import Effect
from nvshare.core.gpu import Gpu
from nvshare.core.policy import billing, gates, lag, turns
from nvshare.core.standing import IDLE, TOGETHER


def is_uncontended(gpu: Gpu, now_ns: int) -> bool:
    """Nobody with a quota holds or waits, and nothing is under way but the group."""
    line, floor, hinted = gpu.line, gpu.floor, gpu.hinted
    return not (
        floor.holder is not None
        or line.ready
        or line.free
        or gpu.residence.outside
        or floor.beside
        or hinted.waits
        or hinted.beside
        or gpu.pending(now_ns)
    )


def join(gpu: Gpu, client: Client, now_ns: int, out: list[Effect]) -> bool:
    """An idle unlimited tenant asks on an uncontended GPU: it joins the group, and no deadline changes.

    The short way to what ``request``, a place in line, ``start_turn`` and ``join_group`` come to.
    """
    tenant = client.tenant
    if tenant.standing != IDLE or not tenant.lodging.in_set or not is_uncontended(gpu, now_ns):
        return False
    if tenant.habits.spans_gpus or tenant.habits.late_turns or (client.may_be_green and gpu.must_pace()):
        return False
    turns.wake(gpu, tenant, now_ns)
    if not gpu.floor.group:
        lag.wake_rest(gpu)
        gpu.floor.begin_group(turns.rest_owed(gpu, None), now_ns)
        gpu.figures.handovers.add_one()
        billing.begin_group(gpu, now_ns)
    gpu.move(tenant, TOGETHER, now_ns)
    tenant.habits.note_turn()
    tenant.figures.lock_wait.note_zero()
    gates.open_gate(gpu, client, now_ns, out)
    return True
