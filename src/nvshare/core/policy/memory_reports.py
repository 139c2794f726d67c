"""What follows from a client's report of its memory.

A report is believed as far as it can be true (``memory_claims``); what is cut off is counted for the pod.
"""

from __future__ import annotations

from nvshare.core import events
from nvshare.core.client import Client
from nvshare.core.effects import Effect
from nvshare.core.gpu import Gpu
from nvshare.core.tenant import Tenant
from nvshare.core.violations import Violation


def report_used(client: Client, event: events.MemoryUsed, now_ns: int, out: list[Effect]) -> bool:
    """Whether something must be decided now."""
    gpu, tenant = client.gpu, client.tenant
    memory = tenant.memory
    memory.report(client.key, event[1], event[2], now_ns, out)
    note_cut_claims(gpu, tenant, now_ns)
    if memory.used_bytes != tenant.footprint.used_bytes:
        gpu.set_used(tenant, memory.believed_bytes)
    return gpu.resident_set.dirty


def return_lease(client: Client, event: events.LeaseReturned, now_ns: int, out: list[Effect]) -> None:
    gpu, tenant = client.gpu, client.tenant
    tenant.memory.lease_returned(client.key, event.generation, event.used_bytes, now_ns, out)
    note_cut_claims(gpu, tenant, now_ns)
    gpu.watch_recall(tenant)
    gpu.set_used(tenant, tenant.memory.believed_bytes)


def note_cut_claims(gpu: Gpu, tenant: Tenant, now_ns: int) -> None:
    """Count what processes claimed to have and cannot have."""
    if tenant.memory.claims.cut:
        tenant.figures.cut_claims(tenant.memory.claims.take_cut())
        gpu.notice(Violation.MEMORY, tenant, now_ns)
