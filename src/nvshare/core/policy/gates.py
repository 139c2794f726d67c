"""Opening and closing the gates of a tenant's clients, and what they are told of the others."""

from __future__ import annotations

from typing import Final

from nvshare.core.account import CLOSED, WHOLE
from nvshare.core.client import Client
from nvshare.core.crowd import pause_ns
from nvshare.core.effects import DropReason, Effect, TellHints
from nvshare.core.gpu import Gpu
from nvshare.core.tenant import Tenant

# What a client is told of the others, a bit each.
OTHERS_WAIT: Final = 1
LIMITED_PRESENT: Final = 2
SHALLOW: Final = 4


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
    hint_holder(gpu, client, out)
    out.append(client.grant)


def open_gates(gpu: Gpu, tenant: Tenant, now_ns: int, out: list[Effect]) -> None:
    """Let all of a tenant's clients that stand at the gate, or can be called back to it, pass."""
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


def hint_holder(gpu: Gpu, client: Client, out: list[Effect]) -> None:
    hints = OTHERS_WAIT if gpu.line.anybody() else 0
    if gpu.hinted.limited_present:
        hints |= LIMITED_PRESENT
    if gpu.floor.beside and not client.tenant.limited:
        hints |= SHALLOW
    if hints != client.hints:
        hint(client, hints, out)


def hint(client: Client, hints: int, out: list[Effect]) -> None:
    """What a client is to know of the others, if it does not."""
    if hints != client.hints and client.version >= 3 and client.connected:
        client.tell_hints(hints)
        others_wait, shallow = (hints & OTHERS_WAIT) != 0, (hints & SHALLOW) != 0
        out.append(TellHints(client.key, others_wait, (hints & LIMITED_PRESENT) != 0, shallow))


def _hint_of_quotas(gpu: Gpu, client: Client, out: list[Effect]) -> None:
    """Whether tenants with a quota are there, with what it knows of the rest."""
    present = LIMITED_PRESENT if gpu.hinted.limited_present else 0
    hint(client, client.hints & ~LIMITED_PRESENT | present, out)


def refresh_hints(gpu: Gpu, now_ns: int, out: list[Effect]) -> None:
    """Holders learn when somebody begins or ceases to wait: at once, or a crowd of them now and then."""
    hinted, floor = gpu.hinted, gpu.floor
    waits, shallow = gpu.line.anybody(), floor.beside
    if waits is hinted.waits and shallow is hinted.beside:
        return
    if now_ns < hinted.holders_ns:
        hinted.tell_at(hinted.holders_ns)
        return
    hints = (OTHERS_WAIT if waits else 0) | (LIMITED_PRESENT if hinted.limited_present else 0)
    told = 0
    if floor.holder is not None:
        for client in floor.holder.open():
            hint(client, hints, out)
            told += 1
    for tenant in floor.group:
        for client in tenant.open():
            hint(client, hints | (SHALLOW if shallow else 0), out)
            told += 1
    hinted.holders(waits, shallow, now_ns + pause_ns(told))


def tell_limited_present(gpu: Gpu, newcomer: Client | None, now_ns: int, out: list[Effect]) -> None:
    """All clients know whether they must keep their queues short; all but a newcomer did before."""
    hinted = gpu.hinted
    present = gpu.must_pace()
    if present is not hinted.limited_present and now_ns >= hinted.everybody_ns:
        told = 0
        hinted.everybody(present, now_ns)
        for tenant in gpu.tenants.values():
            for client in tenant.clients.values():
                _hint_of_quotas(gpu, client, out)
                told += 1
        hinted.everybody_again(now_ns + pause_ns(told))
    elif present is not hinted.limited_present:
        hinted.tell_at(hinted.everybody_ns)
    elif present and newcomer is not None:
        _hint_of_quotas(gpu, newcomer, out)


def tell_late(gpu: Gpu, now_ns: int, out: list[Effect]) -> None:
    """What a crowd was not told at once."""
    gpu.hinted.told()
    tell_limited_present(gpu, None, now_ns, out)
    refresh_hints(gpu, now_ns, out)
