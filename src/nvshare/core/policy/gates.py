"""Opening and closing the gates of a tenant's clients."""

from __future__ import annotations

from nvshare.core.account import CLOSED, WHOLE
from nvshare.core.client import Client
from nvshare.core.effects import DropReason, Effect
from nvshare.core.gpu import Gpu
from nvshare.core.policy import hints
from nvshare.core.tenant import Tenant


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
        # Nothing of the new hold is billed yet, so the lag is the plain difference.
        virtual_ns = gpu.pace.clock.virtual_ns - account.virtual_ns
        tenant.hold.admit(client, virtual_ns * account.weight // WHOLE)
        if tenant.hold.shared:
            account.expect_all()
    client.enter(now_ns)
    if account.open_ns == CLOSED:
        account.open(now_ns)
        tenant.figures.begin_work(gpu.figures.shared, now_ns)
    hints.hint_holder(gpu, client, out)
    out.append(client.grant)


def open_gates(gpu: Gpu, tenant: Tenant, now_ns: int, out: list[Effect]) -> None:
    """Let all clients of a tenant pass that wait at the gate, or can be called back."""
    if not tenant.gate.several:
        for client in tenant.clients.values():
            if client.may_pass:
                open_gate(gpu, client, now_ns, out)
        return
    for client in tenant.waiting() + tenant.closing():
        if client.may_pass:
            open_gate(gpu, client, now_ns, out)


def close_gates(gpu: Gpu, tenant: Tenant, reason: DropReason, out: list[Effect]) -> None:
    if not tenant.gate.several:
        for client in tenant.clients.values():
            if client.holds and not client.dropping:
                close_gate(gpu, client, reason, out)
        return
    for client in tenant.open():
        close_gate(gpu, client, reason, out)


def close_gate(gpu: Gpu, client: Client, reason: DropReason, out: list[Effect]) -> None:
    client.close()
    gpu.figures.dropped(reason)
    out.append(client.drop_for[reason])
