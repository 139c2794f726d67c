"""The short way of unlimited tenants while nobody with a quota is about.

Rules:
1. On a calm GPU nothing is to be decided: whoever has no quota and asks runs at once.
2. What comes of it is exactly what the long way (``turns``, ``residency``, a decision) would come to. When
   in doubt a GPU is not calm.
"""

from __future__ import annotations

from nvshare.core import gates, turns
from nvshare.core.effects import Effect
from nvshare.core.gpu import Gpu
from nvshare.core.tenant import Client


def is_calm(gpu: Gpu, now_ns: int) -> bool:
    """Nobody with a quota holds or waits, and nothing is under way but the group."""
    return not (
        gpu.holder is not None
        or gpu.ready
        or gpu.free_ready
        or gpu.requeue
        or gpu.draining
        or gpu.late
        or gpu.urgent
        or gpu.outside
        or gpu.set_dirty
        or gpu.set_check_ns <= now_ns
        or gpu.switching is not None
        or gpu.resuming
        or gpu.recalls
        or gpu.beside
        or gpu.hinted_waits
        or gpu.hinted_beside
        or (gpu.idlers and gpu.idlers[0][0] <= now_ns)
    )


def join(gpu: Gpu, client: Client, now_ns: int, out: list[Effect]) -> bool:
    """An idle unlimited tenant asks on a calm GPU: it joins the group at once, and no deadline changes.

    The short way to what ``request``, a place in line, ``start_turn`` and ``join_group`` come to.
    """
    tenant = client.tenant
    if tenant.limited or tenant.wanting or tenant.holding or not tenant.in_set or not is_calm(gpu, now_ns):
        return False
    if tenant.spans_gpus or tenant.late_turns:
        return False
    turns.wake(gpu, tenant, now_ns)
    if not gpu.group:
        gpu.rest.cap_lag(gpu.rest_turn_ns, gpu.clock)
        gpu.turn_started_ns = now_ns
        gpu.rest_entitled = turns.rest_owed(gpu, None)
        gpu.handovers += 1
        gpu.rest.open(now_ns)
    gpu.enter_group(tenant)
    tenant.turns += 1
    tenant.tally.lock_wait.counts[0] += 1  # a wait of nothing
    client.wanted_ns = now_ns
    client.told_waiting = False
    gates.open_gate(gpu, client, now_ns, out)
    if gpu.group_bytes > gpu.peak_running_bytes:
        gpu.peak_running_bytes = gpu.group_bytes
    return True
