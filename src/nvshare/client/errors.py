"""Exceptions of the client."""

from __future__ import annotations

from typing import Final

NO_ROOM: Final = "the daemon has no room for this client (%s): it %s, and asks again; end other programs"


class ClientRefused(Exception):  # noqa: N818 - the daemon's word
    """The daemon refuses this client; ``reason`` is its word for why.

    Without a daemon it is never raised.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"the daemon refused this client: {reason}")
        self.reason = reason
