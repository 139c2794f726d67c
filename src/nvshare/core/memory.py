"""How many bytes each process of a pod may allocate on one GPU.

Rules:
1. The daemon never lets the charges of a pod's processes add up to more than its limit. A charge covers
   everything that a process may have allocated, whether it is known yet or not.
2. The only process of a pod holds a lease on the whole limit, and decides alone, without asking.
3. A second process makes the daemon recall the lease. Until it is returned, requests wait; a lease that
   is not returned in time stays charged, and the requests are refused.
4. When each process asks: a granted reservation is charged at once. A report of used memory replaces the
   charges of the reservations that it accounts for (their numbers only rise), so no order of messages frees a
   byte twice or forgets one.
5. The charge of a lost connection stays until its process is gone. A process that comes back on a new
   connection takes over its own share, and has no lease until it is granted one.
6. Lowering a limit evicts nothing: it only refuses later requests.
7. Clients that cannot ask (protocol 1 and 2) are sent a limit of their own: what they use plus an equal part
   of what is free. They are charged that limit, whatever they report. Among many of them, a newcomer's part
   is taken from what was not promised to anybody, until all are sent new parts (``fan_out``).
8. After a restart there are no leases while a known process of the pod is not back. Requests wait for it as
   for a lease. After that it is charged all that it may have until it is back or gone: what it was promised
   and can take without asking. If it could ask, the last grant is unknown and may be the whole limit.
9. Nothing costs more because there are more processes, reservations or requests: the charges are kept as a
   sum, and a process that comes or goes changes only what it must. A new limit is sent to all. Of the
   requests that had to wait, a few are answered at once and the others by a deadline.
10. What a process reports is believed as far as it can be true (``memory_claims``).
"""

from __future__ import annotations

from typing import Final

from nvshare.core.account import NEVER
from nvshare.core.effects import Effect, GrantLease, RecallLease, Refused, Reserved, SendMemoryLimit
from nvshare.core.fan_out import interval_ns
from nvshare.core.memory_claims import ANY_CARD_BYTES, MemoryClaims
from nvshare.core.memory_requests import WAITING_PER_CLIENT, MemoryRequests
from nvshare.core.memory_share import UNKNOWN, AbsentProcesses, Share

RECALL_TIMEOUT_NS: Final = 4_000_000_000
"""Less than the 5 s that a client waits for an answer: it must not decide what is refused here."""
RESERVATIONS_PER_CLIENT: Final = 1024


class MemoryAccount:
    """The memory of one pod on one GPU."""

    __slots__ = (
        "_absent",
        "_answer_ns",
        "_cannot_ask",
        "_divide_ns",
        "_divided_ns",
        "_recall_until_ns",
        "_recalled",
        "_requests",
        "charged_bytes",
        "claims",
        "limit_bytes",
        "shares",
        "used_bytes",
    )

    def __init__(self, limit_bytes: int, card_bytes: int = ANY_CARD_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self.claims = MemoryClaims(limit_bytes, card_bytes)
        self.shares: dict[int, Share] = {}
        self.used_bytes = 0  # always the sum over the shares
        self.charged_bytes = 0  # the same
        self._requests = MemoryRequests()
        self._recalled: dict[int, Share] = {}  # connected, and asked to give up their lease
        self._recall_until_ns = NEVER
        self._absent = AbsentProcesses()
        self._cannot_ask: dict[int, Share] = {}  # connected, and cannot ask
        self._divided_ns = -NEVER  # when they were last sent their parts
        self._divide_ns = NEVER  # when to send them again
        self._answer_ns = NEVER  # when to answer the remaining requests (rule 9)

    @property
    def believed_bytes(self) -> int:
        """The memory of all processes, as far as their reports can be true."""
        return self.claims.of_all(self.used_bytes)

    def deadline_ns(self) -> int:
        """When to call ``expire``."""
        return min(self._recall_until_ns, self._absent.until_ns, self._divide_ns, self._answer_ns)

    def possible_bytes(self) -> dict[int, int]:
        """By process, what it may have, known yet or not; together no more than the pod can have."""
        return self.claims.possible_bytes({key: share.charge_bytes for key, share in self.shares.items()})

    # ---- processes ----------------------------------------------------------------------------

    def join(self, client: int, can_ask: bool, now_ns: int, out: list[Effect]) -> Share:
        share = self._add(client, can_ask)
        self._send_limit(share, out)
        self._arrange(share, now_ns, out)
        return share

    def _add(self, client: int, can_ask: bool) -> Share:
        share = self.shares[client] = Share(client, can_ask)
        if not can_ask:
            self._cannot_ask[client] = share
        return share

    def expect(self, previous: int, may_have_bytes: int, known_bytes: int, now_ns: int) -> None:
        """A process that was known before a restart to have this much may come back (rule 8)."""
        self._absent.expect(previous, may_have_bytes, now_ns + RECALL_TIMEOUT_NS)
        self.claims.expect(previous, known_bytes)

    def awaits_anybody(self) -> bool:
        """A process of the pod that was known before a restart is alive, but not back."""
        return bool(self._absent)

    def give_up(self, previous: int, now_ns: int, out: list[Effect]) -> None:
        """It will not come back."""
        if previous in self._absent:
            self._absent.remove(previous)
            self.claims.settle(previous)
            self._arrange(None, now_ns, out)

    def resume(
        self,
        client: int,
        previous: int,
        used_bytes: int,
        seq: int,
        asked_bytes: int,
        now_ns: int,
        out: list[Effect],
    ) -> None:
        """A process is back (rule 5). What it has counts, whatever the limit is now."""
        self.claims.replace(previous, client)
        self._remove(previous)
        self._absent.remove(previous)
        share = self._add(client, can_ask=True)
        used_bytes = self.claims.believe(used_bytes)
        self.used_bytes += share.note_used(used_bytes)
        self.charged_bytes += share.charge(used_bytes)
        self.claims.settle(client)  # from now on it asks
        self._send_limit(share, out)
        self._arrange(share, now_ns, out)
        if seq:
            self.ask(client, seq, asked_bytes, now_ns, out)

    def _send_limit(self, share: Share, out: list[Effect]) -> None:
        """Clients without a lease need the limit, too: programs may ask how much memory there is."""
        if self.limit_bytes and share.can_ask and not self._is_alone():
            out.append(SendMemoryLimit(share.client, self.limit_bytes))

    def _is_alone(self) -> bool:
        return len(self.shares) == 1 and not self._absent

    def may_have_bytes(self, client: int) -> int:
        """The most that a process can have when it comes back to the next daemon.

        UNKNOWN while it is connected: it may ask for more, or be granted more, after this was saved.
        """
        share = self.shares.get(client)
        if share is None or share.connected:
            return UNKNOWN
        return share.charge_bytes

    def disconnect(self, client: int) -> None:
        share = self.shares.get(client)
        if share is not None:
            share.disconnect()
            self._cannot_ask.pop(client, None)
            self._recalled.pop(client, None)
            self._requests.forget(share)

    def leave(self, client: int, now_ns: int, out: list[Effect]) -> None:
        if client in self.shares:
            self._remove(client)
            self._arrange(None, now_ns, out)

    def _remove(self, client: int) -> None:
        share = self.shares.pop(client, None)
        if share is not None:
            self.used_bytes -= share.used_bytes
            self.charged_bytes -= share.charge_bytes
            self._cannot_ask.pop(client, None)
            self._recalled.pop(client, None)
            self._requests.forget(share)
            self.claims.settle(client)

    # ---- reports ---------------------------------------------------------------------------

    def set_limit(self, limit_bytes: int, now_ns: int, out: list[Effect]) -> None:
        if limit_bytes == self.limit_bytes:
            return
        self.limit_bytes = limit_bytes
        self.claims.set_limit(limit_bytes, (*self.shares, *self._absent.ids()))
        alone = self._is_alone()
        for share in self.shares.values():
            if share.connected and share.can_ask:
                out.append(SendMemoryLimit(share.client, limit_bytes))
            if share.leased and share.connected and not share.recalling and (alone or limit_bytes == 0):
                share.end_lease()  # leased again below, at the new size; of several each is recalled
        if limit_bytes == 0:
            for share in self.shares.values():
                self._set_free(share, out)
        elif not alone:
            for share in self.shares.values():
                self._recall(share, now_ns, out)
        self._arrange(None, now_ns, out)

    def set_card(self, card_bytes: int) -> None:
        self.claims.set_card(card_bytes)

    def report(self, client: int, used_bytes: int, seq: int, now_ns: int, out: list[Effect]) -> None:
        share = self.shares.get(client)
        if share is None:
            return
        used_bytes = self.claims.believe(used_bytes)
        freed = used_bytes < share.used_bytes
        if used_bytes != share.used_bytes:
            self.used_bytes += share.note_used(used_bytes)
        if share.reserved:
            self.charged_bytes += share.covered(seq)
        if not share.leased:
            self.charged_bytes += share.charge(max(used_bytes, share.sent_limit_bytes or 0))
        elif used_bytes > share.base_bytes or self.limit_bytes == 0:
            self.charged_bytes += share.charge(used_bytes)
        if freed:
            self.claims.see_charges(self.charged_bytes)
            if self._requests.waiting:
                self._answer_waiting(now_ns, out)
        else:
            if self.limit_bytes and self.used_bytes > self.claims.most_bytes:
                self.claims.note_cut()
            if share.sent_limit_bytes is not None and used_bytes > share.sent_limit_bytes:
                self._divide(None, now_ns, out)  # it took that before its part was sent: less is free

    def ask(self, client: int, seq: int, asked_bytes: int, now_ns: int, out: list[Effect]) -> None:
        share = self.shares.get(client)
        if share is None or not share.connected:
            return
        if len(share.waiting) >= WAITING_PER_CLIENT or len(share.reserved) >= RESERVATIONS_PER_CLIENT:
            self._refuse(share, seq, asked_bytes, out)
        elif self._requests.waiting or self._must_wait(now_ns):
            self._requests.put(share, seq, asked_bytes)
        else:
            self._decide(share, seq, asked_bytes, out)

    def lease_returned(
        self, client: int, generation: int, used_bytes: int, now_ns: int, out: list[Effect]
    ) -> None:
        share = self.shares.get(client)
        if share is None or not share.recalling or generation != share.generation:
            return
        share.end_lease()
        self._recalled.pop(client, None)
        self.charged_bytes += share.forget_reserved()  # granted before the recall: included in what it uses
        used_bytes = self.claims.believe(used_bytes)
        self.used_bytes += share.note_used(used_bytes)
        self.charged_bytes += share.charge(used_bytes)
        self.claims.settle(client)
        self._arrange(None, now_ns, out)

    def exclude_standstill(self, lost_ns: int) -> None:
        """Nobody could answer during that time."""
        if self._recall_until_ns != NEVER:
            self._recall_until_ns += lost_ns
        self._absent.exclude_standstill(lost_ns)

    def expire(self, now_ns: int, out: list[Effect]) -> None:
        """An awaited lease or process did not come in time: answer the requests."""
        if self._recall_until_ns <= now_ns:
            self._recall_until_ns = NEVER
        self._absent.expire(now_ns)
        if self._divide_ns <= now_ns:
            self._divide(None, now_ns, out)
        self._answer_waiting(now_ns, out)

    # ---- leases ------------------------------------------------------------------------------

    def _arrange(self, newcomer: Share | None, now_ns: int, out: list[Effect]) -> None:
        """A process came or went, or a limit was set: lease, recall or divide, as needed."""
        if self.limit_bytes == 0:
            if newcomer is not None:
                self._set_free(newcomer, out)
        elif self._is_alone():
            self._lease_all(out)
        else:
            if newcomer is not None and len(self.shares) == 2:  # until now the other was alone
                for share in self.shares.values():
                    self._recall(share, now_ns, out)
            if self._cannot_ask:
                self._divide(newcomer, now_ns, out)
        if not self._recalled:
            self._recall_until_ns = NEVER
        self.claims.see_charges(self.charged_bytes)
        self._answer_waiting(now_ns, out)

    def _lease(self, share: Share, lease_bytes: int | None, out: list[Effect]) -> None:
        self._recalled.pop(share.client, None)
        share.lease(lease_bytes)
        self.charged_bytes += share.forget_reserved()
        out.append(GrantLease(share.client, share.generation, lease_bytes))

    def _set_free(self, share: Share, out: list[Effect]) -> None:
        """There is no limit."""
        if share.connected:
            if share.can_ask and (not share.leased or share.recalling):
                self._lease(share, None, out)
            elif share.sent_limit_bytes is not None:
                out.append(SendMemoryLimit(share.client, 0))
            share.set_sent_limit(None)
        self.charged_bytes += share.charge(share.used_bytes)

    def _lease_all(self, out: list[Effect]) -> None:
        (share,) = self.shares.values()
        if not share.connected:
            return
        if not share.can_ask:
            self._send_part(share, self.limit_bytes, out)
        elif not share.leased or share.recalling:
            self._lease(share, self.limit_bytes, out)
            self.charged_bytes += share.charge(max(self.limit_bytes, share.used_bytes))

    def _recall(self, share: Share, now_ns: int, out: list[Effect]) -> None:
        """What a process may take without asking stays charged until it has given that up."""
        if share.leased:
            self.charged_bytes += share.charge(self._lease_covers(share, share.lease_bytes))
            if share.connected and not share.recalling:
                share.recall()
                self._recalled[share.client] = share
                if self._recall_until_ns == NEVER:  # each lease is awaited once
                    self._recall_until_ns = now_ns + RECALL_TIMEOUT_NS
                out.append(RecallLease(share.client, share.generation))
        elif not share.can_ask and not share.connected:
            self.charged_bytes += share.charge(self._lease_covers(share, share.sent_limit_bytes))

    def _lease_covers(self, share: Share, promised_bytes: int | None) -> int:
        """None means any amount, which a limit now bounds."""
        return max(share.used_bytes, self.limit_bytes if promised_bytes is None else promised_bytes)

    def _divide(self, newcomer: Share | None, now_ns: int, out: list[Effect]) -> None:
        """Send clients that cannot ask their parts (rule 7); among many, only a newcomer at once."""
        self._divide_ns = NEVER
        if self.limit_bytes == 0 or self._is_alone():
            return
        cannot_ask = self._cannot_ask
        next_ns = self._divided_ns + interval_ns(len(cannot_ask))
        if now_ns < next_ns:
            self._divide_ns = next_ns
            if newcomer is not None and not newcomer.can_ask:
                free_bytes = max(0, self.limit_bytes - self._promised_bytes())
                self._send_part(newcomer, free_bytes // len(self.shares), out)
            return
        self._divided_ns = now_ns
        for share in cannot_ask.values():
            self.charged_bytes += share.charge(share.used_bytes)
        free_bytes = max(0, self.limit_bytes - self._promised_bytes())
        for share in cannot_ask.values():
            self._send_part(share, share.used_bytes + free_bytes // len(self.shares), out)

    def _send_part(self, share: Share, part_bytes: int, out: list[Effect]) -> None:
        """To a client that cannot ask. A limit of 0 would mean no limit."""
        part_bytes = max(1, part_bytes)
        if part_bytes != share.sent_limit_bytes:
            share.set_sent_limit(part_bytes)
            out.append(SendMemoryLimit(share.client, part_bytes))
        self.charged_bytes += share.charge(max(part_bytes, share.used_bytes))

    def _promised_bytes(self) -> int:
        """Promised to all processes, including those that are not back."""
        return self.charged_bytes + self._absent.possible_bytes(self.limit_bytes)

    # ---- answers -----------------------------------------------------------------------------

    def _must_wait(self, now_ns: int) -> bool:
        return now_ns < self._recall_until_ns != NEVER or now_ns < self._absent.until_ns != NEVER

    def _answer_waiting(self, now_ns: int, out: list[Effect]) -> None:
        self._answer_ns = NEVER
        if not self._requests.waiting or self._must_wait(now_ns):
            return
        for share, seq, asked_bytes in self._requests.take():
            self._decide(share, seq, asked_bytes, out)
        if self._requests.waiting:
            self._answer_ns = now_ns + 1

    def _decide(self, share: Share, seq: int, asked_bytes: int, out: list[Effect]) -> None:
        promised_bytes = self._promised_bytes()
        if seq in share.reserved:
            out.append(Reserved(share.client, seq, share.reserved[seq], promised_bytes))
        elif self.limit_bytes == 0 or promised_bytes + asked_bytes <= self.limit_bytes:
            self.charged_bytes += share.reserve(seq, asked_bytes)
            out.append(Reserved(share.client, seq, asked_bytes, promised_bytes + asked_bytes))
        else:
            self._refuse(share, seq, asked_bytes, out)

    def _refuse(self, share: Share, seq: int, asked_bytes: int, out: list[Effect]) -> None:
        out.append(Refused(share.client, seq, self.limit_bytes, self._promised_bytes(), asked_bytes))
