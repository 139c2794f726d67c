"""What to ask the API server next, to know all objects of a kind and each of their changes. Pure.

1. A list is read page by page. After its last page all that exists is known, as of the list's version. From
   there on a watch reports every change. A list that does not end is an error: it gives the same continue
   token again, or more pages or objects than there may be.
2. Each event, and each bookmark, moves the version. A stream that ends is continued from the last one.
3. An expired version (410) means that changes were missed: everything is listed again. So does a stream that
   was silent for longer than bookmarks are apart, because a version from the future is answered by silence,
   and so does a watch or a page that fails repeatedly.
4. After a failure there is a pause, which doubles with each further one up to a few seconds and is shortened
   at random, so that a cluster's nodes do not come back together. The server's Retry-After counts if it is
   longer. A stream that ends soon after it began counts as a failure as far as the pause goes.
5. Only a watch that has lasted LASTED_SEC ends the doubling. Lists and events in between make no difference,
   or a server that ends every watch at once would be asked all the time.
6. The first expiry of a watch that has lasted needs no pause: the server is well, and we were too slow.
7. A page that is too large is asked for again with half as many objects.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
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
TOO_LARGE: Final = -2
"""In the place of a status: an answer of more bytes than are taken."""
LASTED_SEC: Final = 1.0
PAGES_MAX: Final = 8192
TOKEN_MAX: Final = 8192
OBJECTS_MAX: Final = 100_000
"""Of a list."""
PAGE_OBJECTS_MAX: Final = 5000
"""Of a page. A server may give more objects than were asked for, but not any number."""
_START_OVER: Final = frozenset({EXPIRED, 400, UNREADABLE})
_FAILURES_IN_A_ROW: Final = 10
"""Half a minute or so. Less is no reason to list thousands of objects anew."""


class Timing(NamedTuple):
    pause_least_sec: float = 0.1
    pause_most_sec: float = 3.0
    retry_after_most_sec: float = 30.0
    answer_sec: float = 10.0  # to connect, and for the beginning of an answer
    page_sec: float = 30.0  # for a whole page
    idle_sec: float = 75.0  # without an event or a bookmark, which come about once a minute
    watch_sec: int = 240  # how long a stream is asked for, and up to as much more at random
    forbidden_sec: float = 0.0  # at least, after 403: of what need not be permitted
    margin_sec: float = 10.0  # after which a stream is ended that the server has not ended by then


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
        self._pages = self._objects = 0  # of the present list
        self._page_most = LARGE_PAGE_OBJECTS  # rule 7
        self._version = ""  # to watch from; empty: a list is needed first
        self._pause_sec = 0.0
        self._failures = 0  # since a watch last lasted
        self._in_a_row = 0  # failures without a success in between
        self._expired_lists = 0  # in a row

    def next_step(self) -> Step:
        if self._pause_sec:
            pause_sec, self._pause_sec = self._pause_sec, 0.0
            return Pause(pause_sec)
        if not self._version:
            return ListPage(self._token, self._limit())
        return Watch(self._version, int(self._timing.watch_sec * (1 + self._random())))

    # ---- what came of the step ---------------------------------------------------------------

    def page_came(self, resource_version: str, continue_token: str, objects: int) -> bool:
        """Whether it was the last one. Raises ValueError if it cannot be (rule 1)."""
        self._objects += objects
        if self._objects > OBJECTS_MAX:
            raise ValueError(f"a list of more than {OBJECTS_MAX} objects")
        if continue_token:
            self._continue(continue_token)
            return False
        if not resource_version:
            raise ValueError("a list without a version")
        self.start_over()
        self._version = resource_version
        self._page_most = min(LARGE_PAGE_OBJECTS, 2 * self._page_most)
        self._in_a_row = self._expired_lists = 0
        return True

    def event_came(self, resource_version: str) -> None:
        """An event or a bookmark."""
        if not resource_version:
            raise ValueError("an event without a version")
        self._version = resource_version
        self._in_a_row = 0

    def stream_ended(self, lasted_sec: float) -> None:
        """In order."""
        if not self._lasted(lasted_sec):
            self._failures += 1
            self._pause(self._failures)

    def stream_was_idle(self, lasted_sec: float) -> None:
        """Rule 3."""
        self.start_over()
        if not self._lasted(lasted_sec):
            self._failures += 1
            self._pause(self._failures)

    def failed(self, failure: Failure, lasted_sec: float = 0.0) -> None:
        """``lasted_sec``: how long the watch had lasted, if it was one."""
        self._lasted(lasted_sec)
        self._failures += 1
        self._in_a_row += 1
        times = self._failures
        if failure.status == TOO_LARGE and self._limit() > 1:
            self._page_most = self._limit() // 2
        elif failure.status == EXPIRED and self._version:
            times -= 1  # rule 6
        elif failure.status == EXPIRED:
            self._expired_lists += 1
        if failure.status in _START_OVER or self._in_a_row >= _FAILURES_IN_A_ROW:
            self.start_over()
        if times:
            forbidden_sec = self._timing.forbidden_sec if failure.status == HTTPStatus.FORBIDDEN else 0.0
            self._pause(times, max(failure.retry_after_sec, forbidden_sec))

    def start_over(self) -> None:
        """With a list."""
        self._version = self._token = ""
        self._pages = self._objects = 0

    # ---- inside ------------------------------------------------------------------------------

    def _limit(self) -> int:
        wanted = LARGE_PAGE_OBJECTS if self._expired_lists > 1 else PAGE_OBJECTS
        return min(wanted, self._page_most)

    def _continue(self, token: str) -> None:
        if token == self._token:
            raise ValueError("a list that gives the same continue token again")
        if len(token) > TOKEN_MAX:
            raise ValueError(f"a continue token of more than {TOKEN_MAX} characters")
        self._pages += 1
        if self._pages >= PAGES_MAX:
            raise ValueError(f"a list of more than {PAGES_MAX} pages")
        self._token = token

    def _lasted(self, seconds: float) -> bool:
        """Rule 5."""
        if seconds < LASTED_SEC:
            return False
        self._failures = 0
        return True

    def _pause(self, failures: int, retry_after_sec: float = 0.0) -> None:
        timing = self._timing
        doublings = min(failures - 1, 16)
        most_sec = min(timing.pause_most_sec, timing.pause_least_sec * 2**doublings)
        pause_sec = most_sec * (0.5 + self._random() / 2)
        self._pause_sec = max(pause_sec, min(retry_after_sec, timing.retry_after_most_sec))
