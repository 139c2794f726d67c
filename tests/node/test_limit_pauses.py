"""How soon limits may change again: nobody keeps the daemon busy, and the latest value always holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from nvshare.node.dispatcher import Dispatcher
from nvshare.node.limit_pauses import FEW_CLIENTS, LEAST_ANNOTATED_NS, LimitPauses


class Loop:
    """Time passes when the test says so."""

    def __init__(self) -> None:
        self.loop = self  # it is in the dispatcher's place as well
        self.timers: list[tuple[float, Callable[[str], None], str]] = []

    def call_later(self, delay_sec: float, callback: Callable[[str], None], pod: str) -> None:
        self.timers.append((delay_sec, callback, pod))

    def all_over(self) -> None:
        timers, self.timers = self.timers, []
        for _, callback, pod in timers:
            callback(pod)


def pauses_of(clients: int) -> tuple[Loop, LimitPauses]:
    loop: Any = Loop()
    return loop, LimitPauses(cast("Dispatcher", loop), lambda _pod: clients)


def test_annotations_of_a_small_pod_change_now_and_then_and_the_last_one_holds() -> None:
    loop, pauses = pauses_of(1)
    assert pauses.may_annotate("a")
    done: list[int] = []
    for number in range(5):
        assert not pauses.may_annotate("a")
        pauses.when_over("a", "annotation", lambda number=number: done.append(number))  # type: ignore[misc]
    [(delay_sec, _, _)] = loop.timers
    assert delay_sec == LEAST_ANNOTATED_NS / 1e9
    loop.all_over()
    assert done == [4]
    assert pauses.may_annotate("a")


def test_a_pod_without_clients_needs_no_pause() -> None:
    loop, pauses = pauses_of(0)
    assert all(pauses.may_annotate("a") for _ in range(3))
    assert loop.timers == []


def test_a_second_change_of_a_large_pod_holds_within_a_quarter_of_a_second() -> None:
    loop, pauses = pauses_of(256)
    assert pauses.may_annotate("a")
    assert loop.timers[0][0] <= 0.2


@pytest.mark.parametrize("clients", [1, 8, 64])
def test_however_many_pods_change_all_the_time_clients_are_told_at_a_bounded_rate(clients: int) -> None:
    loop, pauses = pauses_of(clients)
    for number in range(512):
        assert pauses.may_annotate(f"pod-{number}")
    for _ in range(512):  # each of them again, while the others have a pause
        _, callback, pod = loop.timers.pop(0)
        callback(pod)
        assert pauses.may_annotate(pod)
    per_sec = sum(clients / delay_sec for delay_sec, _, _ in loop.timers)
    assert per_sec < 2000, "40 us each"


def test_others_of_a_small_pod_need_no_pause() -> None:
    loop, pauses = pauses_of(FEW_CLIENTS)
    assert all(pauses.may_change("a") for _ in range(3))
    assert loop.timers == []
