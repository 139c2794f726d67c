"""Whether a source tells of all changes, and when it last told anything.

1. It is up while a watch stands.
2. Between a stream that reported nothing, or expired, and the next watch it is in doubt: the server may be
   well, so it stays up for as long as an answer may take, and is down after that.
3. What is known is as old as the last event, bookmark or complete list: a stream may be silent because
   nothing happens, or because nothing comes through.
4. A thread notes what happens, and another one asks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from nvshare.pods.kubernetes.list_watch import EXPIRED, NO_ANSWER, Failure


class Availability:
    def __init__(self, changed: Callable[[], None], doubt_sec: float) -> None:
        """``changed`` is called when it goes up or down, or is down for another reason. It must not wait."""
        self._changed = changed
        self._doubt_ns = int(doubt_sec * 1e9)
        self._lock = threading.Lock()
        self._doubtful_since_ns = -1  # -1: it is not
        self.up = False
        self.why = "not asked yet"  # it is not up
        self.status = 0  # of the last failure
        self.failures = 0
        self.heard_ns = -1  # rule 3; -1: never

    def heard(self) -> None:
        self.heard_ns = time.monotonic_ns()

    def watch_began(self) -> None:
        with self._lock:
            self._doubtful_since_ns = -1
            if not self.up:
                self.up, self.why, self.status = True, "", 0
                self._changed()

    def failed(self, failure: Failure) -> None:
        with self._lock:
            self.failures += 1
            self.status = failure.status
            if self.up and failure.status == EXPIRED:  # rule 2
                self._doubt()
                return
            was_up, why_before, self.why = self.up, self.why, failure.why
            if was_up:
                self.up, self._doubtful_since_ns = False, -1
            if was_up or why_before != failure.why:
                self._changed()

    def was_idle(self) -> None:
        with self._lock:
            self.failures += 1
            if self.up:
                self._doubt()

    def look(self, now_ns: int) -> None:
        """Rule 2: whether the doubt has lasted too long."""
        with self._lock:
            since_ns = self._doubtful_since_ns
            if self.up and 0 <= since_ns < now_ns - self._doubt_ns:
                self.up, self._doubtful_since_ns, self.status = False, -1, NO_ANSWER
                self.why = "changes may have been missed, and not everything has been listed since"
                self._changed()

    def _doubt(self) -> None:
        if self._doubtful_since_ns < 0:
            self._doubtful_since_ns = time.monotonic_ns()
