"""The daemon's own counters, for exporters and ``ctl status``."""

from __future__ import annotations

from collections import Counter
from typing import Final

from nvshare.runtime.durations import DurationHistogram
from nvshare.wire.messages import MessageType

DISCONNECTS: Final = {
    "ended": "the client closed its connection, or its process ended",
    "protocol": "it broke the protocol",
    "overflow": "it did not read what it was sent",
    "replaced": "the same process registered or resumed anew",
    "fault": "a fault of the daemon kept a message from it",
}
"""Why a client's connection ended."""
KILLS: Final = {
    "unresponsive": "it had not drained for NVSHARE_DROP_TIMEOUT_SEC, and NVSHARE_ON_UNRESPONSIVE is kill",
    "operator": "by `nvshare ctl kill`",
}
"""Why the daemon ended a process of a client."""


class Counters:
    __slots__ = (
        "callbacks",
        "disconnects",
        "events",
        "exhausted_ns",
        "killed",
        "kubernetes_steps",
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
        self.events: Counter[str] = Counter()  # by name
        self.exhausted_ns = -1  # when descriptors or memory last ran out; -1: never
        self.callbacks = DurationHistogram()  # how long each callback held the loop
        self.kubernetes_steps = DurationHistogram()  # only those that take what the API server tells
        self.scrape_steps = DurationHistogram()  # only those of scrapes and of the front page
        self.lag = DurationHistogram()  # how late the loop was to a timer
        self.standstills = DurationHistogram()  # how long each was (``dispatcher``, rule 6)

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
            "kubernetes_steps": self.kubernetes_steps.as_dict(),
            "scrape_steps": self.scrape_steps.as_dict(),
            "lag": self.lag.as_dict(),
            "standstills": self.standstills.as_dict(),
        }
