"""What a hold costs.

Rules:
1. A pod is billed from the first launch to the last completion of a hold, over all its processes.
2. One client that tells its own busy time is billed by that; it leaves out the time messages took.
   Several are billed from the first of their stints on, each of which ended when its client let go and
   began as much earlier as it was busy. Clients that cannot tell are billed by what they held less what
   they said was idle.
3. What was held and not used is not owed later: a hold banks no credit.
4. Idle time that was borrowed is not owed back; a turn taken by right is, with its overrun.
5. While others fill a holder's gaps its kernels take longer, but its gaps are the host's and do not.
   So the ratio of the two, measured without company, tells what it was busy on its own account.
"""

from __future__ import annotations

from typing import Final

from nvshare.core.account import CLOSED, Account
from nvshare.core.gpu import DEAD_CEILING_NS, TURN_MIN_NS, Gpu
from nvshare.core.tenant import Client, Tenant

OVERRUN_TURNS: Final = 4
LEARN_FROM_NS: Final = TURN_MIN_NS // 2
"""Shorter holds tell little of how a tenant works."""


def report_busy(gpu: Gpu, client: Client, busy_ns: int, idle_ns: int, now_ns: int) -> bool:
    """A holder tells of a gap, of its end, or how far its counter is. True if it began or ended a gap."""
    if busy_ns > client.busy_ns:
        client.busy_ns = busy_ns
    if not client.holds:
        return False
    tenant = client.tenant
    idle = idle_ns > 0
    changed = idle != client.idle
    if changed:
        account = tenant.account
        client.idle = idle
        if idle:
            tenant.working -= 1
            if tenant.working == 0:
                account.close(now_ns - idle_ns)
                account.paused = True
                tenant.tally.end_work(gpu.crowd, now_ns - idle_ns)
        else:
            tenant.working += 1
            account.open(now_ns)
            tenant.tally.begin_work(gpu.crowd, now_ns)
    if not tenant.hold_shared:
        settle(gpu, tenant, now_ns)
    return changed


def charge(gpu: Gpu, tenant: Tenant, bill_ns: int) -> None:
    """Bill without a hold; its place in a queue is by what it was billed."""
    was_ready, was_outside = gpu.is_ready(tenant), tenant in gpu.outside and tenant.limited
    if was_ready:
        gpu.take_ready(tenant)
    elif was_outside:
        gpu.forget_waiting(tenant)
    tenant.account.charge(bill_ns)
    tenant.tally.occupied_ns += bill_ns
    if was_ready:
        gpu.push_ready(tenant)
    elif was_outside:
        gpu.note_waiting(tenant)


def settle(gpu: Gpu, tenant: Tenant, now_ns: int) -> None:
    """Bill the present hold so far (rule 2)."""
    account = tenant.account
    held_ns = account.pending_ns
    if account.open_ns != CLOSED:
        held_ns += now_ns - account.open_ns
    bill_ns = held_ns
    client = tenant.hold_client
    if client is not None and not tenant.hold_shared and client.version >= 3:
        busy_ns = client.busy_ns - tenant.busy_mark_ns
        tenant.busy_mark_ns = client.busy_ns
        if tenant is gpu.holder:
            tenant.hold_told = True
            if busy_ns < held_ns:
                tenant.hold_unused_ns += held_ns - busy_ns
            if held_ns >= LEARN_FROM_NS:
                busy_ns = _own_busy(gpu, tenant, busy_ns, held_ns, now_ns)
        if busy_ns < bill_ns:
            bill_ns = busy_ns if busy_ns > 0 else 0
    elif tenant.hold_from_ns > 0 and not account.paused:
        tenant.hold_told = True
        unused_ns = held_ns - (now_ns - tenant.hold_from_ns)
        if unused_ns > 0:
            bill_ns = held_ns - unused_ns
            tenant.hold_unused_ns += unused_ns
            if tenant is gpu.holder and unused_ns < DEAD_CEILING_NS:
                gpu.learn_dead(unused_ns)
    if held_ns:
        account.settle_hold(now_ns, held_ns, bill_ns)
        tenant.tally.settle(gpu.crowd, held_ns, bill_ns, now_ns)
        if bill_ns:
            tenant.window.add(now_ns - held_ns, now_ns, bill_ns)
        if tenant.share and tenant.limited:
            forgive_borrowed(gpu, account, tenant.turn_ns, now_ns)


def _own_busy(gpu: Gpu, tenant: Tenant, busy_ns: int, held_ns: int, now_ns: int) -> int:
    """A client's busy time without what it spent waiting for company (rule 5); learns from holds alone."""
    account = tenant.account
    unused_ns = held_ns - busy_ns
    if unused_ns < 0:
        unused_ns = 0
    if tenant.hold_beside:
        return min(busy_ns, unused_ns * tenant.gap_permille // 1000)
    if unused_ns * 8 > held_ns or account.duty_percent != 100:
        duty = 100 - unused_ns * 100 // held_ns
        account.duty_percent += (max(1, duty) - account.duty_percent + 3) // 4
        if unused_ns:
            tenant.gap_permille = busy_ns * 1000 // unused_ns
            tenant.gap_known_ns = now_ns
    if unused_ns < DEAD_CEILING_NS and unused_ns * 4 < held_ns and not account.paused:
        gpu.learn_dead(unused_ns)
    return busy_ns


def note_handover(gpu: Gpu, tenant: Tenant) -> None:
    """A hold has ended. What its hand-over cost is shown, however bad; the pace learns from likely ones."""
    if tenant is gpu.holder and tenant.hold_from_ns != 0:  # nobody left without a word
        gpu.handover.add(tenant.hold_unused_ns)
    tenant.hold_told = False
    tenant.hold_unused_ns = 0


def forgive_borrowed(gpu: Gpu, account: Account, turn_ns: int, until_ns: int) -> None:
    clock_ns = gpu.clock.virtual_ns
    if account.virtual_ns <= clock_ns:
        return  # it is not ahead at all
    length_ns = max(turn_ns, min(until_ns - gpu.turn_started_ns, OVERRUN_TURNS * turn_ns))
    most_ns = clock_ns + gpu.allowance(account.weight, length_ns)
    if account.virtual_ns > most_ns:
        account.virtual_ns = most_ns


def bank_nothing(gpu: Gpu, tenant: Tenant) -> None:
    """Rule 3, when a hold has ended."""
    if tenant.pace_mark != gpu.pace_mark:
        gpu.fit_pace(tenant)
    account, clock = tenant.account, gpu.clock
    if account.virtual_ns < clock.virtual_ns:
        most_ns = tenant.turn_ns if tenant.turn_ns > tenant.hold_lag_ns else tenant.hold_lag_ns
        account.cap_lag(most_ns, clock)


def group_ended(gpu: Gpu, now_ns: int) -> None:
    """The last unlimited tenant has let go: bill the group, as far as it ran by right."""
    rest = gpu.rest
    gpu.beside = False
    rest.close(now_ns)
    rest.settle_hold(now_ns, rest.pending_ns, rest.pending_ns)
    forgive_borrowed(gpu, rest, gpu.rest_turn_ns, now_ns if gpu.rest_entitled else gpu.turn_started_ns)
    if gpu.group_dropped_ns >= 0:
        tail_ns = min(now_ns - gpu.group_dropped_ns, gpu.settings.drain_grace_ns)
        gpu.group_tail_ns += (tail_ns - gpu.group_tail_ns) // 4
        gpu.group_dropped_ns = -1
