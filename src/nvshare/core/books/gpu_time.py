"""GPU time: how long the card worked for each client.

Rules:
1. Clients report how long they had work on the card. A tenant that has the GPU to itself is believed. For a
   client that reports nothing, the time it held counts.
2. A client that runs beside others has work on the card for longer than the card works for it: it waits
   during their time slices. Of a moment in which n clients have work there, each gets an nth, as cards divide
   their time. So clients also report when they had work: one bit for each slot of half a millisecond. A
   client's report counts with the mean of 1 / n over the slots in which it had work.
3. NVML reports, in whole percents, how long the card worked for a process. What clients cannot report is
   taken from there: everything for clients that report nothing, and the time that the card spends on
   switching between clients. A client that had the card to itself is more exact than a percent; but a
   difference to NVML that late reports cannot explain is corrected. A shortfall is counted at once, an excess
   is offset against what is counted next, since a counter never goes back.
   Before NVML's first report on a client that reports nothing, and after the last, the time it held counts.
4. Reports arrive late, so a slot is evaluated when all clients must have reported it. Work reported without
   slots is assumed to have been just before its report.
5. The next report divides everything that is due by then. If none comes, a deadline does it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from nvshare.core.account import NEVER
from nvshare.core.books.time_slots import parts

if TYPE_CHECKING:
    from nvshare.core.books.occupants import Occupants
    from nvshare.core.client import Client

SLOT_NS: Final = 500_000
SLOTS_REPORTED: Final = 256
WINDOW_NS: Final = 500_000_000
LATE_NS: Final = 300_000_000
"""After this time all clients have reported a moment: working clients report ten times a second."""
TALLY_NS: Final = WINDOW_NS + LATE_NS
EXCESS_MOST_NS: Final = 60_000_000_000
UNCERTAIN_PARTS: Final = 100
"""Fraction of the time that passed by which NVML's rounded percents may be off."""
LEARN_FROM_NS: Final = 50_000_000
WORTH_LEAST: Final = 500
WORTH_MOST: Final = 1500
UNKNOWN: Final = 1000
UNEXPLAINED_NS: Final = 150_000_000
"""A difference that reports on their way may explain."""
SAMPLES_MAX: Final = 512
"""Samples that wait to be compared; a sample of many clients comes in parts."""
SAMPLES_AT_ONCE: Final = 8
NVML_SILENT_NS: Final = 10_000_000_000
EXACT_MAX: Final = 16
MOST_SLOTS: Final = 4 * (WINDOW_NS + LATE_NS) // SLOT_NS
"""Slots that a client may have reported and that are not evaluated yet."""


class Work:
    """What a client has reported."""

    __slots__ = (
        "alone_ns",
        "compared_ns",
        "differs_ns",
        "divided_ns",
        "excess_ns",
        "first_slot",
        "heard_ns",
        "nvml_ns",
        "nvml_reported",
        "part_permille",
        "presumed_ns",
        "reported_at_ns",
        "reported_ns",
        "resumed",
        "shared_at_ns",
        "shared_ns",
        "slots",
        "unseen_ns",
        "untallied_ns",
        "worth_permille",
    )

    def __init__(self, now_ns: int) -> None:
        self.reported_ns = 0  # cumulative, as far as believed
        self.heard_ns = now_ns  # when it last reported
        self.untallied_ns = 0  # the part of it that is not yet divided among clients that ran together
        self.reported_at_ns = 0
        self.shared_at_ns = 0  # when it last reported work beside others
        self.nvml_ns = -1  # for a client that reports nothing: when NVML last reported it
        self.unseen_ns = 0  # its part of what was held since then, which NVML will report
        self.presumed_ns = 0  # what was counted because it was held, and NVML has not reported
        self.alone_ns = 0  # counted without being divided, since NVML's last report
        self.divided_ns = 0  # counted when it was divided, since NVML's last report
        self.shared_ns = 0  # the part of that which was divided among several, before applying ...
        self.worth_permille = UNKNOWN  # ... what was learned from NVML
        self.excess_ns = 0  # counted beyond NVML's report, and not offset yet
        self.differs_ns = 0  # difference to NVML's report while alone, as far as reports may be late
        self.compared_ns = now_ns
        self.nvml_reported = False
        self.part_permille = 1000  # the recent part of its work that it did not share
        self.resumed = False  # since NVML's last report
        self.slots = 0  # bits of slots with work that are not evaluated yet, starting at ...
        self.first_slot = 0

    def begin(self, reported_ns: int, heard_ns: int, excess_ns: int = 0) -> None:
        """What it reported to the previous daemon, or on its previous connection, is counted already."""
        self.reported_ns, self.heard_ns = reported_ns, max(0, heard_ns)
        self.excess_ns = max(0, min(EXCESS_MOST_NS, excess_ns))
        self.resumed = True

    def begin_comparing(self, at_ns: int) -> None:
        """Compare with NVML's reports from now on: its first one after a resume covers earlier time, too."""
        self.resumed = False
        self.alone_ns = self.divided_ns = self.shared_ns = 0
        self.compared_ns = at_ns

    def report(self, reported_ns: int, now_ns: int) -> int:
        """How much more than before, at most the time that passed; the rest is left for the next report."""
        more_ns = reported_ns - self.reported_ns
        passed_ns = now_ns - self.heard_ns
        self.heard_ns = now_ns
        if more_ns > passed_ns:
            more_ns = passed_ns
        if more_ns > 0:
            self.reported_ns += more_ns
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
        """Slots in which it was alone are not needed."""
        shared = self.shared_at_ns // SLOT_NS - self.first_slot if self.untallied_ns else 0
        self.slots &= (1 << max(shared, 0)) - 1

    def slots_before(self, first_slot: int, end_slot: int) -> int:
        """Its slots between the two; they are forgotten."""
        shift = self.first_slot - first_slot
        slots = self.slots << shift if shift >= 0 else self.slots >> -shift
        self.slots = slots >> (end_slot - first_slot)
        self.first_slot = end_slot
        return slots & ((1 << (end_slot - first_slot)) - 1)

    def unreported(self, held_ns: int, now_ns: int) -> int:
        """How much a client held that neither it nor NVML has reported."""
        if self.nvml_ns < 0:
            return held_ns
        silent_ns = now_ns - self.nvml_ns
        return min(held_ns, silent_ns) if silent_ns > NVML_SILENT_NS else 0

    def note_held(self, held_ns: int, part_ns: int, now_ns: int) -> int:
        """A client that reports nothing held this long. Returns how much of it counts."""
        counted_ns = self.unreported(held_ns, now_ns)
        if counted_ns:
            self.presumed_ns += min(part_ns, counted_ns)
        elif self.nvml_ns >= 0:
            self.unseen_ns += min(part_ns, now_ns - self.nvml_ns)
        return counted_ns

    def see(self, worked_ns: int, now_ns: int) -> int:
        """NVML reports a client that reports nothing. Returns what is not counted yet."""
        self.nvml_ns = now_ns
        self.unseen_ns = self.alone_ns = 0
        counted_ns = min(self.presumed_ns, worked_ns)
        self.presumed_ns = min(self.presumed_ns - counted_ns, EXCESS_MOST_NS)
        return worked_ns - counted_ns

    def corrected(self, had_ns: int) -> int:
        """Reduced by what was counted too much before."""
        correction_ns = min(had_ns, self.excess_ns)
        self.excess_ns -= correction_ns
        return had_ns - correction_ns

    def learn_part(self, part: float) -> None:
        """This part of the work that was just divided was its own."""
        part_permille = min(1000, int(part * self.worth_permille))
        self.part_permille = (3 * self.part_permille + part_permille) // 4

    def had_part(self, had_ns: int, shared: bool) -> int:
        """As ``corrected``, for divided time, scaled by what was learned from NVML: halves are not exact."""
        if shared:
            self.shared_ns += had_ns
            had_ns = had_ns * self.worth_permille // 1000
        self.divided_ns += had_ns
        return self.corrected(had_ns)

    def compare(self, alone_ns: int, worked_ns: int, at_ns: int) -> int:
        """Compare what was counted with what NVML reported for the same time. Returns what must be added."""
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
        self.nvml_reported = self.nvml_reported or worked_ns > 0
        self.compared_ns = at_ns
        self.divided_ns = self.shared_ns = 0
        if not self.nvml_reported:  # some drivers report 0 for processes that they cannot see
            return 0
        excess_ns = self.excess_ns + more_ns
        self.excess_ns = max(0, min(EXCESS_MOST_NS, excess_ns))
        return -excess_ns if excess_ns < 0 else 0

    def _unexplained(self, more_ns: int, rounded_ns: int) -> int:
        """The part of a difference while alone that neither rounding nor late reports explain."""
        self.differs_ns += more_ns
        self.differs_ns -= max(-rounded_ns, min(rounded_ns, self.differs_ns))
        if abs(self.differs_ns) <= UNEXPLAINED_NS:
            return 0
        unexplained_ns, self.differs_ns = self.differs_ns, 0
        return unexplained_ns

    def placed(self) -> int:
        """How many slots it reported; work without slots is placed just before its report (rule 4)."""
        count = self.slots.bit_count()
        missing = min(self.untallied_ns // SLOT_NS, MOST_SLOTS // 2) - count
        if missing > count or not count:
            missing = max(missing, 1)
            self.note_slots((1 << missing) - 1, self.shared_at_ns // SLOT_NS - missing)
        return self.slots.bit_count()

    def take(self, slots: int, reported: int) -> int:
        """Its work in that many of its reported slots; all of it if no others are left."""
        worked_ns = self.untallied_ns * slots // reported if self.slots else self.untallied_ns
        self.untallied_ns -= worked_ns
        return worked_ns


class Sample(NamedTuple):
    """NVML's report on some clients, and what was counted for them by then without being divided."""

    at_ns: int
    clients: list[tuple[Client, int, int]]


class GpuTime:
    """Reports on one GPU that are not divided yet."""

    __slots__ = ("_from_ns", "_mixed_ns", "_samples", "_sharers", "deadline_ns")

    def __init__(self, now_ns: int) -> None:
        self._from_ns = now_ns
        self._mixed_ns = -1  # when a client last reported while others were there
        self._sharers: list[Client] = []
        self._samples: deque[Sample] = deque(maxlen=SAMPLES_MAX)
        self.deadline_ns = NEVER  # by then ``tally`` is called (rule 5)

    def alone(self, client: Client, worked_ns: int, from_ns: int, now_ns: int) -> None:
        """The card worked this long for a client that shared it at most with others of its pod."""
        work = client.work
        work.alone_ns += worked_ns
        work.part_permille = 1000
        work.forget_slots_alone()
        if not client.reports_busy:
            work.reported_ns += worked_ns
        client.tenant.had_gpu_time(from_ns, now_ns, work.corrected(worked_ns))

    def in_group(self, client: Client, occupants: Occupants, worked_ns: int, now_ns: int) -> None:
        """A client had work on the card this long since its last report; others may have had, too."""
        work = client.work
        alone = occupants.has_only(client.tenant) and client.tenant.gate.holding == 1
        if alone and work.reported_at_ns > self._mixed_ns:
            self.alone(client, worked_ns, work.reported_at_ns, now_ns)
            work.reported_at_ns = now_ns
            return
        if not alone:
            self._mixed_ns = now_ns
        self.beside_others(client, worked_ns, now_ns)

    def note_slots(self, client: Client, slots: int, end_slot: int, now_ns: int) -> None:
        """A client reports when it had work; impossible or old slots are ignored."""
        present = now_ns // SLOT_NS
        first_slot = end_slot - SLOTS_REPORTED
        if present - MOST_SLOTS // 2 < first_slot and end_slot <= present + 1:
            client.work.note_slots(slots, first_slot)

    def beside_others(self, client: Client, worked_ns: int, now_ns: int) -> None:
        """A client had work on the card this long, while others may have had, too."""
        work = client.work
        if work.untallied_ns == 0:
            self._sharers.append(client)
            if self.deadline_ns == NEVER:
                self.deadline_ns = now_ns + TALLY_NS
        work.untallied_ns += worked_ns
        work.reported_at_ns = work.shared_at_ns = now_ns
        if now_ns - self._from_ns >= WINDOW_NS:
            self.tally(now_ns)

    def sampled(
        self, clients: list[tuple[Client, int]], at_ns: int, now_ns: int, complete: bool = True
    ) -> None:
        """NVML: how long the card worked for some clients since its last report (rule 3).

        A report that covers only part of that time is not compared.
        """
        reported: list[tuple[Client, int, int]] = []
        for client, worked_ns in clients:
            work = client.work
            if not client.reports_busy:
                more_ns = work.see(worked_ns, now_ns)
                work.reported_ns += more_ns
                client.tenant.had_gpu_time(now_ns - more_ns, now_ns, more_ns)
            elif work.resumed or not complete:
                work.begin_comparing(at_ns)
            else:
                reported.append((client, work.alone_ns, worked_ns))
                work.alone_ns = 0
        self._samples.append(Sample(at_ns, reported))
        if now_ns - self._from_ns >= WINDOW_NS:
            self.tally(now_ns)

    @property
    def is_behind(self) -> bool:
        """Some reported work is not divided yet."""
        return len(self._sharers) > 0

    def tally(self, now_ns: int, late_ns: int = LATE_NS, samples: int = SAMPLES_AT_ONCE) -> None:
        """Divide the slots that all clients must have reported by now.

        Of many samples the first ones are compared, and the rest soon after.
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
        """With many clients the card works all the time, so it matters little when each had work."""
        sharers, self._sharers = self._sharers, []
        reported_ns = longest_ns = 0
        until_ns = self._from_ns
        for client in sharers:
            reported_ns += client.work.untallied_ns
            longest_ns = max(longest_ns, client.work.untallied_ns)
            until_ns = max(until_ns, client.work.shared_at_ns)
        passed_ns = min(reported_ns, max(longest_ns, until_ns - self._from_ns))
        for client in sharers:
            work = client.work
            had_ns = work.untallied_ns * passed_ns // reported_ns
            client.tenant.had_gpu_time(self._from_ns, now_ns, work.had_part(had_ns, shared=True))
            work.untallied_ns = work.slots = 0

    def _divide(self, end_slot: int, now_ns: int) -> None:
        if len(self._sharers) > EXACT_MAX:
            self._divide_among_many(now_ns)
            return
        sharers, self._sharers = self._sharers, []
        first_slot = end_slot - MOST_SLOTS
        reported = [client.work.placed() for client in sharers]
        slots = [client.work.slots_before(first_slot, end_slot) for client in sharers]
        for client, own, count, part in zip(sharers, slots, reported, parts(slots), strict=True):
            work = client.work
            had_ns = round(work.take(own.bit_count(), count) * part)
            work.learn_part(part)
            had_ns = work.had_part(had_ns, shared=len(sharers) > 1)
            if had_ns:
                client.tenant.had_gpu_time(self._from_ns, now_ns, had_ns)
            if work.untallied_ns:
                self._sharers.append(client)

    def settle(self, client: Client, now_ns: int) -> None:
        """A client is about to go: count what it reported, or held since NVML's last report."""
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
