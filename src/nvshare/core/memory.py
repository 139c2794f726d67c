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
5. A connection that ended keeps its charge until its process is gone. A process that comes back on a
   new one is the same process: it takes its own place, and has no lease until it is told one.
6. Lowering a limit evicts nothing: it only refuses what comes next.
7. Clients that cannot ask (protocol 1 and 2) are told a limit of their own: what they use plus an
   even part of what is free. They are charged what they were told, whatever they say they use. In a crowd
   of them a newcomer's part is of what nobody was promised, until all are told anew (``crowd``).
8. After a restart nobody is leased anything while a process of the pod that was known is not back:
   requests wait for it as for a lease, and from then on it counts with all it may have until it is back or
   gone. That is what it was promised and can take without asking; where it could ask, nobody knows how much
   it was granted last, and it may be all of the limit.
9. Nothing costs more because there are more processes, reservations or questions: the charges are kept as a
   sum, and who comes or goes changes what it must of the others. A limit that is set is told to all. Of
   questions that had to wait, a few are answered at once and the others by a deadline.
10. What a process says is believed as far as it can be true (``claims``).
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from nvshare.core.account import NEVER
from nvshare.core.claims import ANY_CARD_BYTES, Claims
from nvshare.core.crowd import pause_ns
from nvshare.core.effects import Effect, RecallLease, Refused, Reserved, TellLease, TellMemoryLimit
from nvshare.core.memory_share import UNKNOWN, AbsentProcesses, Share

RECALL_TIMEOUT_NS: Final = 4_000_000_000
"""Less than the 5 s for which a client waits for an answer: it must not decide by itself what we refuse."""
WAITING_PER_CLIENT: Final = 64
SERVED_AT_ONCE: Final = 64
RESERVATIONS_PER_CLIENT: Final = 1024


class MemoryAccount:
    """The memory of one pod on one GPU."""

    __slots__ = (
        "_absent",
        "_asked",
        "_divide_ns",
        "_divided_ns",
        "_mute",
        "_recall_until_ns",
        "_recalled",
        "_serve_ns",
        "_waiting",
        "charged_bytes",
        "claims",
        "limit_bytes",
        "shares",
        "used_bytes",
    )

    def __init__(self, limit_bytes: int, card_bytes: int = ANY_CARD_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self.claims = Claims(limit_bytes, card_bytes)
        self.shares: dict[int, Share] = {}
        self.used_bytes = 0  # always the sum over the shares
        self.charged_bytes = 0  # and so is this
        self._asked = 0  # questions that had to wait, ever
        self._waiting: dict[int, tuple[Share, int, int]] = {}  # by number: whose, seq, asked; in their order
        self._recalled: dict[int, Share] = {}  # connected, and asked to give up their lease
        self._recall_until_ns = NEVER
        self._absent = AbsentProcesses()
        self._mute: dict[int, Share] = {}  # connected, and cannot ask
        self._divided_ns = -NEVER  # when they were last told their parts
        self._divide_ns = NEVER  # when they are to be told again
        self._serve_ns = NEVER  # when the rest of the questions is answered (rule 9)

    @property
    def believed_bytes(self) -> int:
        """What all have together, as far as it can be true."""
        return self.claims.of_all(self.used_bytes)

    def deadline_ns(self) -> int:
        """When to call ``expire``."""
        return min(self._recall_until_ns, self._absent.until_ns, self._divide_ns, self._serve_ns)

    def possible_bytes(self) -> dict[int, int]:
        """What each process may have, known to us yet or not; together no more than the pod can have."""
        most_bytes = self.claims.most_bytes
        alone = {key: 1 for key in self.shares if self.claims.decides_alone(key)}
        found = {key: share.charge_bytes for key, share in self.shares.items()}
        if not self.limit_bytes:
            return found | dict.fromkeys(alone, most_bytes)
        charged_bytes = sum(found.values())
        if charged_bytes > most_bytes:  # what they say cannot be true: the parts add up to what can be
            return _parts(found, most_bytes)
        beyond = _parts(alone, most_bytes - charged_bytes)
        return {key: amount + beyond.get(key, 0) for key, amount in found.items()}

    # ---- who is here -------------------------------------------------------------------------

    def join(self, client: int, asks: bool, now_ns: int, out: list[Effect]) -> Share:
        share = self._add(client, asks)
        self._tell_asker(share, out)
        self._arrange(share, now_ns, out)
        return share

    def _add(self, client: int, asks: bool) -> Share:
        share = self.shares[client] = Share(client, asks)
        if not asks:
            self._mute[client] = share
        return share

    def expect(self, former: int, may_have_bytes: int, known_bytes: int, now_ns: int) -> None:
        """A process that was known before a restart, to have so much, may come back (rule 8)."""
        self._absent.expect(former, may_have_bytes, now_ns + RECALL_TIMEOUT_NS)
        self.claims.expect(former, known_bytes)

    def awaits_anybody(self) -> bool:
        """A process of the pod that was known before a restart is alive, and not back."""
        return bool(self._absent)

    def give_up(self, former: int, now_ns: int, out: list[Effect]) -> None:
        """It will not come back."""
        if former in self._absent:
            self._absent.remove(former)
            self.claims.settle(former)
            self._arrange(None, now_ns, out)

    def resume(
        self,
        client: int,
        former: int,
        used_bytes: int,
        seq: int,
        asked_bytes: int,
        now_ns: int,
        out: list[Effect],
    ) -> None:
        """A process is back (rule 5). What it has counts, whatever the limit says now."""
        self.claims.replace(former, client)
        self._remove(former)
        self._absent.remove(former)
        share = self._add(client, asks=True)
        used_bytes = self.claims.believe(used_bytes)
        self.used_bytes += share.note_used(used_bytes)
        self.charged_bytes += share.charge(used_bytes)
        self.claims.settle(client)  # from now on it asks
        self._tell_asker(share, out)
        self._arrange(share, now_ns, out)
        if seq:
            self.ask(client, seq, asked_bytes, now_ns, out)

    def _tell_asker(self, share: Share, out: list[Effect]) -> None:
        """Who gets no lease learns the limit too: its program may ask how much memory there is."""
        if self.limit_bytes and share.asks and not self._is_alone():
            out.append(TellMemoryLimit(share.client, self.limit_bytes))

    def _is_alone(self) -> bool:
        return len(self.shares) == 1 and not self._absent

    def may_have_bytes(self, client: int) -> int:
        """What a process can have at most when it comes back to another daemon.

        UNKNOWN while it is connected: it may ask, or be told that it may have more, after this was saved.
        """
        share = self.shares.get(client)
        if share is None or share.connected:
            return UNKNOWN
        return share.charge_bytes

    def disconnect(self, client: int) -> None:
        share = self.shares.get(client)
        if share is not None:
            share.disconnect()
            self._mute.pop(client, None)
            self._recalled.pop(client, None)
            self._forget_questions(share)

    def leave(self, client: int, now_ns: int, out: list[Effect]) -> None:
        if client in self.shares:
            self._remove(client)
            self._arrange(None, now_ns, out)

    def _remove(self, client: int) -> None:
        share = self.shares.pop(client, None)
        if share is not None:
            self.used_bytes -= share.used_bytes
            self.charged_bytes -= share.charge_bytes
            self._mute.pop(client, None)
            self._recalled.pop(client, None)
            self._forget_questions(share)
            self.claims.settle(client)

    def _forget_questions(self, share: Share) -> None:
        for number in share.take_questions():
            del self._waiting[number]

    # ---- what they say -----------------------------------------------------------------------

    def set_limit(self, limit_bytes: int, now_ns: int, out: list[Effect]) -> None:
        if limit_bytes == self.limit_bytes:
            return
        self.limit_bytes = limit_bytes
        self.claims.set_limit(limit_bytes, (*self.shares, *self._absent.ids()))
        alone = self._is_alone()
        for share in self.shares.values():
            if share.connected and share.asks:
                out.append(TellMemoryLimit(share.client, limit_bytes))
            if share.leased and share.connected and not share.recalling and (alone or limit_bytes == 0):
                share.end_lease()  # leased anew, at the new size, below; of several each is recalled
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
            self.charged_bytes += share.charge(max(used_bytes, share.told_bytes or 0))
        elif used_bytes > share.base_bytes or self.limit_bytes == 0:
            self.charged_bytes += share.charge(used_bytes)
        if freed:
            self.claims.see_charges(self.charged_bytes)
            if self._waiting:
                self._serve(now_ns, out)
        else:
            if self.limit_bytes and self.used_bytes > self.claims.most_bytes:
                self.claims.note_cut()
            if share.told_bytes is not None and used_bytes > share.told_bytes:
                self._divide(None, now_ns, out)  # it took that before it was told its part: less is free

    def ask(self, client: int, seq: int, asked_bytes: int, now_ns: int, out: list[Effect]) -> None:
        share = self.shares.get(client)
        if share is None or not share.connected:
            return
        if len(share.waiting) >= WAITING_PER_CLIENT or len(share.reserved) >= RESERVATIONS_PER_CLIENT:
            self._refuse(share, seq, asked_bytes, out)
        elif self._waiting or self._must_wait(now_ns):
            self._asked += 1
            share.wait(self._asked)
            self._waiting[self._asked] = (share, seq, asked_bytes)
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
        self.charged_bytes += share.forget_reserved()  # granted before the recall: in what it uses
        used_bytes = self.claims.believe(used_bytes)
        self.used_bytes += share.note_used(used_bytes)
        self.charged_bytes += share.charge(used_bytes)
        self.claims.settle(client)
        self._arrange(None, now_ns, out)

    def leave_out(self, lost_ns: int) -> None:
        """So long nobody could answer."""
        if self._recall_until_ns != NEVER:
            self._recall_until_ns += lost_ns
        self._absent.leave_out(lost_ns)

    def expire(self, now_ns: int, out: list[Effect]) -> None:
        """What was waited for did not come in time: answer those who wait."""
        if self._recall_until_ns <= now_ns:
            self._recall_until_ns = NEVER
        self._absent.expire(now_ns)
        if self._divide_ns <= now_ns:
            self._divide(None, now_ns, out)
        self._serve(now_ns, out)

    # ---- leases ------------------------------------------------------------------------------

    def _arrange(self, newcomer: Share | None, now_ns: int, out: list[Effect]) -> None:
        """Somebody came or went, or a limit was set: lease, recall or divide, whichever is called for."""
        if self.limit_bytes == 0:
            if newcomer is not None:
                self._set_free(newcomer, out)
        elif self._is_alone():
            self._lease_all(out)
        else:
            if newcomer is not None and len(self.shares) == 2:  # until now the other one was alone
                for share in self.shares.values():
                    self._recall(share, now_ns, out)
            if self._mute:
                self._divide(newcomer, now_ns, out)
        if not self._recalled:
            self._recall_until_ns = NEVER
        self.claims.see_charges(self.charged_bytes)
        self._serve(now_ns, out)

    def _lease(self, share: Share, lease_bytes: int | None, out: list[Effect]) -> None:
        self._recalled.pop(share.client, None)
        share.lease(lease_bytes)
        self.charged_bytes += share.forget_reserved()
        out.append(TellLease(share.client, share.generation, lease_bytes))

    def _set_free(self, share: Share, out: list[Effect]) -> None:
        """There is no limit."""
        if share.connected:
            if share.asks and (not share.leased or share.recalling):
                self._lease(share, None, out)
            elif share.told_bytes is not None:
                out.append(TellMemoryLimit(share.client, 0))
            share.tell(None)
        self.charged_bytes += share.charge(share.used_bytes)

    def _lease_all(self, out: list[Effect]) -> None:
        (share,) = self.shares.values()
        if not share.connected:
            return
        if not share.asks:
            self._tell_part(share, self.limit_bytes, out)
        elif not share.leased or share.recalling:
            self._lease(share, self.limit_bytes, out)
            self.charged_bytes += share.charge(max(self.limit_bytes, share.used_bytes))

    def _recall(self, share: Share, now_ns: int, out: list[Effect]) -> None:
        """What a process may have without asking stays charged until it is known to be given up."""
        if share.leased:
            self.charged_bytes += share.charge(self._lease_covers(share, share.lease_bytes))
            if share.connected and not share.recalling:
                share.recall()
                self._recalled[share.client] = share
                if self._recall_until_ns == NEVER:  # each is waited for once
                    self._recall_until_ns = now_ns + RECALL_TIMEOUT_NS
                out.append(RecallLease(share.client, share.generation))
        elif not share.asks and not share.connected:
            self.charged_bytes += share.charge(self._lease_covers(share, share.told_bytes))

    def _lease_covers(self, share: Share, promised_bytes: int | None) -> int:
        """None: any amount, and a limit covers no more than the limit."""
        return max(share.used_bytes, self.limit_bytes if promised_bytes is None else promised_bytes)

    def _divide(self, newcomer: Share | None, now_ns: int, out: list[Effect]) -> None:
        """Tell those who cannot ask their parts (rule 7); in a crowd a newcomer, and the others later."""
        self._divide_ns = NEVER
        if self.limit_bytes == 0 or self._is_alone():
            return
        mute = self._mute
        next_ns = self._divided_ns + pause_ns(len(mute))
        if now_ns < next_ns:
            self._divide_ns = next_ns
            if newcomer is not None and not newcomer.asks:
                free_bytes = max(0, self.limit_bytes - self._promised_bytes())
                self._tell_part(newcomer, free_bytes // len(self.shares), out)
            return
        self._divided_ns = now_ns
        for share in mute.values():
            self.charged_bytes += share.charge(share.used_bytes)
        free_bytes = max(0, self.limit_bytes - self._promised_bytes())
        for share in mute.values():
            self._tell_part(share, share.used_bytes + free_bytes // len(self.shares), out)

    def _tell_part(self, share: Share, part_bytes: int, out: list[Effect]) -> None:
        """To one that cannot ask. A limit of 0 would mean none at all."""
        part_bytes = max(1, part_bytes)
        if part_bytes != share.told_bytes:
            share.tell(part_bytes)
            out.append(TellMemoryLimit(share.client, part_bytes))
        self.charged_bytes += share.charge(max(part_bytes, share.used_bytes))

    def _promised_bytes(self) -> int:
        """To all, those included that are not back."""
        return self.charged_bytes + self._absent.possible_bytes(self.limit_bytes)

    # ---- answers -----------------------------------------------------------------------------

    def _must_wait(self, now_ns: int) -> bool:
        return now_ns < self._recall_until_ns != NEVER or now_ns < self._absent.until_ns != NEVER

    def _serve(self, now_ns: int, out: list[Effect]) -> None:
        self._serve_ns = NEVER
        if not self._waiting or self._must_wait(now_ns):
            return
        for number in list(islice(self._waiting, SERVED_AT_ONCE)):
            share, seq, asked_bytes = self._waiting.pop(number)
            share.answer(number)
            self._decide(share, seq, asked_bytes, out)
        if self._waiting:
            self._serve_ns = now_ns + 1

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


def _parts(weights: dict[int, int], whole_bytes: int) -> dict[int, int]:
    """Of the whole, by weight; they add up to the byte."""
    total = max(1, sum(weights.values()))
    before, parts = 0, {}
    for key, weight in weights.items():
        after = before + weight
        parts[key] = after * whole_bytes // total - before * whole_bytes // total
        before = after
    return parts
