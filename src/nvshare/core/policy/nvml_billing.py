"""Checking bills against NVML's figures.

Rules:
1. A client reports how long it was busy, or that it is idle, and may lie. NVML reports how long the card
   worked for its process. A pod cannot have been billed for less than that.
2. A shortfall that neither rounded percents nor late reports explain is billed with the next sample. That is
   a dispute, and counted. A percent is rounded for each process, and those of a pod are added up: forty
   processes that work 0.6 % of the time each are 40 % to NVML.
3. A pod with repeated disputes is billed for what it held, like one that cannot report, and its reports of
   being idle are ignored, until there has been no dispute for a while.
4. A client without a connection cannot report. Its pod is billed what NVML reports for that time, which is
   subtracted from the client's own report when it is back. So a lost connection does not prevent comparisons.
5. If the card works for a client during a whole sample, though its pod had let go well before, the client
   uses the card by other means than CUDA (it renders), lost a message, or sends wrong ones. Its pod is billed
   what NVML reports. That contradicts no report, since there was none. The client is sent DROP_LOCK, and no
   answer is expected: an honest client knows that it does not hold, and does not answer.
6. What NVML reports for a client that has gone counts for its pod. If a client held, and NVML reports others
   but not that client, its pod is billed for what it held (``books.recent_holders``).
7. Clients that queue blindly are billed for what they held, and credited what NVML reports as unused
   (``lag``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from nvshare.core.client import Client
from nvshare.core.gpu import Gpu
from nvshare.core.policy import billing, lag
from nvshare.core.tenant import Tenant
from nvshare.core.violations import Violation

UNCERTAIN_PARTS: Final = 100
"""NVML's figure for a pod may be off by this fraction of the time, and ..."""
ROUNDED_PARTS: Final = 200
"""... by this fraction for each process that worked, if that is more."""
UNHELD_NS: Final = 1_500_000_000
"""NVML's samples may be this much older than the time they stand for."""
UNHELD_WORK_NS: Final = 50_000_000
LATE_NS: Final = 30_000_000


def sampled_clients(
    gpu: Gpu, clients: Mapping[int, Client], sample: tuple[tuple[int, int], ...]
) -> tuple[list[tuple[Client, int]], list[tuple[Client, int]]]:
    """The sampled clients that are here, and those that held until recently and have gone."""
    here, gone = [], []
    for key, worked_ns in sample:
        client = clients.get(key)
        if client is not None and client.gpu is gpu:
            here.append((client, worked_ns))
        elif client is None and (client := gpu.recent_holders.find(key)) is not None:
            gone.append((client, worked_ns))
        # NVML may report 0 for a client on several GPUs because it cannot see it.
        if worked_ns or client is None or not client.tenant.habits.spans_gpus:
            gpu.recent_holders.see(key, worked_ns)
    return here, gone


def skip_sample(clients: list[tuple[Client, int]], now_ns: int) -> None:
    """Bills are not compared with estimates: the comparison starts again with the next sample."""
    for tenant in {client.tenant for client, _ in clients}:
        tenant.habits.trust.reset(now_ns)
        _billed_since_sampled(tenant, now_ns)


def measured(
    gpu: Gpu, clients: list[tuple[Client, int]], gone: list[tuple[Client, int]], at_ns: int, now_ns: int
) -> None:
    """NVML: how long the card worked for some clients since its last sample."""
    worked: dict[Tenant, int] = {}
    rounded: dict[Tenant, int] = {}  # how many rounded percents went into that
    for client, worked_ns in gone:
        tenant = gpu.tenants.get(client.tenant.pod)
        if tenant is not None:
            worked[tenant] = worked.get(tenant, 0) + worked_ns
            rounded[tenant] = rounded.get(tenant, 0) + (worked_ns > 0)
    for client, worked_ns in clients:
        here_ns = worked_ns - client.absent_ns(worked_ns, at_ns)
        worked[client.tenant] = worked.get(client.tenant, 0) + here_ns
        rounded[client.tenant] = rounded.get(client.tenant, 0) + (here_ns > 0)
    for tenant, worked_ns in worked.items():
        tenant.habits.trust.see(worked_ns, at_ns)
        if not tenant.limited:
            continue
        since_ns = _billed_since_sampled(tenant, now_ns)
        if not tenant.queues_blindly and _let_go_before(tenant):
            _bill_unheld(gpu, tenant, worked_ns - since_ns, at_ns, now_ns)
        elif not tenant.queues_blindly:
            held_ns = tenant.account.held_since_settled(now_ns)
            _dispute(gpu, tenant, worked_ns - since_ns, rounded[tenant], held_ns, at_ns, now_ns)
        elif not gpu.occupants.undrained:  # running beside others takes longer, and that is billed
            lag.give_back(gpu, tenant, since_ns, worked_ns)
    for client, worked_ns in clients:
        if not client.connected and client.tenant.limited:
            _bill_absent(gpu, client, client.absent_ns(worked_ns, at_ns))


def _billed_since_sampled(tenant: Tenant, now_ns: int) -> int:
    """Tenants that queue blindly are billed for what they hold, so that counts, too."""
    held_ns = tenant.account.held_since_settled(now_ns) if tenant.queues_blindly else 0
    return tenant.habits.since_measured(tenant.account.billed_ns + held_ns)


def bill_unseen(gpu: Gpu, at_ns: int, now_ns: int) -> None:
    """Rule 6. It is not a violation that NVML reports nothing."""
    for held_by, owed_ns in gpu.recent_holders.sampled(at_ns, now_ns):
        tenant = gpu.tenants.get(held_by.pod)
        if tenant is not None and tenant.limited:
            billing.charge(gpu, tenant, owed_ns)
            tenant.habits.skip_measured(owed_ns)
            gpu.recent_holders.charged(tenant, owed_ns)


def working_unheld(clients: list[tuple[Client, int]]) -> list[Client]:
    """Rule 5."""
    return [c for c, worked_ns in clients if worked_ns > UNHELD_WORK_NS and _is_unheld(c)]


def _is_unheld(client: Client) -> bool:
    """Not if it queues blindly, since it may have work left, nor if it has no connection."""
    return client.connected and client.reports_busy and _let_go_before(client.tenant)


def _let_go_before(tenant: Tenant) -> bool:
    """The last sample covers only time in which it did not hold."""
    if tenant.gate.holding:
        return False
    return tenant.habits.trust.sampled_since(tenant.habits.served_ns + UNHELD_NS)


def _bill_unheld(gpu: Gpu, tenant: Tenant, unbilled_ns: int, at_ns: int, now_ns: int) -> None:
    """Rule 5. There was no report, so there is nothing to dispute."""
    tenant.habits.trust.pass_to(at_ns, now_ns)
    if unbilled_ns > 0:
        billing.charge(gpu, tenant, unbilled_ns)
        tenant.habits.skip_measured(unbilled_ns)


def _bill_absent(gpu: Gpu, client: Client, worked_ns: int) -> None:
    """Rule 4."""
    tenant = client.tenant
    client.presume(worked_ns)
    billing.charge(gpu, tenant, worked_ns)
    tenant.habits.skip_measured(worked_ns)


def _dispute(
    gpu: Gpu, tenant: Tenant, unbilled_ns: int, rounded: int, held_ns: int, at_ns: int, now_ns: int
) -> None:
    """Rules 2 and 3. What it holds will still be billed."""
    trust = tenant.habits.trust
    passed_ns = trust.pass_to(at_ns, now_ns)
    if passed_ns < 0:
        return  # NVML's first sample covers earlier time, too
    uncertain_ns = max(passed_ns // UNCERTAIN_PARTS, rounded * passed_ns // ROUNDED_PARTS)
    caught_ns = trust.add(unbilled_ns - uncertain_ns, held_ns, LATE_NS)
    if caught_ns:
        billing.charge(gpu, tenant, caught_ns)
        tenant.figures.dispute()
        gpu.notice(Violation.BILL, tenant, now_ns)
        trust.caught(now_ns)
