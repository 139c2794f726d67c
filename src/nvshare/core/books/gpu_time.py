"""GPU time: for how long the card worked for whom.

Rules:
1. Clients tell for how long they had work on the card. A tenant that has the GPU for itself is believed that.
   What nobody tells is taken to be what was held.
2. Who runs beside others has work on the card for longer than the card works for it: it waits while they have
   their time slices. Of a moment in which n have work there each has an nth, as cards divide their time. So
   clients also tell when they had work: a bit for each slot of half a millisecond. What a client told is
   worth the mean of 1 / n over the slots in which it had work.
3. NVML tells, in whole percents, for how long the card worked for a process. What cannot be told otherwise
   is taken from there: all of it of clients that tell nothing, and what the card spends on switching between
   those who run at once. A client that had the card for itself knows better than a percent; but what it told
   beyond that, or less, is NVML's once it is more than late reports explain. Too little is counted at once,
   too much is made up for in what is counted next, since a counter never goes back.
   Before NVML's first word on a client that tells nothing, and after its last, what was held counts.
4. Reports come when they come, so a slot is looked at when all must have told of it. What was told without
   slots is taken to have been just before it was told.
5. Whoever tells next has all divided that is due by then. If nobody does, a deadline has it done.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from nvshare.core.account import NEVER
from nvshare.core.books.slots import parts

if TYPE_CHECKING:
    from nvshare.core.books.floor import Floor
    from nvshare.core.client import Client

SLOT_NS: Final = 500_000
SLOTS_TOLD: Final = 256
WINDOW_NS: Final = 500_000_000
LATE_NS: Final = 300_000_000
"""By then everybody has told of a moment: clients that work tell ten times a second."""
TALLY_NS: Final = WINDOW_NS + LATE_NS
EXCESS_MOST_NS: Final = 60_000_000_000
UNCERTAIN_PARTS: Final = 100
"""Of the time that passed: NVML's percents are rounded."""
LEARN_FROM_NS: Final = 50_000_000
WORTH_LEAST: Final = 500
WORTH_MOST: Final = 1500
UNKNOWN: Final = 1000
UNEXPLAINED_NS: Final = 150_000_000
"""So much of a difference may be due to reports that are on their way."""
SAMPLES_MAX: Final = 512
"""A sample of many clients comes in parts."""
SAMPLES_AT_ONCE: Final = 8
NVML_SILENT_NS: Final = 10_000_000_000
CROWD: Final = 16
MOST_SLOTS: Final = 4 * (WINDOW_NS + LATE_NS) // SLOT_NS
"""Of those of which a client may have told and nobody has looked at yet."""


class Work:
    """What a client has told."""

    __slots__ = (
        "alone_ns",
        "compared_ns",
        "differs_ns",
        "divided_ns",
        "excess_ns",
        "first_slot",
        "heard_ns",
        "nvml_ns",
        "nvml_told",
        "part_permille",
        "presumed_ns",
        "resumed",
        "shared_at_ns",
        "shared_ns",
        "slots",
        "told_at_ns",
        "told_ns",
        "unseen_ns",
        "untallied_ns",
        "worth_permille",
    )

    def __init__(self, now_ns: int) -> None:
        self.told_ns = 0  # cumulative, as far as it is believed
        self.heard_ns = now_ns  # when it last told
        self.untallied_ns = 0  # of that, what is not yet divided among those who ran at once
        self.told_at_ns = 0
        self.shared_at_ns = 0  # when it last told of work beside others
        self.nvml_ns = -1  # of one that tells nothing: when NVML last did
        self.unseen_ns = 0  # its part of what was held since, which is NVML's to tell
        self.presumed_ns = 0  # what was counted because it was held, and NVML has not told of
        self.alone_ns = 0  # counted as soon as it was told, since NVML last told, as if it told nothing
        self.divided_ns = 0  # the same, when it was divided
        self.shared_ns = 0  # of that, what was divided among several, before ...
        self.worth_permille = UNKNOWN  # was learned, by what NVML tells
        self.excess_ns = 0  # counted beyond what NVML told, and not made up for yet
        self.differs_ns = 0  # counted beyond it while alone, or less, as far as it may be late
        self.compared_ns = now_ns
        self.nvml_told = False
        self.part_permille = 1000  # of its work, what it had for itself lately
        self.resumed = False  # since NVML last told
        self.slots = 0  # in which it had work and which are not looked at yet, from ...
        self.first_slot = 0

    def begin(self, told_ns: int, heard_ns: int, excess_ns: int = 0) -> None:
        """What it told a former daemon, or on a former connection, is counted."""
        self.told_ns, self.heard_ns = told_ns, max(0, heard_ns)
        self.excess_ns = max(0, min(EXCESS_MOST_NS, excess_ns))
        self.resumed = True

    def begin_comparing(self, at_ns: int) -> None:
        """With what NVML tells from now on: its word on one that has resumed is of the time before, too."""
        self.resumed = False
        self.alone_ns = self.divided_ns = self.shared_ns = 0
        self.compared_ns = at_ns

    def tell(self, told_ns: int, now_ns: int) -> int:
        """How much more than before: no more than time has passed; the rest is for the next time."""
        more_ns = told_ns - self.told_ns
        passed_ns = now_ns - self.heard_ns
        self.heard_ns = now_ns
        if more_ns > passed_ns:
            more_ns = passed_ns
        if more_ns > 0:
            self.told_ns += more_ns
        return more_ns

    def note_slots(self, slots: int, first_slot: int) -> None:
        if not self.slots or first_slot - self.first_slot > MOST_SLOTS:
            self.slots, self.first_slot = slots, first_slot
        elif first_slot >= self.first_slot:
            self.slots |= slots << (first_slot - self.first_slot)
        else:
            self.slots = self.slots << (self.first_slot - first_slot) | slots
            self.first_slot = first_slot

    def forget_slots_alone(self) -> None:
        """Nobody needs to know when it had work on its own."""
        shared = self.shared_at_ns // SLOT_NS - self.first_slot if self.untallied_ns else 0
        self.slots &= (1 << max(shared, 0)) - 1

    def slots_before(self, first_slot: int, end_slot: int) -> int:
        """Those from the first on; what is before the end is forgotten."""
        shift = self.first_slot - first_slot
        slots = self.slots << shift if shift >= 0 else self.slots >> -shift
        self.slots = slots >> (end_slot - first_slot)
        self.first_slot = end_slot
        return slots & ((1 << (end_slot - first_slot)) - 1)

    def untold(self, held_ns: int, now_ns: int) -> int:
        """Of what one held that tells nothing: what NVML has not told of, either."""
        if self.nvml_ns < 0:
            return held_ns
        silent_ns = now_ns - self.nvml_ns
        return min(held_ns, silent_ns) if silent_ns > NVML_SILENT_NS else 0

    def note_held(self, held_ns: int, part_ns: int, now_ns: int) -> int:
        """One that tells nothing held so long until now, its part of that so much: what is counted of it."""
        counted_ns = self.untold(held_ns, now_ns)
        if counted_ns:
            self.presumed_ns += min(part_ns, counted_ns)
        elif self.nvml_ns >= 0:
            self.unseen_ns += min(part_ns, now_ns - self.nvml_ns)
        return counted_ns

    def see(self, worked_ns: int, now_ns: int) -> int:
        """NVML's word on one that tells nothing: how much of it is not counted yet."""
        self.nvml_ns = now_ns
        self.unseen_ns = self.alone_ns = 0
        counted_ns = min(self.presumed_ns, worked_ns)
        self.presumed_ns = min(self.presumed_ns - counted_ns, EXCESS_MOST_NS)
        return worked_ns - counted_ns

    def corrected(self, had_ns: int) -> int:
        """Without what was counted too much before."""
        correction_ns = min(had_ns, self.excess_ns)
        self.excess_ns -= correction_ns
        return had_ns - correction_ns

    def learn_part(self, part: float) -> None:
        """Of the work that was just divided so much was its own."""
        part_permille = min(1000, int(part * self.worth_permille))
        self.part_permille = (3 * self.part_permille + part_permille) // 4

    def had_part(self, had_ns: int, shared: bool) -> int:
        """The same of what was divided, as far as it was learned what that is worth: halves are not exact."""
        if shared:
            self.shared_ns += had_ns
            had_ns = had_ns * self.worth_permille // 1000
        self.divided_ns += had_ns
        return self.corrected(had_ns)

    def compare(self, alone_ns: int, worked_ns: int, at_ns: int) -> int:
        """What was counted since the last time with what NVML told of the same time; what is to be added."""
        more_ns = alone_ns + self.divided_ns - worked_ns
        rounded_ns = (at_ns - self.compared_ns) // UNCERTAIN_PARTS
        if alone_ns * 8 > self.shared_ns:
            more_ns = self._unexplained(more_ns, rounded_ns)
        else:
            more_ns -= max(-rounded_ns, min(rounded_ns, more_ns))
            if self.shared_ns >= LEARN_FROM_NS:
                worth_permille = max(WORTH_LEAST, min(WORTH_MOST, worked_ns * 1000 // self.shared_ns))
                if self.worth_permille != UNKNOWN:
                    worth_permille = (self.worth_permille + worth_permille) // 2
                self.worth_permille = worth_permille
        self.nvml_told = self.nvml_told or worked_ns > 0
        self.compared_ns = at_ns
        self.divided_ns = self.shared_ns = 0
        if not self.nvml_told:  # drivers that tell nothing of some processes say that they do nothing
            return 0
        excess_ns = self.excess_ns + more_ns
        self.excess_ns = max(0, min(EXCESS_MOST_NS, excess_ns))
        return -excess_ns if excess_ns < 0 else 0

    def _unexplained(self, more_ns: int, rounded_ns: int) -> int:
        """Of a difference while it was alone: what is neither rounded nor late."""
        self.differs_ns += more_ns
        self.differs_ns -= max(-rounded_ns, min(rounded_ns, self.differs_ns))
        if abs(self.differs_ns) <= UNEXPLAINED_NS:
            return 0
        unexplained_ns, self.differs_ns = self.differs_ns, 0
        return unexplained_ns

    def placed(self) -> int:
        """How many slots it told of; what was told without any was just before it was told (rule 4)."""
        count = self.slots.bit_count()
        missing = min(self.untallied_ns // SLOT_NS, MOST_SLOTS // 2) - count
        if missing > count or not count:
            missing = max(missing, 1)
            self.note_slots((1 << missing) - 1, self.shared_at_ns // SLOT_NS - missing)
        return self.slots.bit_count()

    def take(self, slots: int, told: int) -> int:
        """What it worked in so many of the slots it told of; all of it if no other is left to look at."""
        worked_ns = self.untallied_ns * slots // told if self.slots else self.untallied_ns
        self.untallied_ns -= worked_ns
        return worked_ns


class Sample(NamedTuple):
    """NVML's word on some clients, and what was counted of them by then without being divided."""

    at_ns: int
    clients: list[tuple[Client, int, int]]


class GpuTime:
    """Of one GPU: what was told and is not divided yet."""

    __slots__ = ("_from_ns", "_mixed_ns", "_samples", "_sharers", "deadline_ns")

    def __init__(self, now_ns: int) -> None:
        self._from_ns = now_ns
        self._mixed_ns = -1  # when one told last while others were there
        self._sharers: list[Client] = []
        self._samples: deque[Sample] = deque(maxlen=SAMPLES_MAX)
        self.deadline_ns = NEVER  # by then ``tally`` is called (rule 5)

    def alone(self, client: Client, worked_ns: int, from_ns: int, now_ns: int) -> None:
        """The card worked that long for a client that had it for itself, or with others of its pod."""
        work = client.work
        work.alone_ns += worked_ns
        work.part_permille = 1000
        work.forget_slots_alone()
        if not client.reports_busy:
            work.told_ns += worked_ns
        client.tenant.had_gpu_time(from_ns, now_ns, work.corrected(worked_ns))

    def in_group(self, client: Client, floor: Floor, worked_ns: int, now_ns: int) -> None:
        """A client had work on the card that long since it last told; others may have been there, too."""
        work = client.work
        if (
            work.told_at_ns > self._mixed_ns
            and floor.has_only(client.tenant)
            and client.tenant.gate.holding == 1
        ):
            self.alone(client, worked_ns, work.told_at_ns, now_ns)
            work.told_at_ns = now_ns
            return
        if floor.together != 1 or client.tenant.gate.holding != 1 or not floor.has_only(client.tenant):
            self._mixed_ns = now_ns
        self.beside_others(client, worked_ns, now_ns)

    def note_slots(self, client: Client, slots: int, end_slot: int, now_ns: int) -> None:
        """A client tells when it had work; what cannot be true, or is not new, is not heard."""
        present = now_ns // SLOT_NS
        first_slot = end_slot - SLOTS_TOLD
        if present - MOST_SLOTS // 2 < first_slot and end_slot <= present + 1:
            client.work.note_slots(slots, first_slot)

    def beside_others(self, client: Client, worked_ns: int, now_ns: int) -> None:
        """The same, while others may have had work there, too."""
        work = client.work
        if work.untallied_ns == 0:
            self._sharers.append(client)
            if self.deadline_ns == NEVER:
                self.deadline_ns = now_ns + TALLY_NS
        work.untallied_ns += worked_ns
        work.told_at_ns = work.shared_at_ns = now_ns
        if now_ns - self._from_ns >= WINDOW_NS:
            self.tally(now_ns)

    def sampled(
        self, clients: list[tuple[Client, int]], at_ns: int, now_ns: int, complete: bool = True
    ) -> None:
        """NVML: for how long the card worked for some clients, from its last word to then (rule 3).

        What it tells of part of that time alone is compared with nothing.
        """
        told: list[tuple[Client, int, int]] = []
        for client, worked_ns in clients:
            work = client.work
            if not client.reports_busy:
                more_ns = work.see(worked_ns, now_ns)
                work.told_ns += more_ns
                client.tenant.had_gpu_time(now_ns - more_ns, now_ns, more_ns)
            elif work.resumed or not complete:
                work.begin_comparing(at_ns)
            else:
                told.append((client, work.alone_ns, worked_ns))
                work.alone_ns = 0
        self._samples.append(Sample(at_ns, told))
        if now_ns - self._from_ns >= WINDOW_NS:
            self.tally(now_ns)

    @property
    def is_behind(self) -> bool:
        """Something was told that is not divided yet."""
        return len(self._sharers) > 0

    def tally(self, now_ns: int, late_ns: int = LATE_NS, samples: int = SAMPLES_AT_ONCE) -> None:
        """Divide what was told of slots of which everybody must have told by now.

        Of many samples the first ones are compared; the rest is for the next time, which is soon.
        """
        until_ns = now_ns - late_ns
        while self._samples and self._samples[0].at_ns <= until_ns:
            if samples == 0:
                self.deadline_ns = now_ns
                return
            samples -= 1
            sample = self._samples.popleft()
            self._divide(sample.at_ns // SLOT_NS, now_ns)
            for client, alone_ns, worked_ns in sample.clients:
                missing_ns = client.work.compare(alone_ns, worked_ns, sample.at_ns)
                if missing_ns:
                    client.tenant.had_gpu_time(now_ns - missing_ns, now_ns, missing_ns)
        self._divide(until_ns // SLOT_NS, now_ns)
        self._from_ns = now_ns
        self.deadline_ns = now_ns + TALLY_NS if self._sharers else NEVER

    def _divide_among_many(self, now_ns: int) -> None:
        """In a crowd the card works all the time; when each had work makes little difference there."""
        sharers, self._sharers = self._sharers, []
        told_ns = longest_ns = 0
        until_ns = self._from_ns
        for client in sharers:
            told_ns += client.work.untallied_ns
            longest_ns = max(longest_ns, client.work.untallied_ns)
            until_ns = max(until_ns, client.work.shared_at_ns)
        passed_ns = min(told_ns, max(longest_ns, until_ns - self._from_ns))
        for client in sharers:
            work = client.work
            had_ns = work.untallied_ns * passed_ns // told_ns
            client.tenant.had_gpu_time(self._from_ns, now_ns, work.had_part(had_ns, shared=True))
            work.untallied_ns = work.slots = 0

    def _divide(self, end_slot: int, now_ns: int) -> None:
        if len(self._sharers) > CROWD:
            self._divide_among_many(now_ns)
            return
        sharers, self._sharers = self._sharers, []
        first_slot = end_slot - MOST_SLOTS
        told = [client.work.placed() for client in sharers]
        slots = [client.work.slots_before(first_slot, end_slot) for client in sharers]
        for client, own, count, part in zip(sharers, slots, told, parts(slots), strict=True):
            work = client.work
            had_ns = round(work.take(own.bit_count(), count) * part)
            work.learn_part(part)
            had_ns = work.had_part(had_ns, shared=len(sharers) > 1)
            if had_ns:
                client.tenant.had_gpu_time(self._from_ns, now_ns, had_ns)
            if work.untallied_ns:
                self._sharers.append(client)

    def settle(self, client: Client, now_ns: int) -> None:
        """A client is about to go: what it told is divided before, or what it held since NVML last told."""
        work = client.work
        unseen_ns = min(work.unseen_ns, now_ns - work.nvml_ns)
        if unseen_ns:
            work.unseen_ns = 0
            client.tenant.had_gpu_time(now_ns - unseen_ns, now_ns, unseen_ns)
        if work.untallied_ns:
            self.tally(now_ns, late_ns=-SLOT_NS, samples=SAMPLES_MAX)
        if work.untallied_ns:
            self._sharers.remove(client)
            work.untallied_ns = work.slots = 0
