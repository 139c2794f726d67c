"""What a hold costs in which several processes of a pod took part."""

from __future__ import annotations

import pytest

from nvshare.core import events

from .model import MS, Model


@pytest.fixture
def model() -> Model:
    found = Model()
    found.limit("pair", 50)
    return found


def let_go(model: Model, key: int, after_ns: int, busy_ns: int | None) -> None:
    """Some time later, with so much on its counter since it was registered."""
    model.pass_time(after_ns)
    model.clients[key].busy_ns = busy_ns or 0
    model.step(events.LockReleased(key, busy_ns, 0, False))


def billed_ms(model: Model) -> float:
    return model.tenant("pair").account.billed_ns / MS


def test_it_is_billed_from_the_first_stint_to_the_last_release(model: Model) -> None:
    """The first one began 2 ms after the grant, the second 3 ms after it."""
    first, second = model.register("pair"), model.register("pair")
    model.request(first)
    model.request(second)
    let_go(model, first, 8 * MS, busy_ns=6 * MS)
    let_go(model, second, MS, busy_ns=6 * MS)
    assert billed_ms(model) == 7


def test_one_after_the_other_is_billed_whole(model: Model) -> None:
    first, second = model.register("pair"), model.register("pair")
    model.request(first)
    model.request(second)
    let_go(model, first, 5 * MS, busy_ns=4 * MS)
    let_go(model, second, 4 * MS, busy_ns=3 * MS)
    assert billed_ms(model) == 8, "from the first one's first launch on"


def test_a_client_that_cannot_report_is_billed_for_its_hold(model: Model) -> None:
    told, silent = model.register("pair"), model.register("pair", version=2)
    model.request(told)
    model.request(silent)
    let_go(model, silent, 8 * MS, busy_ns=None)
    let_go(model, told, MS, busy_ns=5 * MS)
    assert billed_ms(model) == 9


def test_its_dead_time_is_learned(model: Model) -> None:
    """So that turns are long enough for it: here 2 ms of every hold go by unused."""
    pair = [model.register("pair"), model.register("pair")]
    before_ns = model.gpu().pace.dead_ns
    for number in range(1, 30):
        for key in pair:
            model.request(key)
        for key, after_ns in zip(pair, (8 * MS, 0), strict=True):
            let_go(model, key, after_ns, busy_ns=number * 6 * MS)
        model.pass_time(20 * MS)
    assert before_ns < model.gpu().pace.dead_ns <= 2 * MS
    assert billed_ms(model) == 29 * 6


def test_a_second_process_is_held_to_the_quota_whatever_the_first_was_known_to_work(model: Model) -> None:
    """What was learned of a half-idle process was taken for the pod's, and its quota never held again."""
    first = model.register("pair")
    for number in range(1, 12):  # a third of each hold is worked in
        model.request(first)
        let_go(model, first, 9 * MS, busy_ns=number * 3 * MS)
        model.pass_time(40 * MS)
    assert model.tenant("pair").account.duty_percent < 50
    second = model.register("pair")
    model.request(first)
    model.request(second)
    model.pass_time(200 * MS)
    assert model.clients[first].dropping
    assert model.clients[second].dropping
