"""No wait is without a deadline: something will happen by itself, and whoever waits is served in time."""

from __future__ import annotations

from nvshare.core.scheduler import Scheduler
from nvshare.core.tenant_state import ASKING, DRAINING, OUTSIDE, QUEUED


def waiting(core: Scheduler) -> list[str]:
    """Who waits, and for what, in words."""
    found = []
    for gpu in core.gpus.values():
        for tenant in gpu.tenants.values():
            if core.on and tenant.state in (ASKING, QUEUED, OUTSIDE, DRAINING):
                found.append(f"{tenant.pod} on {gpu.key} is {tenant.state}")
            found += [
                f"{share.client} of {tenant.pod} has asked for memory"
                for share in tenant.memory.shares.values()
                if share.waiting
            ]
    return found


def check_deadline(core: Scheduler) -> None:
    if core.next_deadline_ns() is None:
        assert not waiting(core), "and nothing will ever happen by itself"


def clients_waiting(core: Scheduler) -> set[int]:
    return {
        client.key
        for client in core.clients.values()
        if client.wants and not client.holds and client.connected and core.on
    }


def bound_ns(core: Scheduler) -> int:
    """By when all who wait now have been granted the GPU, though nobody says a word meanwhile.

    Whoever is to let go does not: each that goes first costs a turn and ten graces, what it is owed, and
    where memory does not fit a slice and the time to give it up. Whoever waits may have to repay a debt.
    """
    settings = core.settings
    most_ns = 10_000_000_000
    for gpu in core.gpus.values():
        tenants = len(gpu.tenants) + 1
        most_ns += tenants * (100_000_000 + 10 * settings.drain_grace_ns)
        most_ns += 2 * tenants * (settings.max_runtime_ns + settings.drop_timeout_ns)
        for tenant in gpu.tenants.values():
            lag_ns = tenant.account.lag_ns(gpu.pace.clock_of(tenant), gpu.pace.clock.at_ns)
            share = max(1, gpu.pace.due_weight(tenant)) / 100_000
            most_ns += round(max(lag_ns, -lag_ns / share))
    return 2 * most_ns
