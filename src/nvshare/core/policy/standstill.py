"""Time in which the daemon did not run is nobody's: neither billed nor owed, nor held against anybody.

Rules:
1. While the daemon stood still nobody could be granted or dropped. Who had the GPU kept it, not by choice;
   who waited may have run ungated after a while. None of that is billed, and no clock that quotas are counted
   by runs on.
2. Turns, slices, drains, recalls and the wait for former clients go on where they were: nobody is late
   because nobody looked.
3. What was really done is counted all the same: GPU time, and how long clients waited.
4. Only the daemon's own standstill counts. A client that drains late while the daemon runs is billed for it.
"""

from __future__ import annotations

from typing import Final

from nvshare.core.books.pace import MS
from nvshare.core.gpu import Gpu

HEARING_NS: Final = 100 * MS
"""What was said meanwhile is heard within that; until then nobody is late."""


def leave_out(gpu: Gpu, since_ns: int, now_ns: int) -> None:
    """Nothing happened on a GPU from then until now. What is due must be decided next."""
    since_ns = max(since_ns, gpu.pace.clock.at_ns)
    lost_ns = now_ns - since_ns
    gpu.pace.leave_out(since_ns, now_ns)
    gpu.figures.shared.leave_out(since_ns, now_ns)
    gpu.floor.leave_out(since_ns, now_ns, HEARING_NS)
    gpu.residence.leave_out(lost_ns)
    gpu.hinted.leave_out(lost_ns)
    gpu.returning.leave_out(lost_ns + HEARING_NS)
    for tenant in gpu.tenants.values():
        tenant.account.leave_out(since_ns, now_ns)
        tenant.hold.leave_out(lost_ns)
        tenant.memory.leave_out(lost_ns + HEARING_NS)
        tenant.figures.leave_out(lost_ns)
        tenant.habits.leave_out(lost_ns, now_ns)
        for client in tenant.clients.values():
            client.leave_out(lost_ns)
