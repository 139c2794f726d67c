"""Opening and closing the gates of a tenant's clients, and what they are told of the others."""

from __future__ import annotations

from nvshare.core.account import CLOSED, WHOLE
from nvshare.core.effects import DropReason, Effect, TellHints
from nvshare.core.gpu import Gpu
from nvshare.core.tenant import Client, Tenant


def open_gate(gpu: Gpu, client: Client, now_ns: int, out: list[Effect]) -> None:
    tenant = client.tenant
    account = tenant.account
    if client.wants:
        waited_ns = now_ns - client.wanted_ns
        client.stop_asking()
        tenant.figures.lock_wait.note(waited_ns)
        if waited_ns > tenant.habits.longest_wait_ns:
            tenant.habits.note_wait(waited_ns)
    if not client.holds:
        # Nothing of the hold that begins is billed yet, so the lag is the plain difference.
        virtual_ns = gpu.pace.clock.virtual_ns - account.virtual_ns
        tenant.hold.admit(client, virtual_ns * account.weight // WHOLE)
        if tenant.hold.shared:
            account.expect_all()
    client.enter(now_ns)
    if account.open_ns == CLOSED:
        account.open(now_ns)
        tenant.figures.begin_work(gpu.figures.shared, now_ns)
    hints = (gpu.line.anybody(), gpu.hinted.limited_present, gpu.floor.beside and not tenant.limited)
    if hints != client.hints:
        hint(gpu, client, hints[0], hints[2], out)
    out.append(client.grant)


def open_gates(gpu: Gpu, tenant: Tenant, now_ns: int, out: list[Effect]) -> None:
    """Let all of a tenant's clients that stand at the gate, or can be called back to it, pass."""
    for client in tenant.clients.values():
        if client.may_pass:
            open_gate(gpu, client, now_ns, out)


def close_gates(gpu: Gpu, tenant: Tenant, reason: DropReason, out: list[Effect]) -> None:
    for client in tenant.clients.values():
        if client.holds and not client.dropping:
            client.close()
            gpu.figures.dropped(reason)
            out.append(client.drop_for[reason])


def hint(gpu: Gpu, client: Client, others_wait: bool, shallow: bool, out: list[Effect]) -> None:
    hints = (others_wait, gpu.hinted.limited_present, shallow)
    if client.version >= 3 and hints != client.hints and client.connected:
        client.tell_hints(hints)
        out.append(TellHints(client.key, *hints))


def refresh_hints(gpu: Gpu, out: list[Effect]) -> None:
    """Holders learn at once when somebody begins or ceases to wait."""
    floor = gpu.floor
    waits, shallow = gpu.line.anybody(), floor.beside
    gpu.hinted.holders(waits, shallow)
    if floor.holder is not None:
        for client in floor.holder.clients.values():
            if client.holds and not client.dropping:
                hint(gpu, client, waits, False, out)
    for tenant in floor.group:
        for client in tenant.clients.values():
            if client.holds and not client.dropping:
                hint(gpu, client, waits, shallow, out)


def tell_limited_present(gpu: Gpu, newcomer: Client | None, out: list[Effect]) -> None:
    """All clients know whether they must keep their queues short; all but a newcomer did before."""
    present = gpu.must_pace()
    if present != gpu.hinted.limited_present:
        gpu.hinted.everybody(present)
        for tenant in gpu.tenants.values():
            for client in tenant.clients.values():
                hint(gpu, client, client.hints[0], client.hints[2], out)
    elif present and newcomer is not None and not newcomer.hints[1]:
        hint(gpu, newcomer, newcomer.hints[0], newcomer.hints[2], out)
