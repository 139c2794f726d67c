"""What a reflector reports: pages of a list, and changes."""

from __future__ import annotations

from typing import Final, Generic, NamedTuple

from nvshare.pods.kubernetes.objects import ObjectT

ADDED: Final = "ADDED"
MODIFIED: Final = "MODIFIED"
DELETED: Final = "DELETED"
BOOKMARK: Final = "BOOKMARK"
ERROR: Final = "ERROR"


class Listed(NamedTuple, Generic[ObjectT]):
    """A page of a list of all that exists."""

    objects: list[ObjectT]
    first: bool
    last: bool


class Changed(NamedTuple, Generic[ObjectT]):
    kind: str  # ADDED, MODIFIED or DELETED
    object: ObjectT


class SourceFigures(NamedTuple):
    """How a reflector fares. All times are of the monotonic clock."""

    up: bool  # everything is known, and changes would be
    why: str  # it is not
    current_ns: int  # when anything was last reported; -1: never
    lists: int  # begun
    watches: int  # begun
    events: int  # of watches, without bookmarks
    failures: int
    status: int = 0  # of the last failure: that of HTTP, if there was one
