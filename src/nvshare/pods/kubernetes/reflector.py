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
from nvshare.pods.kubernetes.availability import Availability
from nvshare.pods.kubernetes.credentials import Credentials
from nvshare.pods.kubernetes.list_watch import (
    PAGE_OBJECTS_MAX,
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
        self._availability = Availability(changed, timing.answer_sec)
        self._timing = timing
        self._plan = ListWatch(timing, random.random)
        self._closed = threading.Event()
        self._first_page = True
        self._list_again = threading.Event()
        self._watch_began = 0.0  # 0: none stands
        self._lists = self._watches = self._events = 0
        self._thread = threading.Thread(target=self._run, name=f"kubernetes-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Nothing is delivered any more, and the thread ends as soon as what it waits for does."""
        self._closed.set()
        self._client.interrupt()

    def list_again(self) -> None:
        """Everything is wanted once more. Called by another thread."""
        self._list_again.set()
        self._client.interrupt()

    def figures(self, now_ns: int) -> SourceFigures:
        found = self._availability
        found.look(now_ns)
        counts = (self._lists, self._watches, self._events, found.failures)
        return SourceFigures(found.up, found.why, found.heard_ns, *counts, found.status)

    # ---- in the thread -----------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closed.is_set():
            step = self._plan.next_step()
            self._availability.look(time.monotonic_ns())
            try:
                if isinstance(step, Pause):
                    self._closed.wait(step.seconds)
                elif isinstance(step, ListPage):
                    self._list(step)
                else:
                    self._watch(step)
            except StreamIdle:  # it is not down before the list fails: some servers send no bookmarks
                self._plan.stream_was_idle(self._lasted_sec())
                self._availability.was_idle()
            except ApiError as error:
                self._failed(error.failure)
            except Exception as error:  # rule 2
                self._failed(Failure(UNREADABLE, repr(error)[:200]))
            self._watch_began = 0.0
            if self._list_again.is_set():
                self._list_again.clear()
                self._plan.start_over()
                self._availability.was_idle()
        self._client.close()

    def _lasted_sec(self) -> float:
        return time.monotonic() - self._watch_began if self._watch_began else 0.0

    def _failed(self, failure: Failure) -> None:
        if self._list_again.is_set():
            return  # the stream was interrupted
        self._plan.failed(failure, self._lasted_sec())
        self._availability.failed(failure)

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
            meta, items = page.metadata, page.items or ()
            if not page.kind.endswith("List"):
                raise ValueError(f"its kind is {page.kind!r}")
            if len(items) > PAGE_OBJECTS_MAX:
                raise ValueError(f"a page of {len(items)} objects, {step.limit} were asked for")
            objects = [self._item.decode(item) for item in items]
            last = self._plan.page_came(meta.resource_version, meta.continue_token, len(objects))
        except (msgspec.MsgspecError, ValueError) as error:
            raise ApiError(Failure(UNREADABLE, f"a list that is not understood: {error}")) from error
        if not self._closed.is_set():
            self._deliver(Listed(objects, self._first_page, last))
        if last:
            self._availability.heard()
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
        whole_sec = step.timeout_sec + self._timing.margin_sec
        for lines in self._client.lines(
            f"{self._path}?{urlencode(query)}", accept, self._timing.idle_sec, whole_sec, self._stands
        ):
            for line in lines:
                self._take(line)
            if self._closed.is_set():
                return
        self._plan.stream_ended(self._lasted_sec())

    def _take(self, line: bytes) -> None:
        try:
            event = self._event.decode(line)
        except msgspec.MsgspecError as error:
            raise self._error_of(line) or ApiError(
                Failure(UNREADABLE, f"an event that is not understood: {error}")
            ) from error
        if event.type == ERROR:
            raise self._error_of(line) or ApiError(Failure(UNREADABLE, "an error that is not understood"))
        self._plan.event_came(event.object.metadata.resource_version)
        self._availability.heard()
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

    def _stands(self) -> None:
        """The watch: what is known is up to date from now on, or will be in a moment."""
        self._watch_began = time.monotonic()
        self._availability.watch_began()
