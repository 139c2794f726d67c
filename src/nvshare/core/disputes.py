"""How far a tenant's own reports are trusted, by what NVML saw and by how often they were wrong."""

from __future__ import annotations

from typing import Final

TRUSTED_DISPUTES: Final = 2
DISTRUST_NS: Final = 60_000_000_000


SEEN_IDLE_NS: Final = 900_000_000
"""Two samples by NVML, a second apart, must agree."""


OVERBILLED_MOST_NS: Final = 150_000_000
"""A bill beyond NVML's figure offsets a later one below it, up to this much: NVML's samples are not taken at
the moments of bills, so an honest pod's difference swings around zero."""
IDLE_KNOWN_NS: Final = 2_500_000_000
"""How long a sample is evidence of the present."""


RESUMED_HOLDS_MOST: Final = 60
"""Within DISTRUST_NS. A message that began or ended a hold may be lost with its connection."""
FOUND_HOLDS_MOST: Final = 10
"""The same for clients that report work without a hold, which crossing messages seldom cause. Each such hold
ends by a DROP and costs the others a drain. NVML finds the ones not believed (``nvml_billing``, rule 5)."""


class Trust:
    """Bills of a tenant that NVML contradicted (``policy.nvml_billing``), and holds that were never granted.

    Either may happen to an honest tenant, but not often.
    """

    __slots__ = (
        "_anew_ns",
        "_before_ns",
        "_caught",
        "_caught_ns",
        "_found",
        "_found_since_ns",
        "_measured_ns",
        "_seen_idle_ns",
        "_seen_ns",
        "_unbilled_ns",
        "_unreported_ns",
    )

    def __init__(self) -> None:
        self._found = 0
        self._found_since_ns = 0
        self._measured_ns = -1
        self._anew_ns = 0  # NVML's figures for the time before are not compared
        self._unbilled_ns = 0
        self._unreported_ns = 0  # the time that the last sample does not cover yet
        self._seen_ns = -1  # when the last sample was taken
        self._before_ns = -1  # the sample before it: the last one covers the time since then
        self._seen_idle_ns = -1  # since when NVML has reported that nothing runs for it
        self._caught = 0
        self._caught_ns = 0

    def pass_to(self, at_ns: int, now_ns: int) -> int:
        """The time between this sample and the last; -1 for the first one after a reset.

        The sample covers the time until ``at_ns``, and bills the time until ``now_ns``.
        """
        if at_ns < self._anew_ns:
            return -1
        passed_ns = at_ns - self._measured_ns if self._measured_ns >= 0 else -1
        self._measured_ns = at_ns
        self._unreported_ns = now_ns - at_ns
        if passed_ns < 0:
            self._unbilled_ns = -self._unreported_ns
        return passed_ns

    def reset(self, now_ns: int) -> None:
        """Time has passed in which nothing was billed as usual: the comparison starts again."""
        self._measured_ns = self._before_ns = self._seen_ns = -1
        self._anew_ns = now_ns
        self._unbilled_ns = 0

    def see(self, worked_ns: int, at_ns: int) -> None:
        """NVML: how long the card worked for it since the last sample."""
        self._before_ns, self._seen_ns = self._seen_ns, at_ns
        if worked_ns:
            self._seen_idle_ns = -1
        elif self._seen_idle_ns < 0:
            self._seen_idle_ns = at_ns

    def seen_idle(self, now_ns: int) -> bool:
        known = now_ns - self._seen_ns <= IDLE_KNOWN_NS
        return known and 0 <= self._seen_idle_ns < now_ns - SEEN_IDLE_NS

    def sampled_since(self, at_ns: int) -> bool:
        """Whether the last sample covers only time after that moment."""
        return self._before_ns > at_ns

    def add(self, unbilled_ns: int, held_ns: int, most_ns: int) -> int:
        """Add what was not billed; returns what must be billed now, beyond what may be late."""
        least_ns = -OVERBILLED_MOST_NS - self._unreported_ns
        self._unbilled_ns = max(least_ns, self._unbilled_ns + unbilled_ns)
        caught_ns = self._unbilled_ns - held_ns
        if caught_ns <= most_ns:
            return 0
        self._unbilled_ns -= caught_ns
        return caught_ns

    def caught(self, now_ns: int) -> None:
        if now_ns > self._caught_ns + DISTRUST_NS:
            self._caught = 0
        self._caught += 1
        self._caught_ns = now_ns

    def believes_hold(self, now_ns: int, most: int) -> bool:
        """Whether to believe a client that claims an unknown hold."""
        if now_ns > self._found_since_ns + DISTRUST_NS:
            self._found, self._found_since_ns = 0, now_ns
        self._found += 1
        return self._found <= most

    def distrusted(self, now_ns: int) -> bool:
        return self._caught > TRUSTED_DISPUTES and now_ns <= self._caught_ns + DISTRUST_NS
