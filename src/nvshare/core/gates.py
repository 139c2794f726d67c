"""Opening and closing the gates of a tenant's clients."""

from __future__ import annotations

from nvshare.core.account import CLOSED, WHOLE
from nvshare.core.effects import DropReason, Effect
from nvshare.core.gpu import Gpu
from nvshare.core.tenant import Client, Tenant


def open_gate(gpu: Gpu, client: Client, now_ns: int, out: list[Effect]) -> None:
    tenant = client.tenant
    account = tenant.account
    if client.wants:
        client.wants = False
        tenant.wanting -= 1
        waited_ns = now_ns - client.wanted_ns
        tenant.tally.lock_wait.add(waited_ns)
        if waited_ns > tenant.longest_wait_ns:
            tenant.longest_wait_ns = waited_ns
    if not client.holds:
        client.holds = True
        client.granted_ns = now_ns
        client.hold_mark_ns = client.busy_ns
        tenant.holding += 1
        tenant.working += 1
        if tenant.hold_client is None:
            tenant.hold_client = client
            tenant.busy_mark_ns = client.busy_ns
            # Nothing of the hold that begins is billed yet, so the lag is the plain difference.
            tenant.hold_lag_ns = (gpu.clock.virtual_ns - account.virtual_ns) * account.weight // WHOLE
        elif tenant.hold_client is not client:
            tenant.hold_shared = True
    elif client.idle:
        client.idle = False
        tenant.working += 1
    client.dropping = False
    if account.open_ns == CLOSED:
        account.open_ns = now_ns
        tenant.tally.begin_work(gpu.crowd, now_ns)
    waits = gpu.someone_waits()
    hints = (waits, gpu.limited_present, gpu.beside and not tenant.limited)
    if hints != client.hints:
        gpu.hint(client, hints[0], hints[2], out)
    out.append(client.grant)


def open_gates(gpu: Gpu, tenant: Tenant, now_ns: int, out: list[Effect]) -> None:
    """Let all of a tenant's clients that stand at the gate, or are being sent away from it, pass."""
    for client in tenant.clients.values():
        if (client.wants or client.dropping) and client.connected:
            open_gate(gpu, client, now_ns, out)


def close_gates(gpu: Gpu, tenant: Tenant, reason: DropReason, now_ns: int, out: list[Effect]) -> None:
    tenant.dropped_ns = now_ns
    for client in tenant.clients.values():
        if client.holds and not client.dropping:
            client.dropping = True
            gpu.drops[reason] += 1
            out.append(client.drop_for[reason])


def refresh_hints(gpu: Gpu, out: list[Effect]) -> None:
    """Holders learn at once when somebody begins or ceases to wait."""
    waits = gpu.hinted_waits = gpu.someone_waits()
    shallow = gpu.hinted_beside = gpu.beside
    if gpu.holder is not None:
        for client in gpu.holder.clients.values():
            if client.holds and not client.dropping:
                gpu.hint(client, waits, False, out)
    for tenant in gpu.group:
        for client in tenant.clients.values():
            if client.holds and not client.dropping:
                gpu.hint(client, waits, shallow, out)
