"""One GPU in virtual time, driven step by step."""

from __future__ import annotations

from nvshare.core import events
from nvshare.core.scheduler import Scheduler
from nvshare.core.view.observe import GpuCopy, TenantCopy, observe, unpack

GPU = "GPU-a"
MS = 1_000_000
SECOND = 1_000 * MS
GIB = 1 << 30


class Bench:
    """One GPU in virtual time."""

    def __init__(self, total_bytes: int = 16 * GIB) -> None:
        self.scheduler = Scheduler()
        self.now_ns = SECOND
        self.do(events.GpuSeen(GPU, total_bytes, 3))

    def do(self, event: events.Event) -> list[object]:
        return list(self.scheduler.handle(event, self.now_ns))

    def pass_ms(self, ms: int) -> None:
        for _ in range(ms):
            self.now_ns += MS
            self.do(events.Woken())

    def settle(self) -> None:
        """Until all clients must have reported their work."""
        self.pass_ms(900)
        self.do(events.WorkSampled(GPU, self.now_ns, ()))

    def client(self, key: int, pod: str, percent: int | None = None, used_bytes: int = 0) -> None:
        if percent is not None:
            self.do(events.LimitsSet(pod, "ctl", None, percent))
        self.do(events.ClientRegistered(key, pod, GPU))
        if used_bytes:
            self.do(events.MemoryUsed(key, used_bytes))

    def look(self, ttl_ns: int = 300 * SECOND) -> GpuCopy:
        gpu = self.scheduler.gpus[GPU]
        return unpack(observe(gpu, self.now_ns - ttl_ns, self.scheduler.advance_clock(gpu, self.now_ns)))

    def of(self, pod: str) -> tuple[GpuCopy, TenantCopy]:
        copy = self.look()
        return copy, next(tenant for tenant in copy.tenants if tenant.pod == pod)
