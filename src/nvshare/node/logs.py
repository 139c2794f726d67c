"""Log lines that a person and a program can read, written without ever stopping the loop.

1. A line is an event in words and fields: ``TIME LEVEL words key=value``, or one JSON object.
2. A field's value is quoted when it contains anything but plain characters, so nobody writes lines for us.
3. Lines wait in a bounded queue for a thread; a log nobody reads costs lines, never time.
4. What strangers can cause again and again is told ten times a second at most.
"""

from __future__ import annotations

import json
import logging
import queue
import re
import sys
import threading
import time
from typing import Any, Final, TextIO

LOGGER: Final = logging.getLogger("nvshare")
QUEUE_MAX: Final = 10_000
REPEATS_PER_SEC: Final = 10
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
    """Formats at once and leaves the writing to a thread that may hang."""

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


class Repeats:
    """Lets a kind of line through a bounded number of times a second, and says how many it kept back."""

    def __init__(self) -> None:
        self._second: dict[str, tuple[int, int]] = {}

    def warning(self, words: str, **fields: object) -> None:
        second = int(time.monotonic())
        last, count = self._second.get(words, (second, 0))
        if last != second:
            if count > REPEATS_PER_SEC:
                warning(f"{words}: more of the same", kept_back=count - REPEATS_PER_SEC)
            count = 0
        self._second[words] = (second, count + 1)
        if count < REPEATS_PER_SEC:
            warning(words, **fields)
