"""Time in which the daemon did not run is neither billed nor owed, nor held against anybody.

Rules:
1. During a standstill nobody could be granted or dropped. Holders kept the GPU, not by choice; waiting
   clients may have run ungated after a while. None of that is billed, and the clocks of quotas stand still.
2. Turns, slices, drains, recalls and the wait for resuming clients continue where they were: nobody is late
   because of the daemon.
3. What really happened is counted all the same: GPU time, and how long clients waited.
4. Only a standstill of the daemon counts. A client that drains late while the daemon runs is billed for it.
"""

from __future__ import annotations

from typing import Final

from nvshare.core.books.pace import MS
from nvshare.core.gpu import Gpu

HEARING_NS: Final = 100 * MS
"""Messages from the meantime are read within that; until then nobody is late."""


def exclude_standstill(gpu: Gpu, since_ns: int, now_ns: int) -> None:
    """Exclude the time from then until now. What is due must be decided next."""
    since_ns = max(since_ns, gpu.pace.clock.at_ns)
    lost_ns = now_ns - since_ns
    gpu.pace.exclude_standstill(since_ns, now_ns)
    gpu.figures.shared.exclude_standstill(since_ns, now_ns)
    gpu.occupants.exclude_standstill(since_ns, now_ns, HEARING_NS)
    gpu.resident_set.exclude_standstill(lost_ns)
    gpu.sent_hints.exclude_standstill(lost_ns)
    gpu.resuming.exclude_standstill(lost_ns + HEARING_NS)
    for tenant in gpu.tenants.values():
        tenant.account.exclude_standstill(since_ns, now_ns)
        tenant.hold.exclude_standstill(lost_ns)
        tenant.memory.exclude_standstill(lost_ns + HEARING_NS)
        tenant.figures.exclude_standstill(lost_ns)
        tenant.habits.exclude_standstill(lost_ns, now_ns)
        for client in tenant.clients.values():
            client.exclude_standstill(lost_ns)
