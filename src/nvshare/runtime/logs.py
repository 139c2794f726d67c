"""Log lines for people and programs, written without ever blocking the loop.

1. A line is an event and its fields: ``TIME LEVEL words key=value``, or one JSON object.
2. A value with anything but plain characters is quoted, so that no stranger can forge lines.
3. Lines wait in a bounded queue for a thread. A log that nobody reads costs lines, never time.
4. Lines that strangers can cause are limited to ten a second for each kind of line and each owner (a pod or a
   user), and to a hundred a second for each kind. One more line says how many were suppressed, and who caused
   most of them.
"""

from __future__ import annotations

import json
import logging
import queue
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, TextIO

LOGGER: Final = logging.getLogger("nvshare")
QUEUE_MAX: Final = 10_000
REPEATS_PER_SEC: Final = 10
REPEATS_IN_ALL_PER_SEC: Final = 100
OWNERS_MAX: Final = 256
OTHERS: Final = "others"
OURSELVES: Final = "nvshare"
"""The owner of lines that the daemon itself causes."""
OPERATOR: Final = "operator"
"""The owner of lines that are never suppressed: operators find each of their changes in the log."""
LEVELS: Final = {
    "error": logging.ERROR,
    "warning": logging.WARNING,
    "info": logging.INFO,
    "debug": logging.DEBUG,
    "off": logging.CRITICAL + 10,
}
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.:/%@+,-]+")


def _stamp(record: logging.LogRecord) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{whole}.{int(record.msecs):03}Z"


class TextForm(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = getattr(record, "fields", {})
        words = [_stamp(record), record.levelname, record.getMessage()]
        for name, value in fields.items():
            text = str(value)
            words.append(f"{name}={text if _PLAIN.fullmatch(text) else json.dumps(text)}")
        if record.exc_info:
            words.append(json.dumps(self.formatException(record.exc_info)))
        return " ".join(words)


class JsonForm(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = getattr(record, "fields", {})
        line = {
            "time": _stamp(record),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **fields,
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


FORMS: Final = {"text": TextForm, "json": JsonForm}


class QueuedHandler(logging.Handler):
    """Formats at once and leaves the writing to a thread, which may hang."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._lines: queue.Queue[str | threading.Event] = queue.Queue(QUEUE_MAX)
        self.lost = 0
        threading.Thread(target=self._write, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._lines.put_nowait(self.format(record))
        except queue.Full:
            self.lost += 1

    def _write(self) -> None:
        while True:
            line = self._lines.get()
            if isinstance(line, threading.Event):
                line.set()
                continue
            try:
                self._stream.write(line + "\n")
                self._stream.flush()
            except (OSError, ValueError):
                self.lost += 1

    def drain(self, timeout_sec: float) -> bool:
        """Wait until everything before this call is written, but not for ever."""
        written = threading.Event()
        try:
            self._lines.put_nowait(written)
        except queue.Full:
            return False
        return written.wait(timeout_sec)


def start(level: str, form: str, stream: TextIO = sys.stderr) -> QueuedHandler:
    handler = QueuedHandler(stream)
    LOGGER.handlers = [handler]
    LOGGER.propagate = False
    change(level, form)
    return handler


def change(level: str, form: str) -> None:
    LOGGER.setLevel(LEVELS[level])
    for handler in LOGGER.handlers:
        handler.setFormatter(FORMS[form]())


def event(level: int, words: str, **fields: object) -> None:
    if LOGGER.isEnabledFor(level):
        LOGGER.log(level, words, extra={"fields": fields})


def info(words: str, **fields: object) -> None:
    event(logging.INFO, words, **fields)


def warning(words: str, **fields: object) -> None:
    event(logging.WARNING, words, **fields)


class _SecondOfKind:
    """The lines of one kind in the present second."""

    __slots__ = ("by_owner", "level", "logged", "suppressed")

    def __init__(self, level: int) -> None:
        self.level = level
        self.logged = 0
        self.suppressed = 0
        self.by_owner: Counter[str] = Counter()

    def permits(self, owner: str) -> bool:
        if owner not in self.by_owner and len(self.by_owner) >= OWNERS_MAX:
            owner = OTHERS
        self.by_owner[owner] += 1
        if self.logged >= REPEATS_IN_ALL_PER_SEC or self.by_owner[owner] > REPEATS_PER_SEC:
            self.suppressed += 1
            return False
        self.logged += 1
        return True


class Repeats:
    """Lines that strangers can cause (rule 4).

    ``flush`` is called a few times a second, so that suppressed lines are reported when a flood is over.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._now = int(clock())
        self._kinds: dict[str, _SecondOfKind] = {}

    def info(self, kind: str, owner: str, words: str = "", /, **fields: object) -> None:
        self._log(logging.INFO, kind, owner, words, fields)

    def warning(self, kind: str, owner: str, words: str = "", /, **fields: object) -> None:
        self._log(logging.WARNING, kind, owner, words, fields)

    def _log(self, level: int, kind: str, owner: str, words: str, fields: dict[str, object]) -> None:
        if not LOGGER.isEnabledFor(level):
            return
        if owner == OPERATOR:
            event(level, words or kind, **fields)
            return
        self.flush()
        second = self._kinds.get(kind)
        if second is None:
            second = self._kinds[kind] = _SecondOfKind(level)
        if second.permits(owner):
            event(level, words or kind, **fields)

    def flush(self, at_end: bool = False) -> None:
        now = int(self._clock())
        if now == self._now and not at_end:
            return
        self._now = now
        kinds, self._kinds = self._kinds, {}
        for kind, second in kinds.items():
            if second.suppressed:
                [(owner, _)] = second.by_owner.most_common(1)
                event(second.level, f"{kind}: {second.suppressed} more like it", most_by=owner)
