"""Hints: what clients should know of the others, such as that somebody waits or that quotas are enforced.

Rules:
1. A client is sent hints only when they differ from those it was sent last.
2. Hints that concern every client go out at once among few, and among many at intervals (``fan_out``).
"""

from __future__ import annotations

from typing import Final

from nvshare.core.client import Client
from nvshare.core.effects import Effect, SendHints
from nvshare.core.fan_out import interval_ns
from nvshare.core.gpu import Gpu

# Bits of ``Client.hints``.
OTHERS_WAIT: Final = 1
LIMITED_PRESENT: Final = 2
SHALLOW: Final = 4


def hint_holder(gpu: Gpu, client: Client, out: list[Effect]) -> None:
    hints = OTHERS_WAIT if gpu.queue.anybody() else 0
    if gpu.sent_hints.limited_present:
        hints |= LIMITED_PRESENT
    if gpu.occupants.beside and not client.tenant.limited:
        hints |= SHALLOW
    if hints != client.hints:
        hint(client, hints, out)


def hint(client: Client, hints: int, out: list[Effect]) -> None:
    """Send a client its hints, if they have changed."""
    if hints != client.hints and client.version >= 3 and client.connected:
        client.set_hints(hints)
        others_wait, shallow = (hints & OTHERS_WAIT) != 0, (hints & SHALLOW) != 0
        out.append(SendHints(client.key, others_wait, (hints & LIMITED_PRESENT) != 0, shallow))


def _hint_of_quotas(gpu: Gpu, client: Client, out: list[Effect]) -> None:
    """Update whether tenants with a quota are present, and keep the other hints."""
    present = LIMITED_PRESENT if gpu.sent_hints.limited_present else 0
    hint(client, client.hints & ~LIMITED_PRESENT | present, out)


def refresh_hints(gpu: Gpu, now_ns: int, out: list[Effect]) -> None:
    """Holders learn when somebody begins or ceases to wait: at once, or at intervals if they are many."""
    sent_hints, occupants = gpu.sent_hints, gpu.occupants
    waits, shallow = gpu.queue.anybody(), occupants.beside
    if waits is sent_hints.waits and shallow is sent_hints.beside:
        return
    if now_ns < sent_hints.holders_ns:
        sent_hints.send_at(sent_hints.holders_ns)
        return
    hints = (OTHERS_WAIT if waits else 0) | (LIMITED_PRESENT if sent_hints.limited_present else 0)
    sent = 0
    if occupants.holder is not None:
        for client in occupants.holder.open():
            hint(client, hints, out)
            sent += 1
    for tenant in occupants.group:
        for client in tenant.open():
            hint(client, hints | (SHALLOW if shallow else 0), out)
            sent += 1
    sent_hints.holders(waits, shallow, now_ns + interval_ns(sent))


def send_limited_present(gpu: Gpu, newcomer: Client | None, now_ns: int, out: list[Effect]) -> None:
    """All clients learn whether they must keep their queues short; if that is unchanged, only a newcomer."""
    sent_hints = gpu.sent_hints
    present = gpu.must_pace()
    if present is not sent_hints.limited_present and now_ns >= sent_hints.everybody_ns:
        sent = 0
        sent_hints.everybody(present, now_ns)
        for tenant in gpu.tenants.values():
            for client in tenant.clients.values():
                _hint_of_quotas(gpu, client, out)
                sent += 1
        sent_hints.everybody_again(now_ns + interval_ns(sent))
    elif present is not sent_hints.limited_present:
        sent_hints.send_at(sent_hints.everybody_ns)
    elif present and newcomer is not None:
        _hint_of_quotas(gpu, newcomer, out)


def send_deferred(gpu: Gpu, now_ns: int, out: list[Effect]) -> None:
    """Send what was put off because there are many clients."""
    gpu.sent_hints.clear_due()
    send_limited_present(gpu, None, now_ns, out)
    refresh_hints(gpu, now_ns, out)
