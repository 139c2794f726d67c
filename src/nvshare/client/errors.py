"""What a client may raise."""

from __future__ import annotations

from typing import Final

NO_ROOM: Final = "the daemon has no room for this client (%s): it %s, and asks again; end other programs"


class ClientRefused(Exception):  # noqa: N818 - the daemon's word
    """The daemon is there and does not want this client; ``reason`` is its word for why.

    A daemon that is away never raises.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"the daemon refused this client: {reason}")
        self.reason = reason
