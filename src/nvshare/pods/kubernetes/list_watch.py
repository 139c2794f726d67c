"""What to ask the API server next, to know all objects of a kind and each of their changes. Pure.

1. A list is read page by page. After its last page all that exists is known, as of the list's version. From
   there on a watch reports every change.
2. Each event, and each bookmark, moves the version. A stream that ends is continued from the last one.
3. An expired version (410) means that changes were missed: everything is listed again. So does a stream that
   was silent for longer than bookmarks are apart, because a version from the future is answered by silence,
   and so does a watch that fails repeatedly.
4. After a failure there is a pause, which doubles with each further one up to a few seconds and is shortened
   at random, so that a cluster's nodes do not come back together. The server's Retry-After counts if it is
   longer. A stream that ends without having told anything counts as a failure as far as the pause goes.
5. The first expiry of a watch after any event needs no pause: the server is well, and we were too slow. A
   list in between makes no difference, or a server that expires every watch would be listed all the time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

PAGE_OBJECTS: Final = 20
"""Of 8 kB each: a page is decoded in well under a millisecond."""
LARGE_PAGE_OBJECTS: Final = 500
"""After a list whose version expired between two pages."""
EXPIRED: Final = 410
UNREADABLE: Final = -1
"""In the place of a status: the answer was garbage."""
NO_ANSWER: Final = 0
"""In the place of a status: no connection, or no answer in time."""
_START_OVER: Final = frozenset({EXPIRED, 400, UNREADABLE})
_FAILURES_OF_WATCH: Final = 3


class Timing(NamedTuple):
    pause_least_sec: float = 0.1
    pause_most_sec: float = 3.0
    retry_after_most_sec: float = 30.0
    answer_sec: float = 10.0  # for the beginning of an answer, and between two parts of it
    page_sec: float = 30.0  # for a whole page
    idle_sec: float = 75.0  # bookmarks come about once a minute
    watch_sec: int = 240  # how long a stream is asked for, and up to as much more at random


class ListPage(NamedTuple):
    """``continue_token`` is empty for the first page."""

    continue_token: str
    limit: int


class Watch(NamedTuple):
    resource_version: str
    timeout_sec: int


class Pause(NamedTuple):
    seconds: float


Step = ListPage | Watch | Pause


class Failure(NamedTuple):
    """``status``: of HTTP, or one of those above."""

    status: int
    why: str
    retry_after_sec: float = 0.0


class ListWatch:
    def __init__(self, timing: Timing, random: Callable[[], float]) -> None:
        """``random`` returns a number from 0 up to 1."""
        self._timing = timing
        self._random = random
        self._token = ""  # of the next page
        self._version = ""  # to watch from; empty: a list is needed first
        self._pause_sec = 0.0
        self._failures = 0  # in a row
        self._expired_lists = 0  # in a row
        self._expired_watches = 0  # since the last event
        self._heard = False  # the present stream has told something

    def next_step(self) -> Step:
        if self._pause_sec:
            pause_sec, self._pause_sec = self._pause_sec, 0.0
            return Pause(pause_sec)
        if not self._version:
            return ListPage(self._token, LARGE_PAGE_OBJECTS if self._expired_lists > 1 else PAGE_OBJECTS)
        self._heard = False
        return Watch(self._version, int(self._timing.watch_sec * (1 + self._random())))

    # ---- what came of the step ---------------------------------------------------------------

    def page_came(self, resource_version: str, continue_token: str) -> bool:
        """Whether it was the last one."""
        if not continue_token and not resource_version:
            raise ValueError("a list without a version")
        self._token = continue_token
        if continue_token:
            return False
        self._version = resource_version
        self._failures = self._expired_lists = 0
        return True

    def event_came(self, resource_version: str) -> None:
        """An event or a bookmark."""
        if not resource_version:
            raise ValueError("an event without a version")
        self._version = resource_version
        self._heard = True
        self._failures = self._expired_watches = 0

    def stream_ended(self) -> None:
        """In order, by the server."""
        if not self._heard:
            self._failures += 1
            self._pause(self._failures)

    def stream_was_idle(self) -> None:
        """Rule 3."""
        self._start_over()

    def failed(self, failure: Failure) -> None:
        self._failures += 1
        times = self._failures
        if failure.status == EXPIRED and self._version:
            self._expired_watches += 1
            times = self._expired_watches - 1
        elif failure.status == EXPIRED:
            self._expired_lists += 1
        if failure.status in _START_OVER or self._failures >= _FAILURES_OF_WATCH:
            self._start_over()
        if times:
            self._pause(times, failure.retry_after_sec)

    def _start_over(self) -> None:
        self._version = self._token = ""

    def _pause(self, failures: int, retry_after_sec: float = 0.0) -> None:
        timing = self._timing
        doublings = min(failures - 1, 16)
        most_sec = min(timing.pause_most_sec, timing.pause_least_sec * 2**doublings)
        pause_sec = most_sec * (0.5 + self._random() / 2)
        self._pause_sec = max(pause_sec, min(retry_after_sec, timing.retry_after_most_sec))
