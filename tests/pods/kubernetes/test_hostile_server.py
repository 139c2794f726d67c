"""Whatever the server sends, and however slowly: nothing waits or grows without end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nvshare.pods.kubernetes.api_client import PAGE_BYTES_MAX, ApiClient, ApiError
from nvshare.pods.kubernetes.list_watch import PAGE_OBJECTS, PAGE_OBJECTS_MAX, Timing
from nvshare.pods.kubernetes.objects import Annotated
from nvshare.pods.kubernetes.pod_source import VALUE_MAX, Unchanged, shortened
from nvshare.pods.kubernetes.reflection import ADDED, MODIFIED, Changed, Listed, SourceFigures
from nvshare.pods.kubernetes.reflector import Reflector
from tests.pods.kubernetes.hostile_server import BOOKMARK, PATIENCE_SEC, Answer, HostileServer, named, pods

HASTE = Timing(
    pause_least_sec=0.01, pause_most_sec=0.05, answer_sec=0.4, page_sec=0.4, idle_sec=0.4, margin_sec=0.2
)
Report = Listed[Annotated] | Changed[Annotated]


class Watched:
    """A reflector of a hostile server's pods."""

    def __init__(self, server: HostileServer, timing: Timing) -> None:
        self.server = server
        self.reports: list[Report] = []
        self._reflector = Reflector(
            "pods", "/api/v1/pods", {}, Annotated, server.credentials(), self.reports.append, timing=timing
        )
        self._reflector.start()

    def figures(self) -> SourceFigures:
        return self._reflector.figures(time.monotonic_ns())

    def wait(self, found: Callable[[SourceFigures], bool]) -> SourceFigures:
        deadline = time.monotonic() + PATIENCE_SEC
        while not found(self.figures()):
            assert time.monotonic() < deadline, self.figures()
            time.sleep(0.01)
        return self.figures()

    def close(self) -> None:
        self._reflector.close()
        self._reflector._thread.join(PATIENCE_SEC)


@contextmanager
def watched(directory: Path, answer: Callable[[Answer], None], timing: Timing = HASTE) -> Iterator[Watched]:
    with HostileServer(directory, answer) as server:
        found = Watched(server, timing)
        yield found
        found.close()


def began(answers: list[Answer], answer: Answer) -> int:
    """How many of its kind there have been, with this one."""
    answers.append(answer)
    return sum(one.is_watch is answer.is_watch for one in answers)


@pytest.mark.parametrize("where", ["status line", "header", "chunk size", "error body", "continue"])
def test_a_watch_that_is_answered_byte_by_byte_is_down(tmp_path: Path, where: str) -> None:
    """The first one stands, so the source is up; the next one never does."""
    before = {
        "status line": b"",
        "header": b"HTTP/1.1 200 OK\r\nX: ",
        "error body": b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 100000\r\n\r\n",
        "continue": b"HTTP/1.1 100 Continue\r\n\r\n",
        "chunk size": b"HTTP/1.1 403 Forbidden\r\nTransfer-Encoding: chunked\r\n\r\n1;",
    }
    answers: list[Answer] = []

    def answer(to: Answer) -> None:
        number = began(answers, to)
        if not to.is_watch:
            to.whole(pods(named("a", 1)))
        elif number == 1:
            to.begin()
            to.chunk(BOOKMARK)
            to.send(b"0\r\n\r\n")
        else:
            to.send(before[where])
            to.drip(b"HTTP/1.1 100 Continue\r\n\r\n" if where == "continue" else b"H")

    with watched(tmp_path, answer) as found:
        found.wait(lambda figures: figures.watches > 1 and not figures.up)
        found.wait(lambda figures: figures.failures > 2)


@pytest.mark.parametrize("where", ["header", "body"])
def test_a_list_that_is_answered_byte_by_byte_after_a_silent_watch_is_down(
    tmp_path: Path, where: str
) -> None:
    answers: list[Answer] = []

    def answer(to: Answer) -> None:
        number = began(answers, to)
        if to.is_watch:
            to.begin()
            to.chunk(BOOKMARK)
            to.stay()
        elif number == 1:
            to.whole(pods(named("a", 1)))
        else:
            to.send(
                b"HTTP/1.1 200 OK\r\n" + (b"X: " if where == "header" else b"Content-Length: 100000\r\n\r\n")
            )
            to.drip()

    with watched(tmp_path, answer) as found:
        found.wait(lambda figures: figures.up)
        found.wait(lambda figures: figures.lists > 1 and not figures.up)


def test_pages_without_end_after_a_silent_watch_are_down_in_time(tmp_path: Path) -> None:
    answers: list[Answer] = []

    def answer(to: Answer) -> None:
        number = began(answers, to)
        if to.is_watch:
            to.begin()
            to.stay()
        elif number > 1:
            time.sleep(0.01)
        to.whole(pods(named("a", 1), token=f"token {number}" if number > 1 else ""))

    with watched(tmp_path, answer) as found:
        found.wait(lambda figures: figures.up)
        figures = found.wait(lambda figures: figures.lists > 1 and not figures.up)
        assert "not everything has been listed since" in figures.why
        assert 0 <= figures.current_ns < time.monotonic_ns() - HASTE.answer_sec * 1e9, (
            "its age counts from then"
        )


def repeating(data: dict[str, Any] | bytes) -> Callable[[Answer], None]:
    """A server whose watches send that again and again."""

    def answer(to: Answer) -> None:
        if not to.is_watch:
            to.whole(pods(named("a", 1)))
            return
        to.begin()
        while True:
            to.chunk(data)
            time.sleep(0.02)

    return answer


@pytest.mark.parametrize("line", [b"\n", b" \r\n", b'{"type":'])
def test_a_watch_that_tells_nothing_is_idle_whatever_it_sends(tmp_path: Path, line: bytes) -> None:
    with watched(tmp_path, repeating(line)) as found:
        assert found.wait(lambda figures: figures.lists > 2).status == 0, "nor is it an error"


def test_blank_lines_without_end_are_garbage(tmp_path: Path) -> None:
    with watched(tmp_path, repeating(b"\n" * 10_000), Timing()) as found:
        assert "blank lines without end" in found.wait(lambda figures: figures.failures > 0).why


def test_a_stream_ends_even_if_the_server_never_ends_it(tmp_path: Path) -> None:
    with watched(tmp_path, repeating(BOOKMARK), HASTE._replace(watch_sec=0)) as found:
        figures = found.wait(lambda figures: figures.watches > 2)
        assert (figures.lists, figures.up) == (1, True)


def test_headers_without_end_are_cut_off_before_the_deadline(tmp_path: Path) -> None:
    def answer(to: Answer) -> None:
        while True:
            to.send(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000)

    with HostileServer(tmp_path, answer) as server:
        client = ApiClient(server.credentials(), Timing(answer_sec=PATIENCE_SEC))
        with pytest.raises(ApiError, match="the answer is too long"):
            client.get("/api/v1/pods", "application/json")


def test_a_page_that_is_too_large_is_asked_for_again_in_halves(tmp_path: Path) -> None:
    def answer(to: Answer) -> None:
        if to.is_watch:
            to.begin()
            to.stay()
        few = int(to.query["limit"]) <= PAGE_OBJECTS // 4
        to.whole(pods(named("a", 1)) if few else b" " * (PAGE_BYTES_MAX + 1))

    with watched(tmp_path, answer) as found:
        found.wait(lambda figures: figures.up)
        limits = [int(query["limit"]) for query in found.server.requests if "limit" in query]
    assert limits == [20, 10, 5]


def test_a_page_of_any_number_of_objects_is_refused(tmp_path: Path) -> None:
    def answer(to: Answer) -> None:
        to.whole(
            b'{"kind":"PodList","metadata":{"resourceVersion":"1"},"items":[%b{}]}'
            % (b"{}," * PAGE_OBJECTS_MAX)
        )

    with watched(tmp_path, answer) as found:
        assert "a page of 5001 objects, 20 were asked for" in found.wait(lambda f: f.failures > 0).why
        assert found.reports == []


@pytest.mark.parametrize("kind", ["Status", ""])
def test_another_kind_is_no_empty_list(tmp_path: Path, kind: str) -> None:
    body = {"kind": kind, "metadata": {"resourceVersion": "1"}}
    with watched(tmp_path, lambda to: to.whole(body)) as found:
        figures = found.wait(lambda figures: figures.failures > 0)
        assert (figures.why, found.reports) == (f"a list that is not understood: its kind is {kind!r}", [])


def test_what_the_server_says_is_plain_text_where_it_is_shown(tmp_path: Path) -> None:
    message = b'{"kind":"Status","code":500,"message":"\\u001b[31mred\\nline"}'
    head = b"HTTP/1.1 500 Error\r\nContent-Length: %d\r\n\r\n" % len(message)
    with watched(tmp_path, lambda to: to.send(head + message)) as found:
        assert found.wait(lambda figures: figures.failures > 0).why == "500: ?[31mred?line"


def test_the_servers_wish_for_a_pause_is_granted(tmp_path: Path) -> None:
    """It asks again after the pause that it was asked for, not after its own of some milliseconds."""
    asked: list[float] = []

    def answer(to: Answer) -> None:
        asked.append(time.monotonic())
        to.send(b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n")

    with watched(tmp_path, answer) as found:
        found.wait(lambda _: len(asked) >= 3)
        assert all(after - before >= 1.0 for before, after in pairwise(asked))


def test_what_is_known_is_as_old_as_the_last_report(tmp_path: Path) -> None:
    """However well the silent stream stands."""
    told = threading.Event()

    def answer(to: Answer) -> None:
        if not to.is_watch:
            to.whole(pods())
            return
        to.begin()
        told.wait(PATIENCE_SEC)
        to.chunk(BOOKMARK)
        to.stay()

    with watched(tmp_path, answer, Timing()) as found:
        listed_ns = found.wait(lambda figures: figures.up).current_ns
        assert 0 <= listed_ns == found.figures().current_ns <= time.monotonic_ns()
        told.set()
        found.wait(lambda figures: figures.current_ns > listed_ns)


def test_the_same_continue_token_again_is_an_error(tmp_path: Path) -> None:
    with watched(tmp_path, lambda to: to.whole(pods(named("a", 1), token="same"))) as found:
        assert "the same continue token again" in found.wait(lambda figures: figures.failures > 0).why


def test_everything_is_listed_again_on_demand(tmp_path: Path) -> None:
    def answer(to: Answer) -> None:
        if to.is_watch:
            to.begin()
            to.stay()
        to.whole(pods(named("a", 1)))

    with watched(tmp_path, answer, Timing()) as found:
        found.wait(lambda figures: figures.up)
        found._reflector.list_again()
        found.wait(lambda figures: figures.watches == 2)
        figures = found.figures()
        assert (figures.lists, figures.up, figures.why) == (2, True, "")


def one(name: str, number: int = 1, **annotations: str) -> Annotated:
    return msgspec.convert(named(name, number, **annotations), Annotated)


def test_what_is_remembered_of_objects_is_bounded() -> None:
    reports: list[Report] = []
    news = Unchanged(reports.append, 10)
    for number in range(20):
        news.take(Changed(ADDED, one(f"pod-{number}", number)))
    for number in range(20):
        news.take(Changed(MODIFIED, one(f"pod-{number}", number)))
    assert len(reports) == 30, "changes of ten that are no changes were held back"


def test_values_and_names_longer_than_any_are_cut_in_the_thread() -> None:
    longest = one("pod", gpu_memory_limit="1" * VALUE_MAX, gpu_core_limit="30")
    assert shortened(longest) == longest
    said = shortened(
        one("pod", gpu_memory_limit="1" * (VALUE_MAX + 1), gpu_core_limit="30" + " " * VALUE_MAX)
    )
    assert said is not None
    assert said.metadata.annotations is not None
    assert said.metadata.annotations.memory == "1" * (VALUE_MAX - 1) + "…", "no number any more"
    assert len(said.metadata.annotations.core or "") == VALUE_MAX
    assert shortened(one("x" * 254)) is None
