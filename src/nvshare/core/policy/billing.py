"""What a hold costs.

Rules:
1. A pod is billed from the first launch to the last completion of a hold, over all its processes.
2. A single client that reports its busy time is billed that, which does not include the time of messages.
   Several are billed from the beginning of their first stint: a stint ended when its client let go, and began
   as much earlier as the client was busy. Clients that cannot report are billed for what they held, less what
   they reported as idle.
3. While others fill a holder's gaps its kernels take longer, but its gaps, in which the host works, do not.
   So the ratio of the two, measured without others, yields its own busy time.

How a bill affects a lag is in ``lag``.
"""

from __future__ import annotations

from typing import Final

from nvshare.core.account import CLOSED
from nvshare.core.books.pace import DEAD_CEILING_NS, TURN_MIN_NS
from nvshare.core.books.resuming_clients import Expected
from nvshare.core.client import Client
from nvshare.core.gpu import Gpu
from nvshare.core.policy import lag
from nvshare.core.tenant import Tenant

LEARN_FROM_NS: Final = TURN_MIN_NS // 2
"""Shorter holds say little about how a tenant works."""


def report_busy(gpu: Gpu, client: Client, busy_ns: int, idle_ns: int, now_ns: int) -> bool:
    """A client reports a gap, its end, or its counter. True if a gap began or ended."""
    client.update_busy(busy_ns)
    if not client.holds:
        return False
    tenant = client.tenant
    idle = idle_ns > 0 and not tenant.habits.trust.distrusted(now_ns)
    changed = idle != client.idle
    if changed:
        account = tenant.account
        if idle:
            client.pause()
            if tenant.gate.working == 0:
                account.pause(now_ns - idle_ns)
                tenant.figures.end_work(gpu.figures.shared, now_ns - idle_ns)
        else:
            client.go_on()
            account.open(now_ns)
            tenant.figures.begin_work(gpu.figures.shared, now_ns)
    if not tenant.hold.shared:
        settle(gpu, tenant, now_ns)
    return changed


def report_work(gpu: Gpu, client: Client, worked_ns: int, now_ns: int) -> None:
    """A client reports its total work on the card."""
    more_ns = client.work.report(worked_ns, now_ns)
    if more_ns > 0:
        hold = client.tenant.hold
        if client.holds and hold.alone and client.tenant.gate.holding == 1 and not gpu.occupants.undrained:
            hold.note_work(more_ns)
        else:
            gpu.gpu_time.in_group(client, gpu.occupants, more_ns, now_ns)


def report_absence(gpu: Gpu, client: Client, expected: Expected, worked_ns: int, now_ns: int) -> None:
    """A client of the previous daemon reports its work since the checkpoint: billed and counted once."""
    tenant, resuming = client.tenant, gpu.resuming
    busy_ns = resuming.busy_while_away_ns(expected, client.busy_ns, now_ns)
    charge(gpu, tenant, resuming.unbilled_ns(tenant.pod, busy_ns))
    if expected.worked_ns < 0:
        return
    client.work.begin(expected.worked_ns, expected.heard_ns, expected.excess_ns)
    more_ns = client.work.report(worked_ns, now_ns) * expected.part_permille // 1000
    if more_ns > 0:
        resuming.note_work(client, more_ns, now_ns - expected.heard_ns)


def count_absences(gpu: Gpu, now_ns: int) -> None:
    """Count the work during the daemon's absence, once nobody is awaited any longer."""
    for client, worked_ns in gpu.resuming.divided():
        client.tenant.had_gpu_time(now_ns - worked_ns, now_ns, client.work.corrected(worked_ns))


def charge(gpu: Gpu, tenant: Tenant, bill_ns: int) -> None:
    """Bill without a hold, and update the place in the queue, which depends on bills."""
    if bill_ns <= 0:
        return
    seated = gpu.unseat(tenant)
    tenant.account.charge(bill_ns)
    if tenant.limited:  # else what is shown is its GPU time
        tenant.figures.charge(bill_ns)
    if seated:
        gpu.reseat(tenant)


def settle(gpu: Gpu, tenant: Tenant, now_ns: int, reported: bool = True) -> None:
    """Bill the current hold so far (rule 2); an estimate, if its clients have not just reported."""
    account, hold = tenant.account, tenant.hold
    held_ns = account.pending_ns
    if account.open_ns != CLOSED:
        held_ns += now_ns - account.open_ns
    bill_ns = held_ns
    client = hold.client
    if not reported:
        bill_ns = account.expected_ns(now_ns)
    elif tenant.habits.trust.distrusted(now_ns):
        bill_ns = held_ns  # its reports were disputed (``nvml_billing``)
    elif client is not None and not hold.shared and client.version >= 3:
        busy_ns = hold.busy_since_settled(client.busy_ns)
        if hold.exclusive:
            hold.note_reported(held_ns - busy_ns)
            if held_ns >= LEARN_FROM_NS:
                busy_ns = _own_busy(gpu, tenant, busy_ns, held_ns, now_ns)
        if busy_ns < bill_ns:
            bill_ns = busy_ns if busy_ns > 0 else 0
    elif hold.from_ns > 0 and not account.paused:
        unused_ns = held_ns - (now_ns - hold.from_ns)
        hold.note_reported(unused_ns)
        if unused_ns > 0:
            bill_ns = held_ns - unused_ns
            if hold.exclusive and unused_ns < DEAD_CEILING_NS:
                gpu.pace.learn_dead(unused_ns)
    if held_ns:
        limited = tenant.limited
        had_ns = tenant.figures.settle(gpu.figures.shared, held_ns, bill_ns, limited, now_ns)
        account.settle_hold(now_ns, held_ns, bill_ns, had_ns)
        if limited and bill_ns:
            tenant.window.bill(now_ns - held_ns, now_ns, bill_ns)
        _note_gpu_time(gpu, tenant, held_ns, bill_ns, had_ns, reported, now_ns)
        if tenant.share and tenant.limited:
            lag.settle(gpu, tenant, now_ns)


def _note_gpu_time(
    gpu: Gpu, tenant: Tenant, held_ns: int, bill_ns: int, part_ns: int, reported: bool, now_ns: int
) -> None:
    """GPU time of a hold: what its clients reported, or else what was billed (``gpu_time``, rule 1)."""
    hold = tenant.hold
    client = hold.client
    cannot_report = hold.from_ns == 0
    if client is None:
        return
    if hold.alone:
        worked_ns = hold.worked_since_settled()
        if cannot_report:
            worked_ns = client.work.note_held(bill_ns, part_ns, now_ns)
        elif not reported or (hold.shared and worked_ns > held_ns):
            worked_ns = bill_ns
        gpu.gpu_time.alone(client, worked_ns, now_ns - held_ns, now_ns)
    elif cannot_report:
        worked_ns = client.work.note_held(bill_ns, part_ns, now_ns)
        if worked_ns:
            gpu.gpu_time.beside_others(client, worked_ns, now_ns)


def _own_busy(gpu: Gpu, tenant: Tenant, busy_ns: int, held_ns: int, now_ns: int) -> int:
    """A client's busy time without what it waited for others (rule 3). Learns from holds without others."""
    account, habits = tenant.account, tenant.habits
    unused_ns = held_ns - busy_ns
    if unused_ns < 0:
        unused_ns = 0
    if tenant.hold.beside:
        return min(busy_ns, unused_ns * habits.gap_permille // 1000)
    if unused_ns * 8 > held_ns or account.duty_percent != 100:
        account.expect_duty(100 - unused_ns * 100 // held_ns)
        if unused_ns:
            habits.note_gaps(busy_ns * 1000 // unused_ns, now_ns)
    if unused_ns < DEAD_CEILING_NS and unused_ns * 4 < held_ns and not account.paused:
        gpu.pace.learn_dead(unused_ns)
    return busy_ns


def end_hold(gpu: Gpu, tenant: Tenant, last: Client, now_ns: int) -> None:
    """The last client has let go. The cost of the hand-over is counted, whatever it was."""
    hold = tenant.hold
    if hold.lost:
        last.presume(tenant.account.expected_ns(now_ns))
    settle(gpu, tenant, now_ns, reported=not hold.lost)
    if hold.reported and hold.exclusive and hold.from_ns != 0:  # every client reported
        gpu.figures.handover.note(hold.unused_ns)
    tenant.account.close(now_ns)
    tenant.figures.end_hold(gpu.figures.shared, gpu.figures.quota_effect, now_ns)
    if tenant.limited:
        lag.end_hold(gpu, tenant)


def begin_group(gpu: Gpu, now_ns: int) -> None:
    gpu.pace.rest.open(now_ns)


def end_group(gpu: Gpu, now_ns: int) -> None:
    """The last unlimited tenant has let go: bill the group."""
    rest = gpu.pace.rest
    rest.close(now_ns)
    held_ns = rest.pending_ns
    rest.settle_hold(now_ns, held_ns, held_ns, held_ns)
    lag.settle_rest(gpu, now_ns)
    gpu.occupants.group_over(now_ns, gpu.settings.drain_grace_ns)
