"""Keeps one kind of object up to date, in a thread of its own: performs what ``list_watch`` decides.

1. The thread waits in C, for the server or for a pause to end, and decodes what comes in small parts. It is
   never waited for.
2. It does not end by anything that comes from the server. An unforeseen exception is a failure like others.
3. ``deliver`` is called in the thread. It may wait, which holds the stream up, so no queue grows without end.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Final, Generic
from urllib.parse import urlencode

import msgspec

from nvshare.pods.kubernetes.api_client import METADATA_ONLY, ApiClient, ApiError, StreamIdle, refusal
from nvshare.pods.kubernetes.credentials import Credentials
from nvshare.pods.kubernetes.list_watch import (
    EXPIRED,
    UNREADABLE,
    Failure,
    ListPage,
    ListWatch,
    Pause,
    Timing,
    Watch,
)
from nvshare.pods.kubernetes.objects import ObjectT, Page, WatchError, WatchEvent
from nvshare.pods.kubernetes.reflection import (
    BOOKMARK,
    ERROR,
    Changed,
    Listed,
    SourceFigures,
)

_PAGE: Final[msgspec.json.Decoder[Page]] = msgspec.json.Decoder(Page)
_ERROR: Final[msgspec.json.Decoder[WatchError]] = msgspec.json.Decoder(WatchError)


class Reflector(Generic[ObjectT]):
    accept = METADATA_ONLY
    """What is asked for of each object. One that needs more than metadata derives a class of its own."""

    def __init__(
        self,
        name: str,
        path: str,
        selector: dict[str, str],
        kind: type[ObjectT],
        credentials: Credentials,
        deliver: Callable[[Listed[ObjectT] | Changed[ObjectT]], None],
        changed: Callable[[], None] = lambda: None,
        timing: Timing = Timing(),  # noqa: B008 - immutable
    ) -> None:
        """``path`` and ``selector`` name the objects; ``changed`` is called when it goes up or down."""
        self._path = path
        self._selector = selector
        self._item = msgspec.json.Decoder(kind)
        self._event: msgspec.json.Decoder[WatchEvent[ObjectT]] = msgspec.json.Decoder(
            WatchEvent[kind]  # type: ignore[valid-type]
        )
        self._client = ApiClient(credentials, timing)
        self._deliver = deliver
        self._changed = changed
        self._timing = timing
        self._plan = ListWatch(timing, random.random)
        self._closed = threading.Event()
        self._first_page = True
        self._up = False
        self._why = "not asked yet"
        self._status = 0
        self._current_ns = -1
        self._lists = self._watches = self._events = self._failures = 0
        self._thread = threading.Thread(target=self._run, name=f"kubernetes-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Nothing is delivered any more."""
        self._closed.set()

    def figures(self, now_ns: int) -> SourceFigures:
        current_ns = now_ns if self._up else self._current_ns
        counts = (self._lists, self._watches, self._events, self._failures)
        return SourceFigures(self._up, self._why, current_ns, *counts, self._status)

    # ---- in the thread -----------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closed.is_set():
            step = self._plan.next_step()
            try:
                if isinstance(step, Pause):
                    self._closed.wait(step.seconds)
                elif isinstance(step, ListPage):
                    self._list(step)
                else:
                    self._watch(step)
            except StreamIdle:  # it is not down before the list fails: some servers send no bookmarks
                self._plan.stream_was_idle()
                self._failures += 1
            except ApiError as error:
                self._plan.failed(error.failure)
                self._went_down(error.failure)
            except Exception as error:  # rule 2
                failure = Failure(UNREADABLE, repr(error)[:200])
                self._plan.failed(failure)
                self._went_down(failure)

    def _list(self, step: ListPage) -> None:
        query = {**self._selector, "limit": str(step.limit)}
        if step.continue_token:
            query["continue"] = step.continue_token
        else:
            self._first_page = True
            self._lists += 1
        raw = self._client.get(f"{self._path}?{urlencode(query)}", self.accept.format(list="List"))
        try:
            page = _PAGE.decode(raw)
            objects = [self._item.decode(item) for item in page.items or ()]
            last = self._plan.page_came(page.metadata.resource_version, page.metadata.continue_token)
        except (msgspec.MsgspecError, ValueError) as error:
            raise ApiError(Failure(UNREADABLE, f"a list that is not understood: {error}")) from error
        if not self._closed.is_set():
            self._deliver(Listed(objects, self._first_page, last))
        self._first_page = False

    def _watch(self, step: Watch) -> None:
        query = {
            **self._selector,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": step.resource_version,
            "timeoutSeconds": str(step.timeout_sec),
        }
        self._watches += 1
        accept = self.accept.format(list="")
        for lines in self._client.lines(
            f"{self._path}?{urlencode(query)}", accept, self._timing.idle_sec, self._went_up
        ):
            for line in lines:
                self._take(line)
            if self._closed.is_set():
                return
        self._plan.stream_ended()

    def _take(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            event = self._event.decode(line)
        except msgspec.MsgspecError as error:
            raise self._error_of(line) or ApiError(
                Failure(UNREADABLE, f"an event that is not understood: {error}")
            ) from error
        if event.type == ERROR:
            raise self._error_of(line) or ApiError(Failure(UNREADABLE, "an error that is not understood"))
        self._plan.event_came(event.object.metadata.resource_version)
        if event.type != BOOKMARK and not self._closed.is_set():
            self._events += 1
            self._deliver(Changed(event.type, event.object))

    def _error_of(self, line: bytes) -> ApiError | None:
        try:
            error = _ERROR.decode(line)
        except msgspec.MsgspecError:
            return None
        if error.type != ERROR:
            return None
        return ApiError(refusal(error.object.code, error.object.message, None, error.object))

    def _went_up(self) -> None:
        """A watch stands: what is known is up to date from now on, or will be in a moment."""
        if not self._up:
            self._up, self._why, self._status = True, "", 0
            self._changed()

    def _went_down(self, failure: Failure) -> None:
        self._failures += 1
        self._status = failure.status
        was_up, why_before, self._why = self._up, self._why, failure.why
        if was_up and failure.status == EXPIRED:
            self._why = ""  # the server is well, and all is listed again at once
            return
        if was_up:
            self._up, self._current_ns = False, time.monotonic_ns()
        if was_up or why_before != failure.why:
            self._changed()
