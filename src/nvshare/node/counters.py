"""What the daemon counts about itself; exporters and ``ctl status`` read it."""

from __future__ import annotations

from collections import Counter
from typing import Final

from nvshare.wire.messages import MessageType

DISCONNECTS: Final = {
    "ended": "the client closed its connection, or its process ended",
    "protocol": "it broke the protocol",
    "overflow": "it did not read what it was sent",
    "replaced": "the same process registered or resumed anew",
    "fault": "it could not be told something, by a fault of the daemon",
}
"""Why a client's connection ended."""
KILLS: Final = {
    "unresponsive": "it had not drained for NVSHARE_DROP_TIMEOUT_SEC, and NVSHARE_ON_UNRESPONSIVE is kill",
    "operator": "by `nvshare ctl kill`",
}
"""Why the daemon ended a process of a client."""
_BUCKETS: Final = 64  # powers of two of nanoseconds: as long as a clock of 63 bits can tell


class Durations:
    """A histogram in powers of two, cheap enough for every callback."""

    __slots__ = ("counts", "longest_ns", "sum_ns")

    def __init__(self) -> None:
        self.counts = [0] * _BUCKETS
        self.sum_ns = 0
        self.longest_ns = 0

    def add(self, duration_ns: int) -> None:
        self.counts[duration_ns.bit_length()] += 1
        self.sum_ns += duration_ns
        if duration_ns > self.longest_ns:
            self.longest_ns = duration_ns

    def quantile_ns(self, part: float) -> int:
        """An upper bound of the quantile: the end of its bucket, and never more than the longest."""
        total = sum(self.counts)
        seen = 0
        for exponent, count in enumerate(self.counts):
            seen += count
            if total and seen >= part * total:
                return min(1 << exponent, self.longest_ns)
        return 0

    def as_dict(self) -> dict[str, object]:
        return {
            "count": sum(self.counts),
            "sum_ns": self.sum_ns,
            "longest_ns": self.longest_ns,
            "p50_ns": self.quantile_ns(0.5),
            "p99_ns": self.quantile_ns(0.99),
            "buckets_log2_ns": list(self.counts),
        }


def _by_name(counts: list[int]) -> dict[str, int]:
    return {kind.name: counts[kind] for kind in MessageType if counts[kind]}


class Counters:
    __slots__ = (
        "callbacks",
        "disconnects",
        "events",
        "exhausted_ns",
        "killed",
        "lag",
        "received",
        "refused",
        "scrape_steps",
        "sent",
        "standstills",
    )

    def __init__(self) -> None:
        self.received = [0] * 256  # by message type
        self.sent = [0] * 256
        self.refused: Counter[str] = Counter()  # by reason
        self.disconnects = dict.fromkeys(DISCONNECTS, 0)  # of clients, by reason
        self.killed = dict.fromkeys(KILLS, 0)  # processes of clients, by reason
        self.events: Counter[str] = Counter()  # what happened, by name
        self.exhausted_ns = -1  # when descriptors or memory last ran out; -1: never
        self.callbacks = Durations()  # how long each callback held the loop
        self.scrape_steps = Durations()  # those of scrapes and of the front page alone
        self.lag = Durations()  # how late the loop was to a timer
        self.standstills = Durations()  # how long each was (``hub``, rule 6)

    def as_dict(self) -> dict[str, object]:
        return {
            "messages_received": {
                kind.name: self.received[kind] for kind in MessageType if self.received[kind]
            },
            "messages_sent": {kind.name: self.sent[kind] for kind in MessageType if self.sent[kind]},
            "refused": dict(self.refused),
            "disconnects": dict(self.disconnects),
            "killed": dict(self.killed),
            "events": dict(self.events),
            "callbacks": self.callbacks.as_dict(),
            "scrape_steps": self.scrape_steps.as_dict(),
            "lag": self.lag.as_dict(),
            "standstills": self.standstills.as_dict(),
        }
