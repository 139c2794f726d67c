"""What is asked next, whatever came of the last request: no sockets, no clock."""

from __future__ import annotations

import pytest

from nvshare.pods.kubernetes.list_watch import (
    EXPIRED,
    LARGE_PAGE_OBJECTS,
    LASTED_SEC,
    NO_ANSWER,
    PAGE_OBJECTS,
    PAGES_MAX,
    TOO_LARGE,
    UNREADABLE,
    Failure,
    ListPage,
    ListWatch,
    Pause,
    Timing,
    Watch,
)

TIMING = Timing(pause_least_sec=0.1, pause_most_sec=3.0, watch_sec=240)
FIRST = ListPage("", PAGE_OBJECTS)
AWAY = Failure(NO_ANSWER, "connection refused")


def plan(random: float = 0.999) -> ListWatch:
    return ListWatch(TIMING, lambda: random)


def paused_sec(found: ListWatch) -> float:
    step = found.next_step()
    assert isinstance(step, Pause)
    return step.seconds


def watching(version: str = "7") -> ListWatch:
    found = plan()
    assert found.next_step() == FIRST
    assert found.page_came(version, "", 20)
    assert found.next_step() == Watch(version, 479)
    return found


def test_pages_until_the_last_then_a_watch_from_the_lists_version() -> None:
    found = plan(0.0)
    assert found.next_step() == FIRST
    assert not found.page_came("7", "more", 20)
    assert found.next_step() == ListPage("more", PAGE_OBJECTS)
    assert found.page_came("7", "", 20)
    assert found.next_step() == Watch("7", 240)


def test_a_stream_that_told_something_goes_on_from_there_at_once() -> None:
    found = watching()
    found.event_came("8")
    found.event_came("9")
    found.stream_ended(LASTED_SEC)
    assert found.next_step() == Watch("9", 479)


def test_a_stream_that_ends_soon_goes_on_after_a_pause_whatever_it_told() -> None:
    found, pauses = watching(), []
    for version in "789":
        found.event_came(version)
        found.stream_ended(0.0)
        pauses.append(paused_sec(found))
        assert found.next_step() == Watch(version, 479)
    assert pauses == pytest.approx([0.1, 0.2, 0.4], rel=0.01)
    found.stream_ended(LASTED_SEC)
    assert found.next_step() == Watch("9", 479), "at once"
    found.stream_ended(0.0)
    assert paused_sec(found) == pytest.approx(0.1, rel=0.01)


def test_a_silent_stream_means_another_list() -> None:
    found = watching()
    found.event_came("8")
    found.stream_was_idle(75.0)
    assert found.next_step() == FIRST


def test_an_expired_version_means_another_list_at_once_and_the_next_after_a_pause() -> None:
    found, pauses = watching(), []
    for _ in range(4):
        found.event_came("8")
        found.failed(Failure(EXPIRED, "too old"))
        while isinstance(step := found.next_step(), Pause):
            pauses.append(step.seconds)
        assert step == FIRST
        found.page_came("9", "", 20)
        assert isinstance(found.next_step(), Watch)
    assert pauses == pytest.approx([0.1, 0.2, 0.4], rel=0.01), "events and lists make no difference"
    found.failed(Failure(EXPIRED, "too old"), LASTED_SEC)
    assert found.next_step() == FIRST


def test_a_list_that_expires_again_and_again_is_read_in_large_pages() -> None:
    found = plan()
    for _ in range(2):
        while isinstance(found.next_step(), Pause):
            pass
        found.page_came("7", "more", 20)
        found.failed(Failure(EXPIRED, "the token is too old"))
    while isinstance(step := found.next_step(), Pause):
        pass
    assert step == ListPage("", LARGE_PAGE_OBJECTS)


@pytest.mark.parametrize("status", [UNREADABLE, 400])
def test_garbage_and_a_broken_token_mean_another_list(status: int) -> None:
    found = plan()
    found.page_came("7", "more", 20)
    found.failed(Failure(status, "?"))
    assert isinstance(found.next_step(), Pause)
    assert found.next_step() == FIRST


def test_a_page_that_fails_is_asked_for_again() -> None:
    found = plan()
    found.page_came("7", "more", 20)
    found.failed(AWAY)
    assert isinstance(found.next_step(), Pause)
    assert found.next_step() == ListPage("more", PAGE_OBJECTS)


@pytest.mark.parametrize("status", [NO_ANSWER, 401, 403, 429, 500])
def test_a_watch_that_fails_goes_on_from_its_version_unless_it_fails_for_long(status: int) -> None:
    found, steps = watching(), []
    for _ in range(10):
        found.failed(Failure(status, "?"))
        assert isinstance(found.next_step(), Pause)
        steps.append(found.next_step())
    assert steps == [Watch("7", 479)] * 9 + [FIRST]


def test_what_need_not_be_permitted_is_asked_for_rarely() -> None:
    found = ListWatch(TIMING._replace(forbidden_sec=20.0), lambda: 0.999)
    found.failed(Failure(403, "no"))
    assert paused_sec(found) == pytest.approx(20.0)
    found.failed(Failure(500, "?"))
    assert paused_sec(found) == pytest.approx(0.2, rel=0.01)


def test_pauses_double_up_to_the_most_until_a_watch_lasts() -> None:
    found, pauses = plan(), []
    for _ in range(8):
        found.failed(AWAY)
        step = found.next_step()
        assert isinstance(step, Pause)
        pauses.append(step.seconds)
        found.next_step()
    assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.0, 3.0, 3.0], rel=0.01)
    found.page_came("7", "", 20)
    found.next_step()
    found.failed(AWAY)
    assert paused_sec(found) == pytest.approx(3.0, rel=0.01), "a list is no success if no watch follows"
    found.next_step()
    found.failed(AWAY, LASTED_SEC)
    assert paused_sec(found) == pytest.approx(0.1, rel=0.01)


def test_pauses_are_shortened_at_random_but_by_no_more_than_half() -> None:
    found = plan(0.0)
    found.failed(AWAY)
    assert paused_sec(found) == pytest.approx(0.05)


def test_retry_after_counts_if_it_is_longer_and_within_reason() -> None:
    found = plan()
    for after_sec, expected_sec in ((2.0, 2.0), (0.0, 0.2), (86_400.0, TIMING.retry_after_most_sec)):
        found.failed(Failure(429, "too many", after_sec))
        assert paused_sec(found) == pytest.approx(expected_sec, rel=0.01)
        found.next_step()


def test_a_page_that_is_too_large_is_asked_for_again_with_half_as_many() -> None:
    found, limits = plan(), []
    found.page_came("7", "more", 20)
    for _ in range(7):
        while isinstance(step := found.next_step(), Pause):
            pass
        assert isinstance(step, ListPage)
        limits.append(step.limit)
        found.failed(Failure(TOO_LARGE, "too large"))
    assert limits == [20, 10, 5, 2, 1, 1, 1]


def test_large_pages_that_are_too_large_are_halved_and_grow_again_with_lists() -> None:
    found = plan()
    for _ in range(2):
        found.failed(Failure(EXPIRED, "the token is too old"))
    found.failed(Failure(TOO_LARGE, "too large"))
    while isinstance(step := found.next_step(), Pause):
        pass
    assert step == ListPage("", LARGE_PAGE_OBJECTS // 2)
    found.page_came("7", "", 20)
    for _ in range(2):
        found.failed(Failure(EXPIRED, "too old"))
    while isinstance(step := found.next_step(), Pause):
        pass
    assert step == ListPage("", PAGE_OBJECTS), "only one list expired"


@pytest.mark.parametrize("pages", ["same token", "new tokens", "objects"])
def test_a_list_without_end_is_an_error(pages: str) -> None:
    found = plan()
    words = {"same token": "same continue token", "new tokens": "more than 8192 pages", "objects": "100000"}
    objects = 500 if pages == "objects" else 0

    def take_all() -> None:
        for number in range(PAGES_MAX):
            found.page_came("7", "same" if pages == "same token" else f"token {number}", objects)

    with pytest.raises(ValueError, match=words[pages]):
        take_all()
    found.failed(Failure(UNREADABLE, "a list without end"))
    assert isinstance(found.next_step(), Pause)
    assert found.next_step() == FIRST


def test_a_continue_token_has_a_greatest_length() -> None:
    with pytest.raises(ValueError, match="more than 8192 characters"):
        plan().page_came("7", "x" * 8193, 20)


@pytest.mark.parametrize("came", ["page", "event"])
def test_what_has_no_version_cannot_be_gone_on_from(came: str) -> None:
    found = watching() if came == "event" else plan()
    with pytest.raises(ValueError, match="without a version"):
        found.event_came("") if came == "event" else found.page_came("", "", 20)
