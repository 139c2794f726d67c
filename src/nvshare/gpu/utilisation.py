"""For how long a card worked for each process, by the driver's samples.

Rules:
1. The driver samples at a steady pace that depends on the card, every sixth of a second to every second. A
   sample is of one period: the percent of it in which the card worked for a process. Where it did not work
   for a process there is no sample. So a look finds several samples of a process, or one, or none.
2. A sample covers the time from the one of the same process before it, but no more than a period. The period
   is the shortest time between two samples of a process in one answer, or nearly the shortest of the last
   answers: a sample may come late. It is no longer than what the driver says it is, if it does. To learn it,
   all that the driver has is asked for at first. If it never tells two, a sample is taken to be of the time
   since the last look, but of a second at most.
3. The report reaches to the newest sample. If there is none for so long that it would have come by now, the
   card did not work.
4. The driver's buffer is short. If more time passed since the last look than it holds, or than the one sample
   there is can be of, the report covers a part of that time: it is not complete.
5. Samples bear the time of the wall clock. If that was set, nothing is known of the time in between.
6. Processes that have ended, or have no context any more, have samples, too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Final, NamedTuple

PERIOD_LEAST_US: Final = 50_000
PERIOD_MOST_US: Final = 1_000_000
BUFFER_US: Final = 6_000_000
"""What any driver keeps, about: NVML's own buffers hold a hundred samples or so of a sixth of a second."""
ANSWERS_TO_LEARN_FROM: Final = 8
LATE_PERCENT: Final = 110
"""Of a period: looks are not made to the microsecond."""
NOBODY: Final[Mapping[int, int]] = MappingProxyType({})


class Sample(NamedTuple):
    pid: int
    at_us: int
    percent: int


class Work(NamedTuple):
    """What one look has found."""

    age_us: int  # how long before the look the reported time ended
    length_us: int  # since the last time; 0: there is no news
    complete: bool  # it covers all of that time (rule 4)
    worked_us: Mapping[int, int]  # by pid; what is not complete is stretched to the whole time


NO_NEWS: Final = Work(0, 0, True, NOBODY)


class Utilisation:
    """Of one card, from look to look."""

    def __init__(self) -> None:
        self._stated_us = PERIOD_MOST_US  # by the driver
        self._seen_us = 0  # of the newest sample, for the next question
        self._until_us = 0  # what happened until then was reported
        self._period_us = 0  # 0: not known yet
        self._gaps_us: deque[int] = deque(maxlen=16)  # the shortest of each of the last answers
        self._answers = 0  # that listed a process while it was not
        self._taken_us = 0  # of the last look, by a clock that nobody sets
        self._percents: Mapping[int, int] = NOBODY

    def ask_since(self, now_us: int) -> int:
        """From which moment on samples are asked for."""
        if now_us < self._until_us:  # rule 5
            self._seen_us = self._until_us = 0
        return self._seen_us if self._knows_pace() else 0

    def _knows_pace(self) -> bool:
        return self._period_us > 0 or self._answers >= ANSWERS_TO_LEARN_FROM

    def state_period(self, period_us: int) -> None:
        """What the driver says of its pace; 0 if it does not."""
        self._stated_us = (
            min(PERIOD_MOST_US, max(PERIOD_LEAST_US, period_us)) if period_us else PERIOD_MOST_US
        )

    def percent(self, pid: int) -> int:
        """Of the time that the last news were of."""
        return self._percents.get(pid, 0)

    def take(self, samples: Iterable[Sample], now_us: int, taken_us: int) -> Work:
        """The answer to the last question, and what it says. ``taken_us`` is of a clock that nobody sets."""
        stamped: dict[int, dict[int, int]] = {}
        for sample in samples:
            if sample.pid and sample.at_us <= now_us:
                stamped.setdefault(sample.pid, {})[sample.at_us] = sample.percent
        self._learn_period(stamped)
        newest_us = max((max(found) for found in stamped.values()), default=0)
        self._seen_us = max(self._seen_us, newest_us)
        waited_us = 2 * self._period_us or PERIOD_MOST_US
        began_us, self._until_us = self._until_us, max(newest_us, now_us - waited_us, self._until_us)
        if self._until_us == began_us:
            return NO_NEWS
        passed_us, self._taken_us = taken_us - self._taken_us, taken_us
        known = began_us > 0 and self._until_us - began_us < passed_us + BUFFER_US  # else rule 5
        return self._told(stamped, began_us if known else 0, now_us)

    def _told(self, stamped: Mapping[int, Mapping[int, int]], began_us: int, now_us: int) -> Work:
        until_us, period_us = self._until_us, self._period_us or PERIOD_MOST_US
        length_us = until_us - began_us if began_us else period_us
        covered_us = min(length_us, BUFFER_US if self._period_us else PERIOD_MOST_US)
        worked_us = {
            pid: _worked_us(found, until_us - covered_us, period_us) * length_us // covered_us
            for pid, found in stamped.items()
        }
        self._percents = {pid: min(100, round(100 * us / length_us)) for pid, us in worked_us.items()}
        in_time = length_us * 100 <= covered_us * LATE_PERCENT
        sure = self._knows_pace() or not stamped  # all that the driver has was asked for, and it has nothing
        complete = began_us > 0 and in_time and sure
        return Work(now_us - until_us, length_us, complete, MappingProxyType(worked_us))

    def _learn_period(self, stamped: Mapping[int, Mapping[int, int]]) -> None:
        gaps_us = (later - sooner for found in stamped.values() for sooner, later in pairwise(sorted(found)))
        shortest_us = min((gap_us for gap_us in gaps_us if gap_us >= PERIOD_LEAST_US), default=0)
        if shortest_us:
            self._gaps_us.append(min(shortest_us, self._stated_us))
            self._period_us = sorted(self._gaps_us)[len(self._gaps_us) // 4]
        elif stamped and not self._knows_pace():
            self._answers += 1


def _worked_us(percents: Mapping[int, int], since_us: int, period_us: int) -> int:
    """Rule 2."""
    total = 0
    for stamp_us in sorted(percents):
        total += percents[stamp_us] * max(0, stamp_us - max(since_us, stamp_us - period_us))
        since_us = max(since_us, stamp_us)
    return total // 100
