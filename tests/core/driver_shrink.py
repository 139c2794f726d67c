"""The shortest sequence that still breaks the same rule, and the test it makes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from .driver_views import BrokenRuleError

Tape = list[tuple[int, Any]]


def shrink(
    tape: Tape, breaks: Callable[[Tape], BrokenRuleError | None], seconds: float
) -> tuple[Tape, BrokenRuleError | None]:
    """Drop chunks, then smaller ones, as long as the same rule is broken, for that many seconds at most."""
    until_s = time.monotonic() + seconds
    found = breaks(tape)
    if found is None:
        return tape, None
    chunk = len(tape) // 2
    while chunk >= 1 and time.monotonic() < until_s:
        before = len(tape)
        at = len(tape) - chunk  # from the end: what comes last is needed most, and is soon known to be
        while time.monotonic() < until_s:
            at = max(0, at)
            shorter = tape[:at] + tape[at + chunk :]
            error = breaks(shorter)
            if error is not None:
                tape, found = shorter, error
            if at == 0:
                break
            at -= chunk
        if chunk == 1 and len(tape) == before:
            break
        chunk = max(1, chunk // 2)
    return tape, found


def paste(tape: Tape, twin: bool) -> str:
    """The sequence as the body of a test."""
    lines = [f"    episode = Episode(twin={twin}, check_every=1)"]
    for now_ns, item in tape:
        module = "events." if type(item).__module__.endswith("core.events") else ""
        lines.append(f"    episode.perform({module}{item!r}, {now_ns})")
    lines.append("    checks.check_all(episode.world)")
    return "\n".join(lines)
