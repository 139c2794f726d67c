"""How many bytes each process of a pod may allocate on one GPU.

Rules:
1. The charges of a pod's processes never add up to more than its limit by our own doing. A charge
   covers all a process may have allocated, known to us yet or not.
2. A pod with one process leases it the whole limit; the process then decides alone, without asking.
3. A second process makes us recall the lease. Until it has come back, requests wait; a lease that
   does not come back in time stays charged, and the requests are refused.
4. When each asks: a granted reservation is charged at once; a report of what is used replaces the
   charges of the reservations it has accounted for (their numbers only rise), so no order of
   messages frees a byte twice or forgets one.
5. A connection that ended keeps its charge until its process is gone.
6. Lowering a limit evicts nothing: it only refuses what comes next.
7. Clients that cannot ask (protocol 1 and 2) are told a limit of their own: what they use plus an
   even part of what is free. That is the best their protocol allows.
"""

from __future__ import annotations

from typing import Final

from nvshare.core.account import NEVER
from nvshare.core.effects import (
    Effect,
    RecallLease,
    Refused,
    Reserved,
    TellLease,
    TellMemoryLimit,
)

RECALL_TIMEOUT_NS: Final = 5_000_000_000
WAITING_PER_CLIENT: Final = 64
RESERVATIONS_PER_CLIENT: Final = 1024


class Share:
    """One process's part of its pod's memory."""

    __slots__ = (
        "asks",
        "base_bytes",
        "client",
        "connected",
        "generation",
        "leased",
        "peak_bytes",
        "recalling",
        "reserved",
        "used_bytes",
    )

    def __init__(self, client: int, asks: bool) -> None:
        self.client = client
        self.asks = asks  # speaks a protocol in which it can ask
        self.connected = True
        self.used_bytes = 0  # as last reported
        self.peak_bytes = 0
        self.base_bytes = 0  # charged beside the reservations: what it used, or its lease
        self.reserved: dict[int, int] = {}  # granted, not yet covered by a report
        self.leased = False
        self.recalling = False
        self.generation = 0

    @property
    def charge_bytes(self) -> int:
        return self.base_bytes + sum(self.reserved.values())


class MemoryAccount:
    """The memory of one pod on one GPU."""

    __slots__ = ("_deadline_ns", "_waiting", "limit_bytes", "shares", "used_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.shares: dict[int, Share] = {}
        self.used_bytes = 0  # always the sum over the shares
        self._waiting: list[tuple[int, int, int]] = []  # client, seq, asked, in order of arrival
        self._deadline_ns = NEVER

    @property
    def charged_bytes(self) -> int:
        return sum(share.charge_bytes for share in self.shares.values())

    def deadline_ns(self) -> int:
        return self._deadline_ns

    def join(self, client: int, asks: bool, now_ns: int, out: list[Effect]) -> Share:
        share = self.shares[client] = Share(client, asks)
        self._tell_asker(share, out)
        self._arrange(now_ns, out)
        return share

    def resume(
        self, client: int, used_bytes: int, seq: int, asked_bytes: int, now_ns: int, out: list[Effect]
    ) -> None:
        """A process from the daemon's former life: what it has counts, whatever the limit says now."""
        share = Share(client, asks=True)
        share.used_bytes = share.base_bytes = share.peak_bytes = used_bytes
        self.used_bytes += used_bytes
        self.shares[client] = share
        self._tell_asker(share, out)
        self._arrange(now_ns, out)
        if seq:
            self.ask(client, seq, asked_bytes, now_ns, out)

    def _tell_asker(self, share: Share, out: list[Effect]) -> None:
        """Who gets no lease learns the limit too: its program may ask how much memory there is."""
        if self.limit_bytes and share.asks and len(self.shares) > 1:
            out.append(TellMemoryLimit(share.client, self.limit_bytes))

    def disconnect(self, client: int) -> None:
        share = self.shares.get(client)
        if share is not None:
            share.connected = False
            self._waiting = [entry for entry in self._waiting if entry[0] != client]

    def leave(self, client: int, now_ns: int, out: list[Effect]) -> None:
        share = self.shares.pop(client, None)
        if share is not None:
            self.used_bytes -= share.used_bytes
            self._waiting = [entry for entry in self._waiting if entry[0] != client]
            self._arrange(now_ns, out)

    def set_limit(self, limit_bytes: int, now_ns: int, out: list[Effect]) -> None:
        if limit_bytes == self.limit_bytes:
            return
        self.limit_bytes = limit_bytes
        for share in self.shares.values():
            if share.connected:
                out.append(TellMemoryLimit(share.client, limit_bytes))
            if share.leased and not share.recalling:
                share.leased = False  # leased anew, at the new size, below
                share.base_bytes = max(share.base_bytes, share.used_bytes)
        self._arrange(now_ns, out)

    def report(self, client: int, used_bytes: int, seq: int, now_ns: int, out: list[Effect]) -> None:
        share = self.shares.get(client)
        if share is None:
            return
        freed = used_bytes < share.used_bytes
        if used_bytes != share.used_bytes:
            self.used_bytes += used_bytes - share.used_bytes
            share.used_bytes = used_bytes
            if used_bytes > share.peak_bytes:
                share.peak_bytes = used_bytes
        if share.reserved:
            for done in [number for number in share.reserved if number <= seq]:
                del share.reserved[done]
        if not share.leased:
            share.base_bytes = used_bytes
        if freed and self._waiting:
            self._serve(now_ns, out)

    def ask(self, client: int, seq: int, asked_bytes: int, now_ns: int, out: list[Effect]) -> None:
        share = self.shares.get(client)
        if share is None or not share.connected:
            return
        mine = sum(1 for entry in self._waiting if entry[0] == client)
        if mine >= WAITING_PER_CLIENT or len(share.reserved) >= RESERVATIONS_PER_CLIENT:
            self._refuse(share, seq, asked_bytes, out)
            return
        self._waiting.append((client, seq, asked_bytes))
        self._serve(now_ns, out)

    def lease_returned(
        self, client: int, generation: int, used_bytes: int, now_ns: int, out: list[Effect]
    ) -> None:
        share = self.shares.get(client)
        if share is None or not share.recalling or generation != share.generation:
            return
        share.leased = share.recalling = False
        self.used_bytes += used_bytes - share.used_bytes
        share.used_bytes = share.base_bytes = used_bytes
        share.peak_bytes = max(share.peak_bytes, used_bytes)
        self._arrange(now_ns, out)

    def expire(self, now_ns: int, out: list[Effect]) -> None:
        """A lease did not come back in time: answer those who wait for it."""
        if now_ns < self._deadline_ns:
            return
        self._deadline_ns = NEVER
        waiting, self._waiting = self._waiting, []
        for client, seq, asked_bytes in waiting:
            self._decide(self.shares[client], seq, asked_bytes, out)

    # ------------------------------------------------------------------

    def _arrange(self, now_ns: int, out: list[Effect]) -> None:
        """Lease, recall or divide, whichever the present processes and limit call for."""
        if self.limit_bytes == 0:
            self._free_for_all(out)
        elif len(self.shares) == 1:
            self._lease_all(out)
        else:
            self._recall(out)
            self._divide(out)
        recalling = any(share.recalling and share.connected for share in self.shares.values())
        if not recalling:
            self._deadline_ns = NEVER
        elif self._deadline_ns == NEVER:
            self._deadline_ns = now_ns + RECALL_TIMEOUT_NS
        self._serve(now_ns, out)

    def _free_for_all(self, out: list[Effect]) -> None:
        for share in self.shares.values():
            if share.asks and share.connected and (not share.leased or share.recalling):
                share.leased, share.recalling = True, False
                share.generation += 1
                share.reserved.clear()
                out.append(TellLease(share.client, share.generation, None))
            share.base_bytes = share.used_bytes

    def _lease_all(self, out: list[Effect]) -> None:
        (share,) = self.shares.values()
        if not share.connected:
            return
        if not share.asks:
            share.base_bytes = self.limit_bytes
            out.append(TellMemoryLimit(share.client, self.limit_bytes))
        elif not share.leased or share.recalling:
            share.leased, share.recalling = True, False
            share.generation += 1
            share.reserved.clear()
            share.base_bytes = max(self.limit_bytes, share.used_bytes)
            out.append(TellLease(share.client, share.generation, self.limit_bytes))

    def _recall(self, out: list[Effect]) -> None:
        for share in self.shares.values():
            if share.leased and not share.recalling and share.connected:
                share.recalling = True
                share.base_bytes = max(self.limit_bytes, share.used_bytes)
                out.append(RecallLease(share.client, share.generation))

    def _divide(self, out: list[Effect]) -> None:
        mute = [share for share in self.shares.values() if not share.asks and share.connected]
        if not mute:
            return
        for share in mute:
            share.base_bytes = share.used_bytes
        free_bytes = max(0, self.limit_bytes - self.charged_bytes)
        for share in mute:
            share.base_bytes += free_bytes // len(self.shares)
            # A limit of 0 would mean none at all.
            out.append(TellMemoryLimit(share.client, max(1, share.base_bytes)))

    def _serve(self, now_ns: int, out: list[Effect]) -> None:
        if self._deadline_ns != NEVER and now_ns < self._deadline_ns:
            return
        waiting, self._waiting = self._waiting, []
        for client, seq, asked_bytes in waiting:
            self._decide(self.shares[client], seq, asked_bytes, out)

    def _decide(self, share: Share, seq: int, asked_bytes: int, out: list[Effect]) -> None:
        charged_bytes = self.charged_bytes
        if seq in share.reserved:
            out.append(Reserved(share.client, seq, share.reserved[seq], charged_bytes))
        elif self.limit_bytes == 0 or charged_bytes + asked_bytes <= self.limit_bytes:
            share.reserved[seq] = asked_bytes
            out.append(Reserved(share.client, seq, asked_bytes, charged_bytes + asked_bytes))
        else:
            self._refuse(share, seq, asked_bytes, out)

    def _refuse(self, share: Share, seq: int, asked_bytes: int, out: list[Effect]) -> None:
        out.append(Refused(share.client, seq, self.limit_bytes, self.charged_bytes, asked_bytes))
