"""Whose word counts."""

from __future__ import annotations

import pytest

from nvshare.core import events
from nvshare.core.limits import LimitsBook, PodLimits
from nvshare.core.scheduler import Scheduler

GIB = 1 << 30


def test_nobody_said_anything() -> None:
    assert LimitsBook().effective() == PodLimits(0, 100, False, "none", "none")


def test_the_lowest_memory_limit_holds_unless_ctl_speaks() -> None:
    book = LimitsBook()
    book.put("annotation", 4 * GIB, None, None)
    book.put("env", 2 * GIB, None, None)
    assert book.effective()[::3] == (2 * GIB, "env")
    book.put("ctl", 8 * GIB, None, None)
    assert book.effective()[::3] == (8 * GIB, "ctl")
    book.put("ctl", None, None, None)
    assert book.effective()[::3] == (2 * GIB, "env")


def test_the_first_source_decides_on_compute() -> None:
    book = LimitsBook()
    book.put("default", None, 80, None)
    book.put("annotation", None, 30, True)
    assert book.effective()[1:] == (30, True, "none", "annotation")
    book.put("run", None, 60, None)
    assert book.effective()[1:] == (60, True, "none", "run")


@pytest.mark.parametrize(
    ("source", "memory", "percent", "words"),
    [("nobody", 1, 1, "nobody"), ("ctl", -1, 1, "-1"), ("ctl", 1, 0, "1..100"), ("ctl", 1, 101, "1..100")],
)
def test_what_cannot_be_meant_is_refused(source: str, memory: int, percent: int, words: str) -> None:
    book = LimitsBook()
    with pytest.raises(ValueError, match=words):
        book.put(source, memory, percent, None)
    assert book.effective() == PodLimits()


def test_a_refused_word_leaves_no_trace() -> None:
    """The pod was known as limited from then on, by nobody's word."""
    core = Scheduler()
    with pytest.raises(ValueError, match=r"1\.\.100"):
        core.handle(events.LimitsSet("pod", "ctl", None, 0), 1)
    assert list(core.limited_pods()) == []
