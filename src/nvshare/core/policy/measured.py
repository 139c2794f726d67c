"""What NVML says to bills.

Rules:
1. A client tells for how long it was busy, and may lie; or it says that it is idle. NVML tells for how long
   the card worked for its process. A pod cannot have been billed for less than that.
2. What is missing, beyond what percents cannot tell and what may be late, is billed with the next sample.
   That is a dispute, and counted.
3. A pod that is caught again and again is billed by what it held, like one that cannot tell, and is not heard
   when it says that it is idle, until it has not been caught for a while.
4. Clients that queue blindly are billed by what they held, and given back what NVML says they did not use
   (``lag``).
"""

from __future__ import annotations

from typing import Final

from nvshare.core.gpu import Gpu
from nvshare.core.notices import Misdeed
from nvshare.core.policy import billing, lag
from nvshare.core.tenant import Client, Tenant

UNCERTAIN_PARTS: Final = 100
LATE_NS: Final = 30_000_000


def measured(gpu: Gpu, clients: list[tuple[Client, int]], at_ns: int, now_ns: int) -> None:
    """NVML tells for how long the card worked for some clients, from its last word to a moment."""
    worked: dict[Tenant, int] = {}
    for client, worked_ns in clients:
        worked[client.tenant] = worked.get(client.tenant, 0) + worked_ns
    for tenant, worked_ns in worked.items():
        if not tenant.limited:
            continue
        account = tenant.account
        held_ns = account.held_since_settled(now_ns)
        if not tenant.queues_blindly:
            since_ns = tenant.habits.since_measured(account.billed_ns)
            _dispute(gpu, tenant, worked_ns - since_ns, held_ns, at_ns, now_ns)
            continue
        since_ns = tenant.habits.since_measured(account.billed_ns + held_ns)
        if not gpu.floor.undrained:  # who runs beside others takes longer, and is billed for that
            lag.give_back(gpu, tenant, since_ns, worked_ns)


def _dispute(gpu: Gpu, tenant: Tenant, unbilled_ns: int, held_ns: int, at_ns: int, now_ns: int) -> None:
    """Rules 2 and 3. What it holds is yet to be billed; who is away tells when it is back."""
    doubts = tenant.habits.doubts
    if tenant.gate.connected < len(tenant.clients):
        doubts.begin_anew(now_ns)
        return
    passed_ns = doubts.pass_to(at_ns)
    if passed_ns < 0:
        return  # NVML's first word is of the time before, too
    caught_ns = doubts.add(unbilled_ns - passed_ns // UNCERTAIN_PARTS, held_ns, LATE_NS)
    if caught_ns:
        billing.charge(gpu, tenant, caught_ns)
        tenant.figures.dispute()
        gpu.notice(Misdeed.BILL, tenant, now_ns)
        doubts.caught(now_ns)
