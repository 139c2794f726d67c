"""What NVML says to bills.

Rules:
1. A client tells for how long it was busy, and may lie; or it says that it is idle. NVML tells for how long
   the card worked for its process. A pod cannot have been billed for less than that.
2. What is missing, beyond what percents cannot tell and what may be late, is billed with the next sample.
   That is a dispute, and counted. A percent is rounded for each process, and a pod's are added up: forty
   processes that work 0.6 % of the time each are 40 % to NVML.
3. A pod that is caught again and again is billed by what it held, like one that cannot tell, and is not heard
   when it says that it is idle, until it has not been caught for a while.
4. Who is away cannot tell. Its pod is billed what NVML says the card did for it meanwhile, and what it tells
   when it is back counts without that. So a connection that is gone keeps nobody from being compared.
5. A client for which the card works in a whole sample, though its pod had let go well before that, uses the
   card by other means than CUDA (it renders), has lost a message, or sends wrong ones. Its pod is billed what
   NVML says, which is no word against its own: it said nothing. The client is told to let go, and nothing is
   expected of it: an honest one knows that it does not hold, and does not answer.
6. What NVML tells of a client that has gone counts for its pod. A pod with a client that held, and of which
   NVML tells nothing while it tells of others, is billed by what it held (``books.holders``).
7. Clients that queue blindly are billed by what they held, and given back what NVML says they did not use
   (``lag``).
"""

from __future__ import annotations

from typing import Final

from nvshare.core.client import Client
from nvshare.core.gpu import Gpu
from nvshare.core.notices import Misdeed
from nvshare.core.policy import billing, lag
from nvshare.core.tenant import Tenant

UNCERTAIN_PARTS: Final = 100
"""NVML's word on a pod may be off by so small a part of the time, and ..."""
ROUNDED_PARTS: Final = 200
"""... by that for each process it saw work, if that is more."""
UNHELD_NS: Final = 1_500_000_000
"""NVML's samples may be of a time so long before the one they are taken for."""
UNHELD_WORK_NS: Final = 50_000_000
LATE_NS: Final = 30_000_000


def skip_sample(clients: list[tuple[Client, int]], now_ns: int) -> None:
    """Compare no bill with an estimate: the comparison begins anew with the next sample."""
    for tenant in {client.tenant for client, _ in clients}:
        tenant.habits.doubts.begin_anew(now_ns)
        _billed_since_sampled(tenant, now_ns)


def measured(
    gpu: Gpu, clients: list[tuple[Client, int]], gone: list[tuple[Client, int]], at_ns: int, now_ns: int
) -> None:
    """NVML tells for how long the card worked for some clients, from its last word to a moment."""
    worked: dict[Tenant, int] = {}
    rounded: dict[Tenant, int] = {}  # percents that went into that
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
        tenant.habits.doubts.see(worked_ns, at_ns)
        if not tenant.limited:
            continue
        since_ns = _billed_since_sampled(tenant, now_ns)
        if not tenant.queues_blindly and _let_go_before(tenant):
            _bill_unheld(gpu, tenant, worked_ns - since_ns, at_ns, now_ns)
        elif not tenant.queues_blindly:
            held_ns = tenant.account.held_since_settled(now_ns)
            _dispute(gpu, tenant, worked_ns - since_ns, rounded[tenant], held_ns, at_ns, now_ns)
        elif not gpu.floor.undrained:  # who runs beside others takes longer, and is billed for that
            lag.give_back(gpu, tenant, since_ns, worked_ns)
    for client, worked_ns in clients:
        if not client.connected and client.tenant.limited:
            _bill_absent(gpu, client, client.absent_ns(worked_ns, at_ns))


def _billed_since_sampled(tenant: Tenant, now_ns: int) -> int:
    """Those that queue blindly are billed by what they hold, so that counts, too."""
    held_ns = tenant.account.held_since_settled(now_ns) if tenant.queues_blindly else 0
    return tenant.habits.since_measured(tenant.account.billed_ns + held_ns)


def bill_unseen(gpu: Gpu, at_ns: int, now_ns: int) -> None:
    """Rule 6. That NVML tells nothing is no misdeed, so nobody is named for it."""
    for held_by, owed_ns in gpu.holders.sampled(at_ns, now_ns):
        tenant = gpu.tenants.get(held_by.pod)
        if tenant is not None and tenant.limited:
            billing.charge(gpu, tenant, owed_ns)
            tenant.habits.skip_measured(owed_ns)
            gpu.holders.charged(tenant, owed_ns)


def working_unheld(clients: list[tuple[Client, int]]) -> list[Client]:
    """Rule 5."""
    return [c for c, worked_ns in clients if worked_ns > UNHELD_WORK_NS and _is_unheld(c)]


def _is_unheld(client: Client) -> bool:
    """Those that queue blindly may have work left when they have let go, and who is away runs by itself."""
    return client.connected and client.reports_busy and _let_go_before(client.tenant)


def _let_go_before(tenant: Tenant) -> bool:
    """The last sample is of time in which it did not hold, and alone of that."""
    if tenant.gate.holding:
        return False
    return tenant.habits.doubts.sampled_since(tenant.habits.served_ns + UNHELD_NS)


def _bill_unheld(gpu: Gpu, tenant: Tenant, unbilled_ns: int, at_ns: int, now_ns: int) -> None:
    """Rule 5. Nobody told anything, so there is nothing to dispute."""
    tenant.habits.doubts.pass_to(at_ns, now_ns)
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
    """Rules 2 and 3. What it holds is yet to be billed."""
    doubts = tenant.habits.doubts
    passed_ns = doubts.pass_to(at_ns, now_ns)
    if passed_ns < 0:
        return  # NVML's first word is of the time before, too
    uncertain_ns = max(passed_ns // UNCERTAIN_PARTS, rounded * passed_ns // ROUNDED_PARTS)
    caught_ns = doubts.add(unbilled_ns - uncertain_ns, held_ns, LATE_NS)
    if caught_ns:
        billing.charge(gpu, tenant, caught_ns)
        tenant.figures.dispute()
        gpu.notice(Misdeed.BILL, tenant, now_ns)
        doubts.caught(now_ns)
