"""What a client's lock and memory share: the phase of its connection, its limits, and its output."""

from __future__ import annotations

import enum
from typing import Final

from nvshare.wire.codec import encode
from nvshare.wire.dialects import V3
from nvshare.wire.messages import Message, MessageType

CROWDED: Final = frozenset({"too_many_in_pod", "too_many_of_user", "too_many_pods", "too_many_clients"})
POD_UNKNOWN: Final = "pod_unknown"
ASKED_AGAIN: Final = CROWDED | {POD_UNKNOWN}
"""Refusals that end by themselves."""
"""Refusals for want of room."""


class Phase(enum.StrEnum):
    AWAY = "away"
    REGISTERING = "registering"
    RESUMING = "resuming"
    READY = "ready"
    CROWDED = "crowded"
    REFUSED = "refused"


class Link:
    def __init__(self) -> None:
        self.phase = Phase.AWAY
        self.output = bytearray()
        self.refusal = ""
        self.scheduling_on = True
        self.core_percent = 100
        self.memory_limit_bytes = 0
        self.ungated = False
        self.daemon_ended = False  # it announced its end, and no daemon has answered since

    @property
    def is_ready(self) -> bool:
        return self.phase is Phase.READY

    def is_limited(self) -> bool:
        return self.core_percent < 100 or self.memory_limit_bytes > 0

    def runs_unregistered(self) -> bool:
        """There is no room for it, and it has no limit that it would share with other processes."""
        return self.refusal in CROWDED and self.phase is not Phase.REFUSED and not self.is_limited()

    def send(self, kind: MessageType, **fields: str | int) -> None:
        self.output += encode(Message(kind, **fields), V3)  # type: ignore[arg-type]

    def send_numbers(self, kind: MessageType, *arguments: int) -> None:
        self.output += encode(Message(kind, arguments=arguments), V3)
